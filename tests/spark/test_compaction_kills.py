"""Drivers killed with SIGKILL while they commit a compaction: no row is lost and none is there twice."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.tables import ids_of, make_table, rows

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
ROWS_A_RUN = 5


class Job:
    """`compacting_job` in process groups of its own, over one pair of tables."""

    def __init__(self, folder, **options):
        self.warehouse, self.checkpoint, self.log = (
            folder / "warehouse",
            folder / "checkpoint",
            folder / "log",
        )
        self.src = make_table(self.warehouse, "db.src")
        self.dst = make_table(self.warehouse, "db.dst", options={"compaction.max.file-num": "4", **options})
        self.rows = 0

    def run(self, *point):
        """Copy some more rows and compact, or die at that point of the commit; the exit code."""
        for _ in range(ROWS_A_RUN):
            self.src.append(rows(self.rows, 1))
            self.rows += 1
        arguments = map(str, (self.warehouse, self.checkpoint, *point))
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.compacting_job", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(timeout=300)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def calls(self):
        """What the commit of the last run asked of the store, which it survived."""
        survived = re.search(r"^survived (.*)", self.log.read_text(), re.MULTILINE)
        assert survived, self.log.read_text()[-5000:]
        return survived[1].split()


@pytest.mark.parametrize("bucket", ["-1", "1"], ids=["scalable", "queue"])
def test_kills_at_every_call_of_a_compacting_commit(tmp_path, bucket):
    job = Job(tmp_path, bucket=bucket)
    assert job.run() == 0
    points, seen = [], Counter()
    for call in job.calls():
        seen[call] += 1
        points.append(("before", call, seen[call]))
    killed = []
    for point in [*points, ("after", *points[-1][1:])]:
        code = job.run(*point)
        # How often it reads depends on what there is to read.
        killed += [point] if code == -signal.SIGKILL else []
        assert code in (0, -signal.SIGKILL), job.log.read_text()[-5000:]
        ids = job.dst.scan(columns=["id"]).to_arrow()["id"].to_pylist()
        assert (ids if bucket == "1" else sorted(ids)) == list(range(job.dst.snapshot.total_record_count))
    assert {("before", "put_if_absent", 1), ("before", "put_many", 1)} <= set(killed)
    assert len(killed) > len(points) // 2
    assert job.run() == 0
    assert ids_of(job.dst) == list(range(job.rows))
    assert sum(len(split.files) for split in job.dst.scan().plan().splits) <= 2 * ROWS_A_RUN
