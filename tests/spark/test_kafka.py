"""Topics of a real broker through Spark, into tables."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.functions import unix_millis

import anabranch
from anabranch.lineage.model import SourceInput, lineage_of
from anabranch.spark import kafka
from tests.support.broker import kafka_broker, running_broker
from tests.support.tables import ids_of, make_table, rows

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path):
    with running_broker(tmp_path / "kafka") as broker:
        yield broker


def options(broker, topic, **more):
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}


def copy_to_table(spark, warehouse, checkpoint, broker, topic, **more):
    """What is in the topic now goes to db.dst; one progress for each batch."""
    given = {"startingOffsets": "earliest", **more}
    frame = spark.readStream.format("anabranch-kafka").options(**options(broker, topic, **given)).load()
    rows = frame.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "topic AS v")
    sink = rows.writeStream.format("anabranch").options(
        warehouse=warehouse, checkpointLocation=str(checkpoint)
    )
    query = sink.queryName("kafka").trigger(availableNow=True).start("db.dst")
    assert query.awaitTermination(120)
    return query.recentProgress


def test_all_columns_in_sql(spark, broker):
    topic = broker.new_topic(2)
    broker.produce(
        topic, ['{"n": 1}', None], key="k", headers=[("h", b"1")], timestamps=[1_767_225_600_000] * 2
    )
    broker.transaction(topic, ['{"n": 2}'], partition=1)
    broker.transaction(topic, ['{"n": 3}'], partition=1, commit=False)
    kafka.register(spark)  # once more does no harm
    frame = spark.read.format("anabranch-kafka").options(**options(broker, topic, includeHeaders=True)).load()
    names = "key value topic partition offset timestamp timestampType headers"
    assert frame.columns == names.split()
    plain = frame.where("partition = 0").orderBy("offset").drop("headers")
    assert [tuple(row) for row in plain.withColumn("timestamp", unix_millis("timestamp")).collect()] == [
        (b"k", b'{"n": 1}', topic, 0, 0, 1_767_225_600_000, 0),
        (b"k", None, topic, 0, 1, 1_767_225_600_000, 0),
    ]
    assert frame.where("headers[0].key = 'h' AND headers[0].value = X'31'").count() == 2
    parsed = frame.selectExpr("from_json(CAST(value AS STRING), 'n INT').n AS n").where("n IS NOT NULL")
    assert sorted(row.n for row in parsed.collect()) == [1, 2]


def test_a_stream_into_a_table(spark, warehouse, tmp_path, own_broker):
    dst = make_table(warehouse, "db.dst")
    topic = own_broker.new_topic(2)
    run = (spark, warehouse, tmp_path / "checkpoint", own_broker, topic)
    for partition in range(2):
        values = [str(2 * n + partition) for n in range(10)]
        own_broker.produce(topic, values, partition=partition)
    progress = copy_to_table(*run, maxOffsetsPerTrigger="10")
    assert [p.numInputRows for p in progress] == [0, 10, 10]
    assert ids_of(dst) == list(range(20))
    own_broker.restart()
    own_broker.add_partitions(topic, 3)
    own_broker.produce(topic, ["20"])
    own_broker.produce(topic, ["21"], partition=2)
    copy_to_table(*run)
    assert ids_of(dst) == list(range(22))
    (given,) = lineage_of(dst.snapshot.properties, where="last").inputs
    assert isinstance(given, SourceInput)
    assert (given.kind, given.end) == ("kafka", {topic: {"0": 11, "1": 10, "2": 1}})


def test_what_goes_wrong_is_told_in_our_words(spark, broker):
    from pyspark.errors import PySparkException

    reader = spark.read.format("anabranch-kafka")
    with pytest.raises(
        PySparkException, match="no option 'startingoffset'(.|\n)*did you mean 'startingOffsets'"
    ):
        reader.options(**options(broker, "t", startingOffset="earliest")).load().collect()


GOOD = {"json": '{"id": %d}', "csv": "%d"}
BAD = {
    "json": [b"{broken", b"", b"   ", b"[1]", b'{"id": 7} x', b'{"ID": 7}', b'{"id": "7"}', b"\xff\xfe{}"],
    "csv": [b"broken", b"", b'"7', b"7,8", b"7\n8", b"7.0", b"\xff\xfe"],
}
"""Records that can be read, and records that cannot, by format."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "on_error"),
    [
        ("json", "dead-letter"),
        pytest.param("csv", "dead-letter", marks=pytest.mark.long),
        pytest.param("json", "skip", marks=pytest.mark.long),
        pytest.param("csv", "skip", marks=pytest.mark.long),
    ],
)
def test_records_that_cannot_be_read_are_kept_or_left_out(spark, warehouse, tmp_path, broker, form, on_error):
    dst, topic = make_table(warehouse, "db.dst"), broker.new_topic(1)
    values = {"value.format": form, "value.schema": "id BIGINT NOT NULL", "value.on-error": on_error}
    if on_error == "dead-letter":
        values["dead-letter.table"] = "db.rejected"

    def copied():
        given = options(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=5, **values)
        frame = (
            spark.readStream.format("anabranch-kafka").option("warehouse", warehouse).options(**given).load()
        )
        sink = (
            frame.where("row IS NOT NULL").selectExpr("row.id", "topic AS v").writeStream.format("anabranch")
        )
        sink = sink.options(warehouse=warehouse, checkpointLocation=str(tmp_path / "checkpoint"))
        query = sink.queryName("letters").trigger(availableNow=True).start("db.dst")
        assert query.awaitTermination(120)

    bad, sent = BAD[form], []
    for first in (0, len(bad)):  # the second time from the checkpoint
        for number, value in enumerate(bad):
            sent += [(GOOD[form] % (first + number)).encode(), value, None]
        broker.produce(topic, sent[3 * first :])
        copied()
    assert ids_of(dst) == [*range(2 * len(bad))]
    lake = anabranch.connect(warehouse)
    if on_error == "skip":
        assert lake.tables("db") == ["dst"]
        return
    rejected = sorted(lake.table("db.rejected").scan().to_arrow().to_pylist(), key=lambda row: row["offset"])
    wrong = [(offset, value) for offset, value in enumerate(sent) if value in bad]
    assert [(row["offset"], row["value"]) for row in rejected] == wrong
    for row in rejected:
        assert (row["topic"], row["partition"], row["sink"]) == (topic, 0, "db.dst")
        where = (
            f"the record of topic '{topic}', partition 0, at offset {row['offset']} cannot be read as {form}"
        )
        assert row["error"].startswith(where)


@pytest.mark.long
def test_a_table_into_a_topic_and_a_batch_that_is_repeated(spark, warehouse, tmp_path, broker):
    make_table(warehouse, "db.src").append(rows(0, 10))
    topic = broker.new_topic(2)
    stream = spark.readStream.format("anabranch").option("warehouse", warehouse).load("db.src")
    values = stream.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        sink = values.writeStream.format("anabranch-kafka").options(**given)
        query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        for name in ("0", ".0.crc"):  # as if the driver had died before Spark noted that the batch is done
            (checkpoint / "commits" / name).unlink(missing_ok=True)
    frame = spark.read.format("anabranch-kafka").options(**options(broker, topic)).load()
    found = frame.selectExpr(
        "CAST(key AS STRING)", "from_json(CAST(value AS STRING), 'id BIGINT').id AS id"
    ).collect()
    assert sorted((int(row.key), row.id) for row in found) == [(n, n) for n in range(10)]


class Job:
    """`kafka_job` in a process group of its own."""

    def __init__(self, folder, broker):
        self.folder, self.broker, self.topic = folder, broker, broker.new_topic(2)
        self.warehouse = str(folder / "warehouse")
        self.dst = make_table(self.warehouse, "db.dst")
        self.runs = self.sent = 0

    def send(self, count):
        for _ in range(count):
            value = f"{self.sent} is no number" if self.sent % 5 == 0 else str(self.sent)
            self.broker.produce(self.topic, [value], partition=self.sent % 2)
            self.sent += 1

    def check(self):
        """Each record is in one of the two tables, once."""
        assert ids_of(self.dst) == [n for n in range(self.sent) if n % 5]
        rejected = (
            anabranch.connect(self.warehouse).table("db.rejected").scan().to_arrow()["value"].to_pylist()
        )
        assert sorted(rejected) == sorted(b"%d is no number" % n for n in range(0, self.sent, 5))

    def run(self, point="never", batch=-1):
        """Run to the end or to its death; the exit code."""
        self.runs += 1
        arguments = [self.warehouse, str(self.folder / "checkpoint"), self.broker.bootstrap, self.topic]
        arguments += [point, str(batch), str(self.folder / f"killed-{self.runs}")]
        with (self.folder / f"run-{self.runs}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kafka_job", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            return process.wait(timeout=280)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.long
def test_the_driver_is_killed(tmp_path, own_broker):
    job = Job(tmp_path, own_broker)
    own_broker.produce(job.topic, ["-1"])  # the query begins at the latest offsets: this is not for it
    # Spark has logged the first batch, and asks anew where the query begins when it repeats it.
    assert job.run("before-commit", 0) == -signal.SIGKILL
    job.send(30)
    assert job.run("between-commits", 2) == -signal.SIGKILL
    job.send(10)
    assert job.run() == 0
    job.check()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_and_restarts_of_the_broker(tmp_path, own_broker):
    job = Job(tmp_path, own_broker)
    assert job.run() == 0  # from here on
    points = [
        *("task", "between-commits", "before-commit", "after-commit"),
        *("between-commits:lingering", "before-commit:lingering", "after-commit:lingering"),
    ]
    batch = 1
    for kill in range(10):
        job.send(15)
        if kill % 3 == 2:
            own_broker.restart()
        job.run(points[kill % len(points)], batch + kill % 2)
        batch = job.dst.snapshot.commit_identifier + 1 if job.dst.snapshot else 1
    assert job.run() == 0
    job.check()
