"""Statements of the proposals, as they stand there, through ``lake.sql``."""

import datetime as dt

import pytest

import anabranch
import anabranch.spark
from tests.spark.statements import Rows, run

pytestmark = pytest.mark.spark

SCALABLE = """CREATE TABLE MyTable (
    product_id BIGINT,
    price DOUBLE,
    sales BIGINT
) WITH (
    'bucket' = '-1'
);"""
QUEUE = """CREATE TABLE Queue (
    product_id BIGINT,
    price DOUBLE,
    sales BIGINT
) WITH (
    'bucket' = '8',
    'bucket-key' = 'product_id'
);"""
EVENTS = """CREATE TABLE T (
    `user` BIGINT,
    product STRING,
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH ('bucket' = '-1');"""
WINDOWS = """-- launch a bounded streaming job to read paimon_table
SELECT window_start, window_end, COUNT(`user`) FROM TABLE(
 TUMBLE(TABLE T, DESCRIPTOR(order_time), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end;"""


def _counted(windows):
    return f"SELECT window_start, window_end, COUNT(`user`) FROM TABLE({windows}) GROUP BY window_start, window_end"


def _window(begin, end, count):
    return dt.datetime(2024, 1, 1, 0, begin), dt.datetime(2024, 1, 1, 0, end), count


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    return anabranch.connect(str(tmp_path_factory.mktemp("lake-sql")), spark=spark.newSession())


def test_the_statements_of_the_proposals(lake):
    run(lake.sql, [
        (SCALABLE, []),
        (QUEUE, []),
        (EVENTS, []),
        ("INSERT INTO MyTable VALUES (1, 2.5, 3)", []),
        ("INSERT INTO Queue SELECT * FROM MyTable", []),
        ("SELECT * FROM Queue", [(1, 2.5, 3)]),
        ("INSERT INTO T SELECT id, 'p', timestamp_ntz'2024-01-01' + make_dt_interval(0, 0, id * 6) FROM range(3)", []),
        (WINDOWS, Rows([(dt.datetime(2024, 1, 1, 0, 0), dt.datetime(2024, 1, 1, 0, 10), 2),
                        (dt.datetime(2024, 1, 1, 0, 10), dt.datetime(2024, 1, 1, 0, 20), 1)])),
        (_counted("CUMULATE(TABLE T, DESCRIPTOR(order_time), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)"),
         Rows([_window(0, 5, 1), _window(0, 10, 2), _window(10, 15, 1), _window(10, 20, 1)])),
        (_counted("SESSION(TABLE T, DESCRIPTOR(order_time), INTERVAL '6' MINUTES)"), Rows([_window(0, 18, 3)])),
        (_counted("SESSION(TABLE T, DESCRIPTOR(order_time), INTERVAL '5' MINUTES)"),
         Rows([_window(0, 5, 1), _window(6, 11, 1), _window(12, 17, 1)])),
        (_counted("SESSION(TABLE T PARTITION BY (`user` % 2, product), DESCRIPTOR(order_time), INTERVAL '7' MINUTES)"),
         Rows([_window(0, 7, 1), _window(6, 13, 1), _window(12, 19, 1)])),
        ("SELECT * FROM MyTable VERSION AS OF 'snapshot.1'", [(1, 2.5, 3)]),
        ("SELECT count(*) FROM MyTable /*+ OPTIONS('scan.snapshot-id' = '1') */ AS x", [(1,)]),
        ("SELECT snapshot_id FROM default.MyTable.snapshots", [(1,)]),
        ("SELECT count(*) FROM Queue JOIN lake.default.Queue.files ON true", [(1,)]),
        ("DESCRIBE HISTORY MyTable LIMIT 3", None),
        ("OPTIMIZE MyTable ZORDER BY (price)", "anabranch sort-compact MyTable --order-by price"),
        ("VACUUM default.MyTable", "anabranch expire-snapshots default.MyTable"),
        ("CREATE TABLE kafka_table (a INT) WITH ('connector' = 'kafka')", "of which topic"),
    ])  # fmt: skip
    assert [row["version"] for row in lake.sql("DESCRIBE HISTORY MyTable LIMIT 3").collect()] == [1]
    (detail,) = lake.sql("DESCRIBE DETAIL default.MyTable").collect()
    assert (detail["name"], detail["numFiles"], detail["partitionColumns"]) == ("default.MyTable", 1, [])
    assert (lake.table("default.MyTable").schema.bucket, lake.table("default.Queue").schema.bucket) == (-1, 8)
    assert lake.table("default.T").snapshot.watermark is not None


def test_the_current_catalog_of_the_session_stays(lake):
    spark = lake.spark
    before = (spark.catalog.currentCatalog(), spark.catalog.currentDatabase())
    run(lake.sql, [
        ("CREATE DATABASE db", []),
        ("USE db", []),
        ("CREATE TABLE u (a INT)", []),
        ("SHOW TABLES", [("db", "u", False)]),
        ("SELECT * FROM nope", "cannot be found"),
        ("USE default", []),
    ])  # fmt: skip
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == before


def test_what_the_lake_refuses_is_raised_as_itself(lake):
    lake.create_table("default.only", "id BIGINT")
    with pytest.raises(anabranch.UnsupportedFeatureError, match="tables are append-only"):
        lake.sql("DELETE FROM only")
    with pytest.raises(anabranch.NotFoundError, match="snapshot 3 does not exist"):
        lake.sql("SELECT * FROM only VERSION AS OF 3")
    with pytest.raises(anabranch.UnsupportedFeatureError, match="DELETE is for Spark"):
        anabranch.connect(lake.url).sql("DELETE FROM only")


def test_two_lakes_in_one_session(lake, tmp_path):
    other = anabranch.connect(str(tmp_path), spark=lake.spark)
    run(
        other.sql,
        [("CREATE TABLE t (a INT)", []), ("INSERT INTO t VALUES (5)", []), ("SELECT * FROM t", [(5,)])],
    )
    run(lake.sql, [("CREATE TABLE t (a INT)", []), ("SELECT * FROM t", [])])
