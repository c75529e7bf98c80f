"""Reading topics of Kafka."""

from __future__ import annotations

from typing import Any

from tests.support.broker import Broker, running_broker

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, benchmark, ratio_to

WORKER = "benchmarks.workers.kafka"
BARE = Contestant("bare consumer", WORKER, ("confluent-kafka",))
COLUMNS = Contestant("Anabranch, one task", WORKER, ("anabranch", "confluent-kafka", "pyarrow"))
SPARK = Contestant("Anabranch in Spark", WORKER, ("anabranch", "confluent-kafka", "pyarrow", "pyspark"))
PARTITIONS = 2
BYTES = 100


@benchmark("kafka", "Reading Kafka", BARE, COLUMNS, SPARK)
def kafka(run: Run) -> list[Row]:
    """A topic on a broker of this machine is read to its end, by a bare consumer that looks at nothing but how many
    records came; by the work of one task, which makes columns of them in Arrow; and by Spark with a task for each
    partition, into a sink that drops them. The broker has the same two cores. In small batches the consumers that
    are kept between them count."""
    records = run.size(600_000, 20_000)
    with running_broker(run.scratch / "broker") as broker:
        run.log(f"  {records:,} records of {BYTES} bytes")
        topic = _fill(broker, records)
        given = {"bootstrap": broker.bootstrap, "topic": topic, "records": records}
        whole = run.measure(
            "all at once",
            "read",
            {
                BARE: {**given, "reader": "bare"},
                COLUMNS: {**given, "reader": "columns"},
                SPARK: {**given, "reader": "spark"},
            },
        )
        pieces = run.measure(
            "in small batches",
            "read",
            {BARE: {**given, "reader": "bare"}, COLUMNS: {**given, "reader": "columns", "step": 10_000}},
        )
    work = f"{records:,} records of {BYTES} bytes in {PARTITIONS} partitions"
    return [
        Row(work, whole, [ratio_to(whole, COLUMNS.name, [BARE.name], 1.5)], _rate(records, whole)),
        Row(
            f"{work}, 10,000 of each in a batch",
            pieces,
            [ratio_to(pieces, COLUMNS.name, [BARE.name], 1.5)],
            _rate(records, pieces),
        ),
    ]


def _rate(records: int, measures: Any) -> str:
    rates = (f"{name}: {records / measure.seconds / 1000:,.0f}" for name, measure in measures.items())
    return "; ".join(rates) + " thousand records a second"


def _fill(broker: Broker, records: int) -> str:
    topic = broker.new_topic(PARTITIONS)
    value = b"x" * BYTES
    for partition in range(PARTITIONS):
        broker.produce(topic, [value] * (records // PARTITIONS), partition=partition, key=b"k")
    broker.restart()  # what it wrote is on disk, and it begins like any other
    return topic
