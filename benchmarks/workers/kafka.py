"""A topic to its end: as a bare consumer, as one task of the Kafka source, and through Spark."""

from __future__ import annotations

from typing import Any

from benchmarks.workers.harness import Clock, main

PARTITIONS = 2


def read(
    clock: Clock, bootstrap: str, topic: str, records: int, reader: str, step: int | None = None
) -> dict[str, Any]:
    """Read all records once; the lap begins before the consumer is made, and after Spark is."""
    if reader == "columns":
        rows = _columns(clock, bootstrap, topic, records, step or records)
    else:
        rows = (_bare if reader == "bare" else _spark)(clock, bootstrap, topic, records)
    if rows != records:
        raise RuntimeError(f"{rows} of {records} records")
    return {"rows": rows}


def _bare(clock: Clock, bootstrap: str, topic: str, records: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bare",
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
    }
    with clock.lap():
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        rows = 0
        while rows < records:
            rows += sum(message.error() is None for message in consumer.consume(10_000, 0.1))
        consumer.close()
    return rows


def _columns(clock: Clock, bootstrap: str, topic: str, records: int, step: int) -> int:
    import pyarrow as pa

    from anabranch.kafka.fetch import RangeReader
    from anabranch.kafka.offsets import OffsetRange, TopicPartition
    from anabranch.kafka.options import settings_of

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    each = records // PARTITIONS
    pa.array([b""])  # loads what is loaded on first use
    rows = 0
    with clock.lap():
        reader = RangeReader(settings_of(options, streaming=True), run="benchmark")
        for start in range(0, each, step):
            for number in range(PARTITIONS):
                wanted = OffsetRange(TopicPartition(topic, number), start, min(start + step, each))
                rows += sum(batch.num_rows for batch in reader.read(wanted))
    return rows


def _spark(clock: Clock, bootstrap: str, topic: str, records: int) -> int:
    from anabranch.spark import kafka
    from benchmarks.workers.stream_session import bare_session

    spark = kafka.register(bare_session())
    topics = spark.read.format("anabranch-kafka").option("kafka.bootstrap.servers", bootstrap)
    frame = topics.option("subscribe", topic).load()
    if frame.count() != records:  # warms up: from here on the Python processes are there
        raise RuntimeError("records are missing")
    with clock.lap():
        frame.write.format("noop").mode("overwrite").save()
    spark.stop()
    return records


if __name__ == "__main__":
    main({"read": read})
