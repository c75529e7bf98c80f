"""Jobs on a standalone cluster whose executors and drivers are killed, with speculation and dynamic allocation: every row once."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

import anabranch
from tests.spark.elsewhere import ROOT
from tests.support.clusters import standalone, stop

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOBS = """
import os, time
import anabranch
from pyspark import TaskContext
from pyspark.sql import functions as F

@F.udf("bigint")
def slowly(k):
    task = TaskContext.get()
    if os.environ["SPARK_LOCAL_IP"] == {broken!r}:
        with open(os.path.join({folder!r}, "broken"), "a") as file:
            file.write(f"{{task.partitionId()}} {{task.attemptNumber()}}\\n")
        raise OSError("the disk of this machine is broken")
    if k == 7:
        with open(os.path.join({folder!r}, "attempts"), "a") as file:
            file.write(f"{{task.partitionId()}} {{task.attemptNumber()}}\\n")
        if task.attemptNumber() == 0:
            time.sleep({seconds})
    return k

@anabranch.job("copies", sources={{"events": "db.events"}}, sink="db.copies")
def copies(events):
    return events.repartition(4).select(slowly("k").alias("k"))

@anabranch.job("firsts", sources={{"events": "db.events"}}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["k"])
"""
SMALL = {
    "spark.executor.memory": "450m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "20",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
}
EXCLUDING = {
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "1",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "1",
}


@pytest.fixture
def cluster(tmp_path):
    """Of two hosts, for Spark starts a task a second time on another host only."""
    with standalone(tmp_path, ("127.0.0.1", "127.0.0.2"), cores=1, memory="800m") as master:
        yield master
    for driver in Driver.started:  # those of a test that failed still run
        if driver.process.poll() is None:
            driver.kill()
    Driver.started.clear()


@pytest.fixture
def lake(tmp_path):
    lake = anabranch.connect(str(tmp_path / "lake"))
    for table in ("events", "copies", "firsts"):
        lake.create_table(f"db.{table}", "k BIGINT")
    return lake


class Driver:
    """`anabranch run` in a process group of its own."""

    started: ClassVar = []

    def __init__(self, lake, tmp_path, master, conf, *words, seconds=3, broken=None):
        jobs = tmp_path / "jobs.py"
        jobs.write_text(JOBS.format(folder=str(tmp_path), seconds=seconds, broken=broken))
        settings = [word for key, value in {**SMALL, **conf}.items() for word in ("--conf", f"{key}={value}")]
        self.log = tmp_path / "run.log"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", "-w", lake.url, "run", str(jobs), "--master", master,
                 *settings, *words],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.started.append(self)

    def kill(self):
        stop(self.process)

    def ends(self, seconds=300):
        assert self.process.wait(seconds) == 0, self.log.read_text()[-4000:]


def executors(tmp_path):
    """Process ids of the cluster's executors, which work in its folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (tmp_path / "work") in Path(os.readlink(process / "cwd")).parents:
                command = (process / "cmdline").read_bytes()
                found += [int(process.name)] if b"CoarseGrainedExecutorBackend" in command else []
        except OSError:
            continue
    return found


def rows_of(lake, title):
    return Counter(lake.table(title).scan().to_arrow()["k"].to_pylist())


def check(lake, numbers):
    assert rows_of(lake, "db.copies") == Counter(numbers)
    assert rows_of(lake, "db.firsts") == Counter(set(numbers))


def test_speculation_writes_every_row_once(cluster, lake, tmp_path):
    numbers = [*range(40), *range(8, 18)]  # the 7 once
    lake.table("db.events").append([{"k": k} for k in numbers])
    Driver(lake, tmp_path, cluster, SPECULATION, "--available-now", seconds=20).ends()
    check(lake, numbers)
    attempts = {tuple(line.split()) for line in (tmp_path / "attempts").read_text().splitlines()}
    assert any(attempt != "0" for _, attempt in attempts), "no task was run twice"


def test_a_host_that_fails_is_excluded(cluster, lake, tmp_path):
    numbers = [*range(40), *range(8, 18)]
    lake.table("db.events").append([{"k": k} for k in numbers])
    Driver(
        lake, tmp_path, cluster, EXCLUDING, "--available-now", "--max-restarts", "0", seconds=0, broken="127.0.0.2"
    ).ends()  # fmt: skip
    check(lake, numbers)
    failures = (tmp_path / "broken").read_text().splitlines()
    assert 1 <= len(failures) <= 2, "a host that is not excluded is tried again and again"


@pytest.mark.parametrize("conf", [{}, {**SPECULATION, **DYNAMIC}], ids=["plain", "speculation and dynamic"])
def test_executors_and_drivers_are_killed(cluster, lake, tmp_path, conf):
    chance = random.Random(7)
    numbers, killed = [], Counter()
    driver = Driver(lake, tmp_path, cluster, conf, seconds=1)
    deadline = time.monotonic() + 400
    try:
        while killed["executor"] < 4 or killed["driver"] < 2:
            assert time.monotonic() < deadline, killed
            more = [chance.randrange(1000) for _ in range(20)]
            lake.table("db.events").append([{"k": k} for k in more])
            numbers += more
            time.sleep(chance.uniform(1, 5))
            running, dice = executors(tmp_path), chance.random()
            if running and dice < 0.25:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(running), signal.SIGKILL)
                    killed["executor"] += 1
            elif running and dice < 0.4:
                driver.kill()
                killed["driver"] += 1
                driver = Driver(lake, tmp_path, cluster, conf, seconds=1)
    finally:
        driver.kill()
    Driver(lake, tmp_path, cluster, conf, "--available-now", seconds=0).ends()
    check(lake, numbers)
