"""Machines of jobs are lost at random moments, with driver, disk and checkpoint, and others go on; the warehouse is on a real S3 server."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter

import pytest

import anabranch
from tests.spark.elsewhere import ROOT
from tests.support.clusters import stop
from tests.support.s3 import running_s3

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.long]

JOBS = """
import anabranch
from pyspark.sql import functions as F

@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events

@anabranch.job("firsts", sources={"copies": "db.copies"}, sink="db.firsts")
def firsts(copies):
    return copies.dropDuplicates(["k"])

@anabranch.job("totals", sources={"events": "db.events"}, sink="db.totals", mode="complete")
def totals(events):
    return events.groupBy((F.col("k") % 5).alias("k")).count().selectExpr("k", "count AS n")
"""
QUIET = ("--conf", "spark.driver.memory=600m", "--conf", "spark.sql.shuffle.partitions=2")


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "s3").mkdir()
    with running_s3(tmp_path / "s3") as server:
        lake = anabranch.connect(server.new_url(), options=server.options)
        for table in ("events", "copies", "firsts"):
            lake.create_table(f"db.{table}", "k BIGINT")
        lake.create_table("db.totals", "k BIGINT, n BIGINT")
        yield lake


class Machine:
    """A machine with a disk of its own, on which the jobs run."""

    def __init__(self, lake, tmp_path, number, *words):
        self.disk = tmp_path / f"disk-{number}"
        self.disk.mkdir()
        jobs = tmp_path / "jobs.py"
        jobs.write_text(JOBS)
        options = [word for pair in lake.storage_options.items() for word in ("--option", "=".join(pair))]
        self.log = tmp_path / "run.log"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", "-w", lake.url, *options, "run", str(jobs),
                 "--master", "local[2]", *QUIET, *words],
                cwd=ROOT, env={**os.environ, "ANABRANCH_CHECKPOINTS": str(self.disk)},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def lose(self):
        stop(self.process)
        deadline = time.monotonic() + 60
        while self.disk.exists():  # a process that is killed may finish the write that it is in
            assert time.monotonic() < deadline
            shutil.rmtree(self.disk, ignore_errors=True)

    def ends(self):
        assert self.process.wait(300) == 0, self.log.read_text()[-4000:]


def numbers_in(lake, title):
    return Counter(lake.table(title).scan().to_arrow()["k"].to_pylist())


@pytest.mark.parametrize("losses", [3, 20])
def test_machines_are_lost_at_random(lake, tmp_path, losses):
    chance = random.Random(22)
    numbers = []

    def add():
        more = [chance.randrange(200) for _ in range(chance.randrange(1, 30))]
        lake.table("db.events").append([{"k": k} for k in more])
        numbers.extend(more)

    def newest():
        snapshot = lake.table("db.copies").snapshot
        return None if snapshot is None else snapshot.id

    for loss in range(losses):
        machine = Machine(lake, tmp_path, loss)
        before, at_work = newest(), loss % 4 != 3
        try:
            deadline = time.monotonic() + 200
            while at_work and newest() == before:
                assert time.monotonic() < deadline
                assert machine.process.poll() is None, machine.log.read_text()[-4000:]
                add()
                time.sleep(chance.uniform(0.2, 2))
            deadline = time.monotonic() + chance.uniform(0, 12)
            while time.monotonic() < deadline:
                add()
                time.sleep(chance.uniform(0.1, 1))
        finally:
            machine.lose()
    add()
    Machine(lake, tmp_path, "last", "--available-now").ends()
    assert numbers_in(lake, "db.copies") == Counter(numbers)
    assert numbers_in(lake, "db.firsts") == Counter(set(numbers))
    totals = {row["k"]: row["n"] for row in lake.table("db.totals").scan().to_arrow().to_pylist()}
    assert totals == Counter(k % 5 for k in numbers)
