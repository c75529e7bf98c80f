"""What a batch of a stream looked up is said in its commit, at the snapshot that it was looked up at."""

import pytest

import anabranch
from anabranch.lineage.model import TableInput, lineage_of
from anabranch.spark.catalog import register_catalog
from anabranch.spark.lineage.lookups import Lookups, ask
from anabranch.storage.open import open_storage

FACTS = "id BIGINT, k BIGINT"
NAMES = "k BIGINT, name STRING"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("lookups") / "warehouse")


@pytest.fixture(scope="module")
def lake(spark, place):
    register_catalog(spark, "looked", {"warehouse": place})
    lake = anabranch.Lake(open_storage(place), spark=spark)
    lake.create_table("db.names", NAMES).append([{"k": 1, "name": "one"}])
    lake.create_table("db.empty", NAMES)
    lake.create_table("db.facts", FACTS).append([{"id": 1, "k": 1}, {"id": 2, "k": 2}])
    return lake


def entry_of(table):
    return lineage_of(table.snapshot.properties, where="test")


def read(inputs):
    return sorted(
        (i.name, "state" if i.is_state else i.after, i.through) if isinstance(i, TableInput) else i.kind
        for i in inputs
    )


@pytest.fixture
def run(spark, lake, place, tmp_path):
    """Take what is there through a function of a frame, into a table of its own; each call goes on."""

    def once(make, name="t", mode="append", each=None):
        if name not in lake.tables("db"):
            lake.create_table(f"db.{name}", "id BIGINT, k BIGINT, name STRING")
        stream = spark.readStream.format("anabranch").option("warehouse", place).load("db.facts")
        writer = make(stream).writeStream.queryName(name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        if each is None:
            query = writer.format("anabranch").option("warehouse", place).start(f"db.{name}")
        else:
            query = writer.foreachBatch(each).start()
        query.awaitTermination()
        return lake.table(f"db.{name}")

    return once


def portable(spark, place, name="db.names"):
    return spark.read.format("anabranch").option("warehouse", place).load(name)


def test_joins_and_subqueries_through_both_doors(spark, lake, place, run):
    facts, names = lake.table("db.facts"), lake.table("db.names")
    both = [("db.facts", 0, facts.snapshot.id), ("db.names", "state", names.snapshot.id)]
    ways = {
        "native": lambda s: s.join(spark.table("looked.db.names"), "k", "left"),
        "portable": lambda s: s.join(portable(spark, place), "k", "left"),
        "broadcast": lambda s: s.join(spark.table("looked.db.names").hint("broadcast"), "k", "left"),
        "cached": lambda s: s.join(portable(spark, place).cache(), "k", "left"),
    }
    for name, make in ways.items():
        table = run(lambda s, make=make: make(s).select("id", "k", "name"), name)
        assert read(entry_of(table).inputs) == both, name
        assert entry_of(table).problems == (), name

    def within(stream):
        stream.createOrReplaceTempView("facts")
        return spark.sql(
            "SELECT id, k, 'x' AS name FROM facts WHERE k IN (SELECT k FROM looked.db.names) "
            "AND id NOT IN (SELECT k FROM looked.db.empty WHERE k IS NOT NULL)"
        )

    table = run(within, "within")
    assert read(entry_of(table).inputs) == sorted([*both, ("db.empty", "state", 0)])
    assert table.scan().to_arrow().num_rows == 1
    # It is no source that a job would go on from.
    (at,) = table.lineage.positions()
    assert [source.name for source in at.sources] == ["db.facts"]


def test_each_batch_says_which_snapshot_it_saw(spark, lake, place, run):
    facts, names = lake.table("db.facts"), lake.table("db.names")

    def make(stream):
        return stream.join(spark.table("looked.db.names"), "k", "left").select("id", "k", "name")

    table = run(make, "later")
    before = names.snapshot.id
    names.append([{"k": 2, "name": "two"}])
    facts.append([{"id": 3, "k": 2}])
    run(make, "later")
    assert [r["name"] for r in table.scan("id = 3").to_arrow().to_pylist()] == ["two"]
    assert read(entry_of(table).inputs)[1] == ("db.names", "state", before + 1)
    # The wrong name reaches the rows of the second batch, and those only.
    assert names.lineage.impact(str(before + 1)).snapshots("db.later") == ((table.snapshot.id,) * 2,)


@pytest.mark.long
def test_batches_that_a_function_writes(spark, lake, place, run):
    out = lake.create_table("db.each", "id BIGINT, k BIGINT, name STRING")

    def each(frame, _):
        frame.createOrReplaceTempView("batch")
        rows = frame.sparkSession.sql("SELECT id, k, name FROM batch")
        out.append(rows)

    run(lambda s: s.join(portable(spark, place), "k", "left").select("id", "k", "name"), "each", each=each)
    assert [name for name, *_ in read(entry_of(out).inputs)] == ["db.facts", "db.names"]
    pandas = lake.create_table("db.pandas", "id BIGINT, k BIGINT, name STRING")

    def through_pandas(frame, _):
        pandas.append(frame.sparkSession.createDataFrame(frame.toPandas(), frame.schema))

    run(
        lambda s: s.join(portable(spark, place), "k", "left").select("id", "k", "name"),
        "pandas",
        each=through_pandas,
    )
    assert [name for name, *_ in read(entry_of(pandas).inputs)] == ["db.facts", "db.names"]


def test_what_is_not_known_is_said(spark, lake, place, run, monkeypatch, tmp_path):
    local = spark.createDataFrame([(1, "one")], "k long, name string")
    table = run(lambda s: s.join(local, "k", "left").select("id", "k", "name"), "program")
    assert "handed over by the program" in entry_of(table).problems[0]
    assert entry_of(table).knows_positions
    assert "cannot be asked" in ask(tmp_path, "q", 1).problems[0]
    assert ask(None, "q", 1).problems
    assert Lookups.from_json(Lookups.unknown("x").to_json()) == Lookups.unknown("x")
