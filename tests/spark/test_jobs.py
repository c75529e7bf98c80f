"""Jobs run by Spark: on main, on a branch, from a tag; several of them; and what comes of failures."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException

import anabranch
from anabranch.jobs.failure import as_ours, verdict
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.supervise import State
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.lake import Lake
from anabranch.lineage.model import lineage_of
from anabranch.storage.open import open_storage
from tests.spark.conftest import CONF
from tests.support.broker import kafka_broker

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
COLUMNS = "id BIGINT, v BIGINT"
NOW = Schedule(AVAILABLE_NOW, Policy(most=0))
FIX = Run(branch="fix", from_tag="good", create_branch=True)


@pytest.fixture
def lake(spark, warehouse):
    """The shared session is attached to another warehouse: jobs name theirs wherever they read or write."""
    lake = Lake(open_storage(warehouse), spark=spark)
    for name in ("db.raw", "db.orders", "db.daily"):
        lake.create_table(name, COLUMNS)
    return lake


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def arrive(lake, *ids):
    lake.table("db.raw").append([{"id": i, "v": i % 10} for i in ids])


def contents(lake, name="db.orders"):
    return sorted((r["id"], r["v"]) for r in lake.table(name).scan().to_arrow().to_pylist())


def job(function, name="clean", sink="db.orders", sources=None, **how):
    return anabranch.job(name, sources=sources or {"raw": "db.raw"}, sink=sink, **how)(function)


def done(lake, *jobs, run=None, schedule=NOW):
    statuses = run_jobs(jobs, lake, run, schedule)
    assert [s.state for s in statuses] == [State.ENDED] * len(jobs), statuses
    return statuses


def failed(lake, *jobs, run=None):
    (status,) = run_jobs(jobs, lake, run, NOW)
    return status


@pytest.mark.long  # in short, by one command: test_correction_calls and test_state_cascade
def test_the_story_of_a_correction(lake):
    faulty = job(lambda raw: raw.where("v < 8").selectExpr("id", "v + 100 AS v"))
    arrive(lake, *range(10))
    done(lake, faulty)
    lake.table("db.orders").create_tag("good")
    arrive(lake, *range(10, 20))
    arrive(lake, *range(20, 30))
    done(lake, faulty)
    main = contents(lake)
    assert [i for i, _ in main] == [i for i in range(30) if i % 10 < 8]

    # The first batch is planned, and dies. Repeated, it is the same, whatever has come meanwhile and was taken away.
    breaking = job(lambda raw: raw.selectExpr("id", "CAST(raise_error('died') AS BIGINT) AS v"))
    assert "died" in failed(lake, breaking, run=FIX).message
    lake.table("db.orders").delete_tag("good")
    lake.table("db.orders").create_tag("good", snapshot=1)
    arrive(lake, 30, 31)
    (status,) = done(lake, faulty, run=FIX)
    assert status.sink == "db.orders$branch_fix"
    assert contents(lake, "db.orders$branch_fix") == [*main, (30, 100), (31, 101)]
    assert lake.table("db.orders").branch_lag("fix").has_caught_up

    right = job(lambda raw: raw.where("v < 8"))
    done(lake, right, run=Run(branch="right", from_tag="good", create_branch=True))
    assert contents(lake, "db.orders$branch_right") == [
        (i, i % 10 + (100 if i < 10 else 0)) for i in range(32) if i % 10 < 8
    ]
    commits = sorted(lake.table("db.orders$branch_fix").snapshots(), key=lambda s: s.id)
    entry = lineage_of(commits[1].properties, where="")
    assert (entry.job, entry.problems) == ("clean", ())
    assert entry.code.rpartition("+")[2].startswith("sha256:")
    assert [(read.name, read.after, read.through) for read in entry.inputs] == [("db.raw", 1, 3)]


@pytest.mark.long
def test_topics_are_read_from_the_positions_of_the_tag(lake, broker, spark):
    topic = broker.new_topic(2)
    source = anabranch.topic(topic, broker.bootstrap, {"startingOffsets": "earliest"})
    copy = job(
        lambda raw: raw.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "partition * 1L AS v"),
        sources={"raw": source},
    )

    def send(partition, *ids):
        broker.produce(topic, [str(i) for i in ids], partition=partition)

    send(0, 1, 2, 3)
    done(lake, copy)
    lake.table("db.orders").create_tag("good")
    broker.add_partitions(topic, 3)
    send(1, 4, 5)
    send(2, 6)
    send(0, 7)
    done(lake, copy)
    assert contents(lake) == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 2), (7, 0)]
    done(lake, copy, run=FIX)
    assert contents(lake, "db.orders$branch_fix") == contents(lake)
    lag = lake.table("db.orders").branch_lag("fix")
    assert [(s.kind, s.name, s.parts, s.behind) for s in lag.sources] == [("kafka", topic, 3, 0)]
    beginning = json.loads((Path(_path(lake)) / "_checkpoints/clean@fix/anabranch/job.json").read_text())
    assert json.loads(beginning["starts"]["raw"]["startingOffsets"]) == {topic: {"0": 3, "1": 0, "2": 0}}


def _path(lake):
    return lake.url.removeprefix("file://")


def test_a_pipeline_with_sql_lookups_and_a_batch_job(lake):
    arrive(lake, 1, 2, 3)
    lake.create_table("db.names", "v BIGINT, name STRING").append(
        [{"v": 1, "name": "one"}, {"v": 3, "name": "three"}]
    )
    lake.create_table("db.report", "name STRING, rows BIGINT")
    named = anabranch.sql_job(
        "named",
        "SELECT o.id, length(n.name) AS v FROM orders o JOIN names n ON o.v = n.v",
        sources={"orders": "db.orders", "names": anabranch.static("db.names")},
        sink="db.daily",
        trigger="1 second",
    )
    clean = job(lambda raw: raw.where("v <> 2"))
    report = job(
        lambda daily: daily.groupBy().count().selectExpr("'all' AS name", "count AS rows"),
        name="report",
        sink="db.report",
        sources={"daily": anabranch.static("db.daily")},
        mode="overwrite",
    )
    statuses = done(lake, report, named, clean)
    assert [s.job for s in statuses] == ["clean", "named", "report"]
    assert contents(lake, "db.daily") == [(1, 3), (3, 5)]
    done(lake, report)
    assert lake.table("db.report").scan().to_arrow().to_pylist() == [{"name": "all", "rows": 2}]
    entry = lineage_of(lake.table("db.report").snapshot.properties, where="")
    assert entry.job == "report"
    assert 0 < entry.millis < 600_000  # what a plan says that it takes to make it again


def test_failures_are_told_without_traces(lake):
    arrive(lake, 1)
    status = failed(lake, job(lambda raw: raw.where("price > 0")))
    assert status.state is State.FAILED
    assert "price" in status.message
    assert "\n" not in status.message
    status = failed(
        lake, anabranch.sql_job("c", "SELECT * FROM raw, nope", sources={"raw": "db.raw"}, sink="db.orders")
    )
    assert "nope" in status.message
    status = failed(lake, job(lambda raw: raw.selectExpr("id", "'x' AS v"), name="types"))
    assert "v" in status.message


def test_a_job_of_a_replaced_main_is_fenced(lake):
    arrive(lake, 1)
    clean = job(lambda raw: raw)
    done(lake, clean)
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").create_branch("other", "good")
    lake.table("db.orders$branch_other").append([{"id": 9, "v": 9}])
    lake.table("db.orders").replace_main_branch("other", force=True)
    arrive(lake, 2)
    status = failed(lake, clean)
    assert status.state is State.FENCED
    assert "wrote to the main of 'db.orders' that was replaced" in status.message
    assert "end this query" in status.hint


@pytest.mark.long
def test_the_command_line_runs_a_file_until_it_is_told_to_stop(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    raw = lake.create_table("shop.raw", "id BIGINT, price DOUBLE, currency STRING")
    orders = lake.create_table("shop.orders", "id BIGINT, price DOUBLE, currency STRING")
    rates = lake.create_table("shop.rates", "currency STRING, euros DOUBLE")
    in_euros = lake.create_table("shop.in_euros", "id BIGINT, euros DOUBLE")
    rates.append([{"currency": "EUR", "euros": 1.0}, {"currency": "USD", "euros": 0.5}])
    raw.append([{"id": i, "price": p, "currency": "USD"} for i, p in enumerate((4.0, -1.0, 6.0))])
    words = ["-w", str(tmp_path), "run", "examples/order_jobs.py", "--master", "local[2]", "--json"]
    conf = {**CONF, "spark.sql.warehouse.dir": str(tmp_path / "spark-warehouse")}
    words += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "anabranch", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        while in_euros.snapshot is None or not in_euros.snapshot.total_record_count:
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.stdout.close()
    assert {line["job"]: line["state"] for line in told} == {
        "clean-orders": "stopped",
        "orders-in-euros": "stopped",
    }
    assert told[0]["state"] == "running"
    assert sorted(r["id"] for r in orders.scan().to_arrow().to_pylist()) == [0, 2]
    found = sorted((r["id"], r["euros"]) for r in in_euros.scan().to_arrow().to_pylist())
    assert found == [(0, 2.0), (2, 3.0)]


def test_a_fence_is_known_where_the_sink_could_not_give_up_the_batch(spark):
    """Then Spark says of the query only that writing failed; the fence is the cause of the cause."""
    fence = spark._jvm.java.lang.RuntimeException("anabranch.errors.SealedBranchError: 'db.t' was replaced")
    writing = spark._jvm.org.apache.spark.SparkException("Writing job failed.", fence)
    error = StreamingQueryException("Writing job failed.", "", writing)
    assert verdict(error, has_run=True) == "fenced"
    assert as_ours(error).message == "'db.t' was replaced"


@pytest.mark.long
def test_a_job_that_pauses_while_main_is_replaced_does_not_go_on_with_the_work_of_another(lake):
    """It would do so by the code that it was started with, which may be what the replacement was made for."""
    clean = job(lambda raw: raw)
    arrive(lake, 1)
    done(lake, clean)
    lake.table("db.orders").create_tag("good")
    arrive(lake, 2)
    done(lake, clean, run=FIX)
    starts = []

    def wrong(raw):
        starts.append(raw)
        dying = "CAST(raise_error('died') AS BIGINT)" if len(starts) == 1 else "v + 100"
        return raw.selectExpr("id", f"{dying} AS v")

    def replace(event):
        if event.kind == "fail":
            lake.table("db.orders").replace_main_branch("fix", force=True)
            arrive(lake, 3)

    policy = Policy(most=3, first_pause=0.1)
    (status,) = run_jobs([job(wrong)], lake, None, Schedule(AVAILABLE_NOW, policy), on_event=replace)
    assert status.state is State.FENCED
    assert "db.orders" in status.message
    assert contents(lake) == [(1, 1), (2, 2)]

    done(lake, clean)
    assert contents(lake) == [(1, 1), (2, 2), (3, 3)]
