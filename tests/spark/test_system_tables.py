"""System tables through Spark: the same columns and rows as from Python."""

import pyarrow as pa
import pytest

from anabranch.system_tables import LAKE_TABLES, SYSTEM_TABLES
from tests.support.lengths import first_short
from tests.support.tables import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake):
    table = lake.create_table(
        "db.t", "id BIGINT NOT NULL, v STRING, dt DATE", partition_by=["dt"], options={"write-only": "true"}
    )
    for start in (0, 3):
        table.append(rows(start, 3))
    return table


def _arrow(frame):
    return frame.toArrow()


@pytest.mark.parametrize("name", first_short(SYSTEM_TABLES, 3))
def test_same_columns_and_rows_as_from_python(reading, table, name):
    expected = table.system(name)
    found = _arrow(reading(f"db.t${name}"))
    assert found.schema.names == expected.schema.names
    assert _plain(found) == _plain(expected)


@pytest.mark.parametrize("name", first_short(LAKE_TABLES))
def test_tables_of_the_warehouse(reading, lake, table, name):
    with lake.job("copy"):
        table.append(table.scan().to_arrow())
    found = _arrow(reading(f"sys.{name}"))
    assert found.num_rows
    assert _plain(found) == _plain(lake.system(name))
    assert found.schema.names == [f.name for f in LAKE_TABLES[name]]


@pytest.mark.long
def test_a_moment_a_filter_and_columns(reading, table):
    files = reading("db.t$files")
    assert files.count() == 2
    assert files.filter("record_count > 100").count() == 0
    assert reading("db.t$files", scan__snapshot_id=1).count() == 1
    chosen = reading(
        "db.t$snapshots", scan__columns="commit_kind,snapshot_id", scan__filter="snapshot_id = 2"
    )
    assert [tuple(row) for row in chosen.collect()] == [("APPEND", 2)]


def test_by_path_and_on_a_branch(spark, warehouse, reading, table):
    path = f"{warehouse}/db.db/t"
    assert spark.read.format("anabranch").load(f"{path}$files").count() == 2
    table.context.storage.put(
        "branch/branch-fix/schema/schema-0", table.context.storage.get("schema/schema-0")
    )
    assert reading("db.t$branch_fix$snapshots").count() == 0
    assert reading("db.t$snapshots", branch="fix").count() == 0
    assert reading("db.t$branches").collect()[0].branch_name == "fix"


@pytest.mark.long
def test_what_is_refused(spark, warehouse, reading, writing, table):
    with pytest.raises(Exception, match="did you mean 'files'"):
        reading("db.t$fles")
    with pytest.raises(Exception, match=r"sys\.jobs"):
        reading("sys.job")
    with pytest.raises(Exception, match="tells what there is now"):
        reading("db.t$tags", scan__snapshot_id=1).collect()
    with pytest.raises(Exception, match="only be read"):
        writing(spark.range(1), "db.t$files")
    stream = spark.readStream.format("anabranch").option("warehouse", warehouse)
    with pytest.raises(Exception, match="not as a stream"):
        stream.load("db.t$files").writeStream.format("noop").start().processAllAvailable()


def _plain(table):
    """Rows whose times are compared as moments, whatever the session's zone calls them."""
    utc = [
        f.with_type(pa.timestamp("us", "UTC" if f.type.tz else None)) if pa.types.is_timestamp(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(utc)).to_pylist()
