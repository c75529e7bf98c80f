"""Jobs of a warehouse in an object store, which Spark has no connector for: their machines may be lost at any time."""

import pickle
import shutil

import pytest
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition

import anabranch
from anabranch.cascade import run_cascade
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.spark.source.system_tables import SystemReader, system_read
from anabranch.spark.types.columns import arrow_schema
from anabranch.storage import open_storage
from anabranch.storage.settings import variables_of
from tests.support.s3 import running_s3

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events


@job("firsts", sources={"copies": "db.copies"}, sink="db.firsts")
def firsts(copies):
    return copies.dropDuplicates(["k"])


@job("totals", sources={"copies": "db.copies"}, sink="db.totals", mode="complete")
def totals(copies):
    return copies.groupBy((F.col("k") % 2).alias("odd")).count().selectExpr("odd AS k", "count AS n")


JOBS = (copies, firsts, totals)


@pytest.fixture
def lake(spark, server, tmp_path, monkeypatch):
    monkeypatch.setenv("ANABRANCH_CHECKPOINTS", str(tmp_path / "disk"))
    lake = anabranch.connect(server.new_url(), spark=spark, options=server.options)
    for table, columns in (("events", "k BIGINT"), ("copies", "k BIGINT"), ("firsts", "k BIGINT")):
        lake.create_table(f"db.{table}", columns)
    lake.create_table("db.totals", "k BIGINT, n BIGINT")
    return lake


def run(lake, *jobs, **how):
    statuses = run_jobs(jobs, lake, Run(**how), Schedule(AVAILABLE_NOW, Policy(most=0)))
    bad = [(s.job, s.message, s.hint) for s in statuses if s.state.value != "ended"]
    assert not bad, bad
    return {s.job: s.begun or "" for s in statuses}


def rows_of(lake, title):
    return sorted(tuple(row.values()) for row in lake.table(title).scan().to_arrow().to_pylist())


def check(lake, numbers, jobs=JOBS):
    assert rows_of(lake, "db.copies") == sorted((n,) for n in numbers)
    assert rows_of(lake, "db.firsts") == sorted({(n,) for n in numbers})
    if totals in jobs:
        assert rows_of(lake, "db.totals") == [(odd, sum(n % 2 == odd for n in numbers)) for odd in (0, 1)]


@pytest.mark.parametrize(
    "losses", [pytest.param(1, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.long)]
)
def test_a_machine_is_lost_and_another_goes_on(lake, tmp_path, losses):
    numbers = []
    for loss in range(losses + 1):
        for part in (loss, loss + 1):
            lake.table("db.events").append([{"k": part}])
            numbers.append(part)
            ways = run(lake, *JOBS)
        check(lake, numbers)
        if loss:
            assert ways["firsts"].startswith("carried"), ways
        shutil.rmtree(tmp_path / "disk")


@pytest.mark.long
def test_the_copy_of_the_state_may_be_behind(lake, tmp_path):
    numbers = [1, 2, 1, 3, 2]
    for place, number in enumerate(numbers):
        lake.table("db.events").append([{"k": number}])
        run(lake, *JOBS)
        copies = open_storage(lake.url, lake.storage_options).scoped("_checkpoints/@copies/firsts")
        if place == 2:
            early = {info.path: copies.get(info.path) for info in copies.list(recursive=True)}
    for info in list(copies.list(recursive=True)):
        copies.delete(info.path)
    for path, data in early.items():
        copies.put(path, data)
    shutil.rmtree(tmp_path / "disk")
    numbers += [4, 5]
    lake.table("db.events").append([{"k": 4}, {"k": 5}])
    ways = run(lake, *JOBS)
    check(lake, numbers)
    assert "once more" in ways["firsts"]


@pytest.mark.long
@pytest.mark.parametrize(
    "jobs", [pytest.param((copies, firsts), id="two"), pytest.param(JOBS, id="all", marks=pytest.mark.long)]
)
def test_a_correction_reaches_what_was_made_of_it(lake, tmp_path, jobs):
    events = lake.table("db.events")
    events.append([{"k": 1}])
    run(lake, *jobs)
    events.create_tag("good")
    events.append([{"k": 1000}])
    run(lake, *jobs)
    events.create_branch("fix", "good")
    events.branch("fix").append([{"k": 2}])
    events.replace_main_branch("fix")
    result = run_cascade(lake, "db.events", jobs)
    assert result.group is not None, [(s.job, s.message) for s in result.failed] or result.waiting
    check(lake, [1, 2], jobs)
    shutil.rmtree(tmp_path / "disk")
    events.append([{"k": 1}, {"k": 3}])
    run(lake, *jobs)
    check(lake, [1, 2, 1, 3], jobs)


@pytest.mark.long
def test_why_spark_does_not_read_by_itself_is_told_once(lake, caplog):
    for title in ("db.copies", "db.firsts"):
        lake.table(title).append([{"k": 1}])
    for _ in range(3):
        assert lake.table("db.copies").scan().to_spark().count() == 1
        assert lake.sql("SELECT count(*) FROM db.copies").first()[0] == 1
    assert lake.table("db.firsts").scan().to_spark().count() == 1
    said = [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]
    assert [line.partition(" ")[0] for line in said] == ["db.copies", "db.firsts"]
    assert all("hadoop-aws, through which Spark reads s3a://, is not installed" in line for line in said), (
        said
    )


@pytest.mark.parametrize("path", ["db.t$snapshots", "sys.tables"])
def test_tasks_open_the_store_of_system_tables_without_settings_of_their_own(server, monkeypatch, path):
    """On a cluster neither the environment of the driver nor its files are theirs."""
    url, told = server.new_url(), variables_of(server.options)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    anabranch.connect(url).create_table("db.t", data=[{"k": 1}])
    read = system_read({"warehouse": url, "path": path})
    reader = pickle.dumps(SystemReader(read, arrow_schema(read.schema.fields)))
    for name in told:
        monkeypatch.delenv(name)
    (batch,) = pickle.loads(reader).read(InputPartition(0))
    assert batch.num_rows == 1
