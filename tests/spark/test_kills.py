"""Streaming jobs killed with SIGKILL: no row is lost and none is written twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anabranch.lineage.model import lineage_of
from tests.support.tables import ids_of, make_table, rows

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
SNAPSHOTS = 6


class Job:
    """`copy_job` in process groups of its own, over one pair of tables."""

    def __init__(self, folder, way):
        self.folder, self.way = folder, way
        self.warehouse, self.checkpoint = str(folder / "warehouse"), str(folder / "checkpoint")
        self.src = make_table(self.warehouse, "db.src")
        self.dst = make_table(self.warehouse, "db.dst")
        self.kills = 0

    def start(self, point="never", batch=-1):
        self.kills += 1
        arguments = [
            self.warehouse,
            self.checkpoint,
            self.way,
            point,
            str(batch),
            str(self.folder / f"killed-{self.kills}"),
        ]
        with (self.folder / f"run-{self.kills}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.copy_job", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, point="never", batch=-1):
        """Run to the end or to its death; the exit code."""
        process = self.start(point, batch)
        try:
            return process.wait(timeout=120)
        finally:
            self.end(process)

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            process.wait()

    def check(self, snapshots):
        assert ids_of(self.dst) == list(range(snapshots))
        commits = sorted(self.dst.snapshots(), key=lambda s: s.id)
        assert [s.commit_identifier for s in commits] == list(range(len(commits)))
        reached = 0
        for commit in commits:
            entry = lineage_of(commit.properties, where=str(commit.id))
            assert entry.knows_positions  # what was looked up only a living driver can say
            for given in entry.inputs:
                assert given.after == reached
                reached = given.through
        assert reached == snapshots


@pytest.fixture(params=["spark", "python"])
def job(tmp_path, request):
    job = Job(tmp_path, request.param)
    for i in range(SNAPSHOTS):
        job.src.append(rows(i, 1))
    return job


@pytest.mark.long
def test_a_driver_dies_alone(job):
    # Its JVM and this very process go on to commit while the next run starts.
    assert job.run("before-commit:lingering", 1) == -signal.SIGKILL
    assert job.run() == 0
    job.check(SNAPSHOTS)


@pytest.mark.long
def test_kills_at_every_step_of_a_batch(job):
    assert job.run("task", 0) == -signal.SIGKILL
    assert job.run("before-commit", 1) == -signal.SIGKILL
    assert job.run("after-commit", 3) == -signal.SIGKILL
    assert job.run() == 0
    job.check(SNAPSHOTS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_kills(job):
    chance = random.Random(20261121)
    points = ["task", "before-commit", "after-commit", "before-commit:lingering", "after-commit:lingering"]
    total = SNAPSHOTS
    for kill in range(20):
        done = 0 if job.dst.snapshot is None else job.dst.snapshot.commit_identifier + 1
        if kill % 4 == 3:
            process = job.start()
            time.sleep(chance.uniform(4, 12))
            job.end(process)
        else:
            job.run(points[kill % len(points)], done + chance.randint(0, 1))
        job.src.append(rows(total, 1))
        total += 1
    assert job.run() == 0
    job.check(total)
    orphans = {i.path for i in job.dst.context.storage.list("bucket-0")}
    assert len(orphans) >= total  # what a kill leaves behind is for orphan cleaning, never removed on a guess
