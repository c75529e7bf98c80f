"""`anabranch run` in a terminal is asked to end: what is under way is finished, and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import anabranch
from anabranch.jobs.records import jobs_of_warehouse

JOBS = """
import anabranch
import slow_of_signals
from pyspark.sql import functions as F

@F.udf("bigint")
def slowly(k):
    return slow_of_signals.slowly(k)

@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events.select(slowly("k").alias("k"))
"""
BESIDE = """
import pathlib
import time

def slowly(k):
    pathlib.Path(__file__).with_name("at-work").touch()
    time.sleep(3)
    return k
"""
CTRL_C = b"\x03"


def with_tables(folder):
    """A lake with a table to read and one to write."""
    lake = anabranch.connect(str(folder / "warehouse"))
    for table in ("events", "copies"):
        lake.create_table(f"db.{table}", "k BIGINT")
    return lake


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(CTRL_C, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_batch_under_way_is_finished(tmp_path, ask):
    lake = with_tables(tmp_path)
    lake.table("db.events").append([{"k": 1}])
    (tmp_path / "jobs.py").write_text(JOBS)  # which needs a session to be loaded, and a module beside it
    (tmp_path / "slow_of_signals.py").write_text(BESIDE)
    words = ["-w", lake.url, "run", str(tmp_path / "jobs.py"), "--master", "local[1]"]
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "anabranch", *words])
    offsets = tmp_path / "warehouse/_checkpoints/copies/offsets/0"
    wait((tmp_path / "at-work").exists, pid, terminal)  # its only task
    if ask is CTRL_C:
        os.write(terminal, CTRL_C)
    else:
        os.kill(pid, ask)
    status = wait(lambda: False, pid, terminal)
    assert status == 0, said
    assert lake.table("db.copies").scan().to_arrow().to_pylist() == [{"k": 1}]
    assert offsets.with_name("0").parent.parent.joinpath("commits/0").exists()


def jvms_of(pid):
    """The JVMs that a process has started, also where it is gone: their temporary folder has its number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"/anabranch-spark-{pid}-" in (process / "cmdline").read_text():
                found.append(int(process.name))
    return found


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="what runs is told by Linux")
@pytest.mark.parametrize(
    "ask",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_asked_while_spark_starts_nothing_was_done_and_no_jvm_stays(tmp_path, ask):
    lake = with_tables(tmp_path)
    code = "@anabranch.job('copies', sources={'events': 'db.events'}, sink='db.copies')\ndef copies(events):\n    return events\n"
    (tmp_path / "jobs.py").write_text(f"import anabranch\n\n{code}")
    words = [sys.executable, "-m", "anabranch", "-w", lake.url, "run", str(tmp_path / "jobs.py")]
    process = subprocess.Popen([*words, "--master", "local[1]"], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (jvms := jvms_of(process.pid)) and time.monotonic() < end:
        time.sleep(0.02)
    assert jvms
    process.send_signal(ask)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted" in said
    while jvms_of(process.pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not jvms_of(process.pid)
    assert [one.state for one in jobs_of_warehouse(lake.url)] in ([], ["stopped"])


HANGING = """
import anabranch
import slow_of_hanging
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

slowly = F.udf(slow_of_hanging.slowly, LongType())

@anabranch.job("copies", sources={"events": SOURCE}, sink="db.copies")
def copies(events):
    return events.select(slowly("k").alias("k"))
"""


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "limit", "times"),
    [
        ('anabranch.static("db.events")', "3", 1),
        ('anabranch.static("db.events")', "600", 2),
        ('"db.events"', "600", 2),
    ],
    ids=["batch at the limit", "batch asked twice", "stream asked twice"],
)
def test_work_that_does_not_end_is_ended_at_the_limit_or_when_asked_again(tmp_path, source, limit, times):
    lake = with_tables(tmp_path)
    lake.table("db.events").append([{"k": 1}])
    (tmp_path / "jobs.py").write_text(HANGING.replace("SOURCE", source))
    (tmp_path / "slow_of_hanging.py").write_text(BESIDE.replace("sleep(3)", "sleep(600)"))
    words = ["-w", lake.url, "run", str(tmp_path / "jobs.py"), "--master", "local[1]", "--stop-limit", limit]
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "anabranch", *words])
    wait((tmp_path / "at-work").exists, pid, terminal)
    for _ in range(times):
        os.kill(pid, signal.SIGTERM)
        time.sleep(1)
    assert wait(lambda: False, pid, terminal, seconds=90) == 0, said
    assert lake.table("db.copies").snapshot is None


COPY = """
import anabranch

@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies", trigger="1 second")
def copies(events):
    return events
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_second_run_is_refused_takes_over_loses_its_jvm_and_its_reader(tmp_path):
    lake = with_tables(tmp_path)
    lake.table("db.events").append([{"k": 1}])
    (tmp_path / "jobs.py").write_text(COPY)
    words = ["-w", lake.url, "run", str(tmp_path / "jobs.py"), "--master", "local[1]"]

    def start(*more):
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "anabranch", *words, *more], stdout=pipe, stderr=pipe, text=True
        )

    def until(process, text):
        while line := process.stdout.readline():
            if text in line:
                return
        raise AssertionError(process.communicate()[1])

    first = start()
    until(first, "batch 0")
    refused = start()
    _, said = refused.communicate(timeout=60)
    assert refused.returncode == 4
    assert f"is run by process {first.pid}" in said
    second = start("--take-over")
    out, _ = first.communicate(timeout=120)
    assert first.returncode == 4
    assert f"process {second.pid}" in out
    until(second, "running")
    lake.table("db.events").append([{"k": 2}])
    until(second, "batch 1")
    java = subprocess.run(
        ["pgrep", "-P", str(second.pid), "java"], capture_output=True, text=True, check=True
    )
    os.kill(int(java.stdout), signal.SIGKILL)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 5
    assert "Spark's JVM, which ran the job, is gone" in said
    assert "not an error we know" not in said
    third = start()
    until(third, "running")
    third.stdout.close()
    lake.table("db.events").append([{"k": 3}])
    said = third.stderr.read()
    assert third.wait(60) == 141
    assert "nobody reads it: the jobs are stopped" in said
    third.stderr.close()
    assert sorted(lake.table("db.copies").scan().to_arrow()["k"].to_pylist())[:2] == [1, 2]


said: list[bytes] = []


def wait(done, pid, terminal, seconds=150):
    """Until something has happened, or the program has ended: with its exit code then."""
    said.clear()
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + seconds
    while not done():
        try:
            said.append(os.read(terminal, 65536))
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:  # the program has closed its end
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(b"".join(said).decode(errors="replace")[-3000:])
    if done():
        return None
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
