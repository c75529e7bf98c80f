"""Jobs that are kept running while what they read is corrected: held, and going on by themselves after the cascade."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import anabranch
from anabranch.cascade import run_cascade, undo_cascade
from anabranch.jobs.job import job, sql_job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy, Stop
from anabranch.jobs.trigger import Schedule

COLUMNS = "id BIGINT NOT NULL, v BIGINT"
PATIENCE = 300


@job("b", sources={"a": "db.a"}, sink="db.b", trigger="1 second")
def double(a):
    return a.selectExpr("id", "v * 2 AS v")


JOBS = (
    double,
    sql_job("c", "SELECT id, v + 1 AS v FROM b", sources={"b": "db.b"}, sink="db.c", trigger="1 second"),
)


def append(table, first, count, factor=1):
    table.append([{"id": i, "v": i * factor} for i in range(first, first + count)])


def values(lake, table):
    with lake.job("looks"):  # else what is read while a job begins may be for that job
        rows = lake.table(table).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["v"]) for row in rows)


def right(count):
    return [[(i, 2 * i) for i in range(count)], [(i, 2 * i + 1) for i in range(count)]]


def until(check, what):
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, what()
        assert "failed" not in str(what()), what()
        time.sleep(0.2)


class Supervised:
    """Jobs that run in a thread, with what has been told of them."""

    def __init__(self, lake, jobs):
        self.stop, self.last, self.states = Stop(), {}, {}
        schedule = Schedule(policy=Policy(look_pause=0.5, first_pause=0.2))

        def work():
            lake.spark.createDataFrame([], "a INT")  # the session is active in this thread from then on
            run_jobs(jobs, lake, Run(), schedule, stop=self.stop, on_status=self.told)

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def told(self, statuses):
        for status in statuses:
            known = self.states.setdefault(status.job, [])
            if known[-1:] != [status.state.value]:
                known.append(status.state.value)
        self.last = {status.job: status for status in statuses}

    def state(self, name):
        return self.last[name].state.value if name in self.last else None

    def about(self):
        return {name: (status.state.value, status.message) for name, status in self.last.items()}, self.states


@contextmanager
def supervised(lake, jobs=JOBS):
    found = Supervised(lake, jobs)
    try:
        yield found
    finally:
        found.stop.ask()
        found.thread.join(PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize(
    "is_taken_back",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["published", "taken back and on"],
)
def test_jobs_downstream_are_held_and_go_on_after_the_cascade(spark, warehouse, is_taken_back):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("db.a", "db.b", "db.c"):
        lake.create_table(table, COLUMNS)
    a = lake.table("db.a")
    append(a, 0, 2)
    # As another process would: the names of queries are those of the ones that run.
    elsewhere = anabranch.connect(warehouse, spark=spark.newSession())
    elsewhere.spark.createDataFrame([], "a INT")
    with supervised(lake) as jobs:

        def hold(*tables):
            return lambda: [values(lake, "db.b"), values(lake, "db.c")] == [*tables]

        until(hold(*right(2)), jobs.about)
        a.create_tag("good")
        append(a, 2, 2, factor=100)
        until(lambda: len(values(lake, "db.c")) == 4, jobs.about)
        a.create_branch("fix", "good")
        append(a.branch("fix"), 2, 2)
        a.replace_main_branch("fix")
        until(lambda: jobs.state("b") == "held", jobs.about)
        assert "main of 'db.a' was replaced" in jobs.last["b"].message
        assert "anabranch cascade db.a" in jobs.last["b"].hint
        assert jobs.state("c") == "running"

        assert run_cascade(elsewhere, "db.a", JOBS).group is not None
        assert hold(*right(4))(), "what the cascade published"
        append(a, 4, 3)
        until(hold(*right(7)), jobs.about)
        assert {jobs.state("b"), jobs.state("c")} == {"running"}

        if is_taken_back:
            # The jobs write to other mains then, and are held until that is put right again.
            undo_cascade(lake, table="db.a")
            assert run_cascade(elsewhere, "db.a", JOBS).group is not None
            append(a, 7, 1)
            until(hold(*right(8)), jobs.about)
    assert {status.state.value for status in jobs.last.values()} == {"stopped"}


CHAIN = "abcde"
FILE = """
import pytest

import anabranch

for before, after in zip("abcd", "bcde"):
    anabranch.sql_job(
        f"make-{after}",
        "SELECT id, v + 1 AS v FROM source",
        sources={"source": f"db.{before}"},
        sink=f"db.{after}",
        trigger="1 second",
    )
"""


class Command:
    """`anabranch` in a process of its own."""

    def __init__(self, warehouse, out, *words):
        self.out = out
        with out.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", "-w", warehouse, *words], stdout=file, stderr=file
            )

    def said(self):
        return self.out.read_text()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def states(self):
        """The last state of each job, and how it was told of it."""
        lines = [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]
        return {line["job"]: line["state"] for line in lines}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_real_processes_that_are_killed_in_between(tmp_path):
    """Five tables in a chain: the one at the head is corrected while jobs run, and everything dies once."""
    warehouse = str(tmp_path / "lake")
    lake = anabranch.connect(warehouse)
    lake.create_database("db")
    for name in CHAIN:
        lake.create_table(f"db.{name}", COLUMNS)
    a, file = lake.table("db.a"), tmp_path / "jobs.py"
    file.write_text(FILE)

    def is_right(count):
        return [values(lake, f"db.{name}") for name in CHAIN] == [
            [(i, i + number) for i in range(count)] for number in range(len(CHAIN))
        ]

    def started(number):
        return Command(warehouse, tmp_path / f"run-{number}", "run", str(file), "--json")

    def cascade(number):
        out = tmp_path / f"cascade-{number}"
        hook = f"sh -c 'echo $ANABRANCH_EVENT $ANABRANCH_TABLE $ANABRANCH_MESSAGE >> {tmp_path}/told'"
        return Command(warehouse, out, "cascade", "db.a", "--jobs", str(file), "--run", "--hook", hook)

    append(a, 0, 2)
    running = started(1)
    try:
        until(lambda: is_right(2), running.said)
        a.create_tag("good")
        append(a, 2, 2, factor=100)
        until(lambda: len(values(lake, "db.e")) == 4, running.said)
        a.create_branch("fix", "good")
        append(a.branch("fix"), 2, 2)
        a.replace_main_branch("fix")
        until(lambda: running.states().get("make-b") == "held", running.said)
        running.kill()
        running = started(2)
        correction = cascade(1)
        until(lambda: "db.c: running make-c" in correction.said(), correction.said)
        correction.kill()
        correction = cascade(2)
        assert correction.process.wait(600) == 0, correction.said()
        assert (tmp_path / "told").read_text() == "published db.a db.b, db.c, db.d, db.e\n"
        until(lambda: is_right(4), running.said)
        append(a, 4, 3)
        until(lambda: is_right(7), running.said)
        running.kill()
        append(a, 7, 1)
        running = started(3)
        until(lambda: is_right(8), running.said)
    finally:
        running.process.terminate()
        running.process.wait(120)
