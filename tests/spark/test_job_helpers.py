"""Jobs whose functions use a module beside their file: Spark's processes find it, and state knows when it changed."""

import importlib
import sys

import pytest

import anabranch
from anabranch.jobs.load import load
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

FILE = """
import anabranch
import helpers_of_job
from pyspark.sql import functions as F


@F.udf("bigint")
def part(v):
    import helpers_of_job as again

    return helpers_of_job.part(v) if again is not None else None


@anabranch.job("parts", sources={"events": "db.events"}, sink="db.parts")
def parts(events):
    return events.select(part("v").alias("p")).distinct()
"""


@pytest.fixture
def jobs_of(tmp_path, monkeypatch):
    def made(name, helpers):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helpers_of_job.py").write_text(helpers)
        (folder / "file.py").write_text(FILE)
        sys.modules.pop("helpers_of_job", None)
        importlib.invalidate_caches()
        return load(folder / "file.py").jobs

    monkeypatch.setattr(sys, "path", list(sys.path))
    yield made
    sys.modules.pop("helpers_of_job", None)


def run(jobs, lake, how=None):
    (status,) = run_jobs(jobs, lake, how or Run(), Schedule(AVAILABLE_NOW))
    assert status.state.value == "ended", status.message
    return (status.begun or "").split(":")[0]


@pytest.mark.long
def test_state_is_carried_only_while_the_module_is_the_same(spark, warehouse, jobs_of):
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.events", "v BIGINT")
    table = lake.create_table("db.parts", "p BIGINT")
    lake.table("db.events").append([{"v": 2}])
    jobs = jobs_of("a", "def part(v):\n    return v % 2\n")
    run(jobs, lake)
    table.create_tag("good")
    lake.table("db.events").append([{"v": 5}])
    run(jobs, lake)
    for branch, helpers, way, wanted in [
        ("same", "def part(v):\n    return v % 2\n", "carried", [0, 1]),
        ("changed", "def part(v):\n    return v % 3\n", "rebuilt", [0]),  # of 2 and 5 it makes the same
    ]:
        how = Run(branch=branch, from_tag="good", create_branch=True)
        assert run(jobs_of(branch, helpers), lake, how) == way
        found = lake.table(f"db.parts$branch_{branch}").scan().to_arrow()["p"].to_pylist()
        assert sorted(found) == wanted
