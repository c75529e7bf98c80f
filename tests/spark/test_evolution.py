"""Schema changes under running queries, and what no query may ask of a table of complete records."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT NOT NULL, n INT"


def rows(*ids, **names):
    columns = {"id": pa.array(ids, pa.int64()), "n": pa.array([i % 100 for i in ids], pa.int32())}
    return pa.table({names.get(name, name): column for name, column in columns.items()})


@pytest.fixture
def tables(lake):
    return lake.create_table("db.src", COLUMNS), lake.create_table("db.dst", COLUMNS)


@pytest.fixture
def start(spark, warehouse, tmp_path):
    """Start the query that copies `db.src` to `db.dst`, or go on with it."""
    running = []

    def begin(change=lambda frame: frame, mode="append"):
        source = spark.readStream.format("anabranch").options(warehouse=warehouse).load("db.src")
        sink = change(source).writeStream.format("anabranch").outputMode(mode).queryName("copy")
        query = sink.options(warehouse=warehouse, checkpointLocation=str(tmp_path / "checkpoint")).start(
            "db.dst"
        )
        running.append(query)
        return query

    yield begin
    for query in running:
        query.stop()


def found(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def failure(query):
    with pytest.raises(PySparkException) as caught:
        query.processAllAvailable()
    return str(caught.value)


@pytest.mark.long
def test_a_running_query_writes_into_what_its_table_has_become(tables, start):
    src, dst = tables
    query = start()
    src.append(rows(1))
    query.processAllAvailable()
    change = dst.alter().add_column("z", "STRING", first=True).drop_not_null("id")
    change.drop_column("n").add_column("n", "BIGINT").apply()
    src.append(rows(2))
    query.processAllAvailable()
    assert found(dst) == [{"z": None, "id": 1, "n": None}, {"z": None, "id": 2, "n": 2}]
    dst.alter().rename_column("n", "m").apply()
    src.append(rows(3))
    assert "column 'n' is not in 'db.dst'" in failure(query)
    assert len(found(dst)) == 2
    start(lambda frame: frame.withColumnRenamed("n", "m")).processAllAvailable()
    assert [row["m"] for row in found(dst)] == [None, 2, 3]


@pytest.mark.long
def test_a_running_query_reads_on_in_its_columns_until_they_cannot_hold_what_comes(tables, start):
    src, dst = tables
    query = start()
    src.append(rows(1))
    query.processAllAvailable()
    src.alter().rename_column("n", "m").add_column("z", "INT", first=True).apply()
    src.append(rows(2, n="m"))
    query.processAllAvailable()
    assert found(dst) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    src.alter().rename_column("m", "n").drop_column("z").widen_column("n", "BIGINT").apply()
    src.append(pa.table({"id": [3], "n": [2**40]}))
    said = failure(query)
    assert "column 'n' is INT, but BIGINT in schema 2" in said
    assert "begin it again; a stream goes on from its checkpoint" in said
    dst.alter().widen_column("n", "BIGINT").apply()
    start().processAllAvailable()
    assert found(dst) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 2**40}]


def test_rows_are_not_updated_by_a_query(tables, start):
    """Spark refuses the output mode by itself, before it asks the data source; `complete` replaces all rows."""
    src, dst = tables
    src.append(rows(1, 2))

    def counted(frame):
        return frame.groupBy("id").agg(functions.count("*").cast("int").alias("n"))

    assert "does not support Update mode" in failure(start(counted, mode="update"))
    assert dst.snapshot is None


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("primary-key", "id"), "tables here hold complete records and have no keys"),
        (("bucket", "4"), "option 'bucket' = '4' was given for one read or write"),
        (("partition.legacy-name", "false"), "where rows lie is a matter of the table"),
    ],
)
def test_a_write_cannot_have_options_that_belong_to_the_table(spark, tables, writing, option, said):
    frame = spark.createDataFrame([(1, 1)], "id BIGINT NOT NULL, n INT")
    with pytest.raises(PySparkException) as caught:
        writing(frame, "db.dst", **dict([option]))
    assert said in str(caught.value)
    assert tables[1].snapshot is None
