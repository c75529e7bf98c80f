"""Statements of the proposals about topics and streams, as they stand there."""

import json

import pytest

import anabranch
import anabranch.spark
from tests.spark.statements import Rows, run
from tests.support.broker import kafka_broker
from tests.support.lengths import first_short

pytestmark = pytest.mark.spark

KAFKA_TABLE = """CREATE TABLE kafka_table (
    `user` BIGINT,
    product STRING,
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json');"""
PAIMON_TABLE = """CREATE TABLE paimon_table (
    `user` BIGINT,
    product STRING,
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH ('bucket' = '-1');"""
PLAIN_TABLE = "CREATE TABLE paimon_table (`user` BIGINT, product STRING, order_time TIMESTAMP(3))"
INSERT = """-- launch a streaming insert job
INSERT INTO paimon_table SELECT * FROM kafka_table;"""
BOUNDED = """-- launch a bounded streaming job to read paimon_table
SELECT * FROM paimon_table /*+ OPTIONS('scan.bounded.watermark'='{bound}') */;"""
NEW_YEAR = 1_704_067_200_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def lake(spark, tmp_path):
    return anabranch.connect(str(tmp_path / "warehouse"), spark=spark.newSession())


def order(user, minute):
    return json.dumps({"user": user, "product": "p", "order_time": f"2024-01-01 00:{minute:02}:00.250"})


def defined(lake, broker, **more):
    topic = broker.new_topic()
    text = KAFKA_TABLE.format(topic=topic, servers=broker.bootstrap)
    lake.sql(text.replace("'json'", ", ".join(["'json'", *(f"'{k}' = '{v}'" for k, v in more.items())])))
    return topic


@pytest.mark.parametrize(
    "target", first_short([PAIMON_TABLE, PLAIN_TABLE]), ids=["own watermark", "of the topic"]
)
def test_from_a_topic_to_a_bounded_stream(lake, broker, target, tmp_path):
    topic = defined(lake, broker, **{"dead-letter.table": "default.rejected"})
    lake.sql(target)
    broker.produce(topic, [order(1, 1), None, order(2, 2), "{broken"])
    query = lake.sql(INSERT)
    query.processAllAvailable()
    broker.produce(topic, [order(3, 30), order(9, 1).replace("user", "USER")])
    query.processAllAvailable()
    query.stop()
    rejected = sorted(
        lake.table("default.rejected").scan().to_arrow().to_pylist(), key=lambda row: row["offset"]
    )
    assert [(row["topic"], row["offset"], row["sink"]) for row in rejected] == [
        (topic, offset, "default.paimon_table") for offset in (3, 5)
    ]
    assert rejected[0]["value"] == b"{broken"
    assert f"topic '{topic}', partition 0, at offset 3 cannot be read as json" in rejected[0]["error"]
    assert not list((tmp_path / "warehouse" / "_dead_letters").rglob("*.arrow"))
    table = lake.table("default.paimon_table")
    marks = {s.total_record_count: s.watermark for s in table.snapshots() if s.total_record_count}
    assert marks == {rows: NEW_YEAR + at * 60_000 + 250 - 5000 for rows, at in ((2, 2), (3, 30))}
    broker.produce(topic, [order(4, 31)])
    again = lake.sql(INSERT.replace("SELECT *", "SELECT  *"))
    assert (again.name, again.id) == (query.name, query.id)
    again.processAllAvailable()
    again.stop()
    assert sorted(table.scan(columns=["user"]).to_arrow()["user"].to_pylist()) == [1, 2, 3, 4]
    stream = lake.sql(BOUNDED.format(bound=NEW_YEAR + 10 * 60_000))
    assert stream.isStreaming
    read = stream.writeStream.format("memory").queryName("bounded_orders").start()
    assert read.awaitTermination(240)
    assert sorted(row.user for row in lake.spark.table("bounded_orders").collect()) == [1, 2]


@pytest.mark.long
def test_a_topic_is_a_table_of_the_catalog(lake, broker):
    topic = defined(
        lake, broker, **{"scan.bounded.mode": "latest-offset", "json.ignore-parse-errors": "true"}
    )
    broker.produce(topic, [order(1, 1), "{no json", order(2, 2)])
    spark = lake.spark
    run(lake.sql, [
        ("SHOW TABLES", [("default", "kafka_table", False)]),
        ("DESCRIBE kafka_table", [("user", "bigint", None), ("product", "string", None), ("order_time", "timestamp_ntz", None)]),
        ("SELECT k.`user` FROM default.kafka_table AS k", Rows([(1,), (2,)])),
        ("SELECT count(*) FROM kafka_table a JOIN kafka_table b ON a.`user` = b.`user`", [(2,)]),
        ("SELECT * FROM kafka_table VERSION AS OF 1", "it has no past"),
        ("CREATE TABLE kafka_table (a INT)", "exists already"),
        ("CREATE TABLE kafka_table (a INT) USING parquet", "already exists"),
        ("CREATE TABLE IF NOT EXISTS kafka_table (a INT)", []),
        ("ALTER TABLE kafka_table ADD COLUMN x INT", "definition is not changed"),
        ("INSERT INTO kafka_table SELECT * FROM kafka_table", "which is only read"),
        ("DROP DATABASE default", "has 1 tables: kafka_table"),
        ("CREATE TABLE t (n BIGINT, u BIGINT)", []),
        ("INSERT OVERWRITE t SELECT 1, `user` FROM kafka_table", "cannot replace others"),
        ("INSERT INTO t SELECT `user` FROM kafka_table", "the rows have 1 columns, but they are for 2"),
        ("INSERT INTO t SELECT product, `user` FROM kafka_table", "cannot safely cast string to bigint"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'jdbc')", "there is no connector 'jdbc'"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'kafka')", "'topic'"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'kafka', 'topic' = 't', 'formt' = 'x')", "'formt'"),
    ])  # fmt: skip
    with pytest.raises(Exception, match=r"run the statement with lake\.sql"):
        spark.table("lake.default.kafka_table").collect()
    query = lake.sql("INSERT INTO t WITH ('queryName' = 'named') BY NAME SELECT `user` AS u FROM kafka_table")
    assert query.name == "named"
    assert query.awaitTermination(240)  # the topic is bounded
    assert query.exception() is None
    run(lake.sql, [
        ("SELECT * FROM t", Rows([(None, 1), (None, 2)])),
        ("DROP TABLE kafka_table", []),
        ("DROP TABLE kafka_table", "cannot be found"),
        ("SHOW TABLES", [("default", "t", False)]),
    ])  # fmt: skip
    assert lake.tables("default") == ["t"]
