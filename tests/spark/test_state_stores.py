"""State is carried whatever store Spark keeps it in, and wherever a read limit stopped."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor

import anabranch
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import stream
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

STORE = "spark.sql.streaming.stateStore."
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORES = {
    "rocksdb": {"providerClass": ROCKS},
    "changelog": {"providerClass": ROCKS, "rocksdb.changelogCheckpointing.enabled": "true"},
    "ids": {
        "providerClass": ROCKS,
        "rocksdb.changelogCheckpointing.enabled": "true",
        "checkpointFormatVersion": "2",
    },
}


@job("keys", sources={"events": "db.events"}, sink="db.keys")
def keys(events):
    return events.select("k").dropDuplicates(["k"])


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.events", "k BIGINT")
    lake.create_table("db.keys", "k BIGINT")
    return lake


@pytest.fixture
def conf(spark):
    """Sets options of the session for one test."""
    before = {}

    def set_all(options):
        for key, value in options.items():
            before[key] = spark.conf.get(key, None)
            spark.conf.set(key, value)

    yield set_all
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def run(lake, one, how=None):
    statuses = run_jobs([one], lake, how or Run(), Schedule(AVAILABLE_NOW))
    bad = [(s.job, s.message) for s in statuses if s.state.value != "ended"]
    assert not bad, bad
    return (statuses[0].begun or "").split(":")[0]


def rows_of(lake, title):
    return sorted(row["k"] for row in lake.table(title).scan().to_arrow().to_pylist())


@pytest.mark.long
@pytest.mark.parametrize(
    "store", [pytest.param(name, marks=() if name == "ids" else pytest.mark.long) for name in STORES]
)
def test_state_of_rocksdb_is_carried(lake, conf, store):
    conf({STORE + key: value for key, value in STORES[store].items()})
    for number in range(3):
        lake.table("db.events").append([{"k": number}, {"k": number + 1}])
        run(lake, keys)
        if number == 1:
            lake.table("db.keys").create_tag("good")
    assert run(lake, keys, Run(branch="fix", from_tag="good", create_branch=True)) == "carried"
    assert rows_of(lake, "db.keys$branch_fix") == rows_of(lake, "db.keys") == [0, 1, 2, 3]
    lake.table("db.events").append([{"k": 2}, {"k": 5}])
    run(lake, keys, Run(branch="fix"))
    assert rows_of(lake, "db.keys$branch_fix") == [0, 1, 2, 3, 5]


class Counting(StatefulProcessor):
    """Counts the rows of each key, and gives each row its number."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        number = self.count.get()[0] if self.count.exists() else 0
        found = sum(len(frame) for frame in rows)
        self.count.update((number + found,))
        yield pd.DataFrame({"k": [key[0] * 100 + number + one for one in range(found)]})

    def close(self):
        pass


@job("numbers", sources={"events": "db.events"}, sink="db.keys")
def numbers(events):
    return events.groupBy("k").transformWithStateInPandas(Counting(), "k BIGINT", "append", "none")


@pytest.mark.long
def test_state_of_a_processor_is_carried_and_rebuilt(lake, conf, warehouse):
    conf({STORE + "providerClass": ROCKS})
    for number in range(3):
        lake.table("db.events").append([{"k": 1}, {"k": number}])
        run(lake, numbers)
        if number == 0:
            lake.table("db.keys").create_tag("good")
    for way in ("carried", "rebuilt"):
        if way == "rebuilt":
            shutil.rmtree(Path(warehouse) / "_checkpoints" / "numbers" / "anabranch" / "operators")
        assert run(lake, numbers, Run(branch=way, from_tag="good", create_branch=True)) == way
        assert rows_of(lake, f"db.keys$branch_{way}") == rows_of(lake, "db.keys")
    assert rows_of(lake, "db.keys") == [0, 100, 101, 102, 103, 200]


@job("parts", sources={"rows": stream("db.parts", {"read.stream.maxFilesPerTrigger": 1})}, sink="db.keys")
def parts(rows):
    return rows.select("k").dropDuplicates(["k"])


@pytest.mark.long
def test_a_tag_may_lie_inside_a_snapshot_of_a_source(lake, warehouse):
    table = lake.create_table("db.parts", "k BIGINT, p BIGINT", partition_by=["p"])
    table.append([{"k": 1, "p": 1}, {"k": 1, "p": 2}, {"k": 2, "p": 2}, {"k": 3, "p": 3}])
    run(lake, parts)
    lake.table("db.keys").create_tag("good", 1)
    for way in ("carried", "rebuilt"):
        if way == "rebuilt":
            shutil.rmtree(Path(warehouse) / "_checkpoints" / "parts" / "anabranch" / "operators")
        assert run(lake, parts, Run(branch=way, from_tag="good", create_branch=True)) == way
        assert rows_of(lake, f"db.keys$branch_{way}") == rows_of(lake, "db.keys") == [1, 2, 3]
