"""Streams from one of our tables into another."""

from __future__ import annotations

from typing import Any

import anabranch
import anabranch.spark
from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import (
    BATCH_ROWS,
    COUNTED,
    SETTINGS,
    SLOTS,
    WARM_UP_ROWS,
    batch_seconds,
    counted,
    finish,
    rows,
)

TABLE = "id BIGINT, v STRING, t TIMESTAMP_LTZ"
made = rows


def micro_batches(clock: Clock, home: str, batches: int, stateful: bool) -> dict[str, Any]:
    """One commit of a thousand rows for each micro-batch; the laps are the seconds of each."""
    lake = anabranch.connect(home + "/warehouse")
    source = lake.create_table("db.source", TABLE)
    sink = lake.create_table("db.sink", COUNTED if stateful else TABLE)
    for number in range(batches):
        source.append(rows(number * BATCH_ROWS, BATCH_ROWS))
    spark = _session(home)
    stream = spark.readStream.format("anabranch").option("scan.mode", "from-snapshot")
    stream = stream.option("scan.snapshot-id", "1").option("read.stream.maxFilesPerTrigger", "1")
    frame = stream.load("db.source")
    writer = (counted(frame) if stateful else frame).writeStream.format("anabranch").queryName("copy")
    query = writer.option("checkpointLocation", home + "/checkpoint").start("db.sink")
    clock.seconds += batch_seconds(query, batches)
    if not stateful:
        _check(sink, batches * BATCH_ROWS)
    return finish(spark)


def throughput(clock: Clock, home: str, rows: int, files: int) -> dict[str, Any]:
    """A table of many rows into an empty one, all in one batch, after one of few rows that does not count."""
    lake = anabranch.connect(home + "/warehouse")
    sinks = {}
    for name, count in (("little", WARM_UP_ROWS), ("much", rows)):
        source = lake.create_table(f"{name}.source", TABLE)
        sinks[name] = lake.create_table(f"{name}.sink", TABLE)
        for number in range(files):
            source.append(made(number * (count // files), count // files))
    spark = _session(home)
    _copy(spark, home, "little")
    with clock.lap():
        _copy(spark, home, "much")
    _check(sinks["much"], rows)
    return finish(spark, rows=rows)


def _copy(spark: Any, home: str, name: str) -> None:
    stream = spark.readStream.format("anabranch").load(f"{name}.source")
    writer = stream.writeStream.format("anabranch").queryName(name).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{home}/checkpoint-{name}").start(f"{name}.sink").awaitTermination()


def _session(home: str) -> Any:
    spark = anabranch.spark.session(home + "/warehouse", master=f"local[{SLOTS}]", **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _check(table: Any, rows: int) -> None:
    ids = table.scan(columns=["id"]).to_arrow()["id"]
    if sorted(ids.to_pylist()) != list(range(rows)):
        raise AssertionError(f"{len(ids)} rows where {rows} were written, or not the same ones")


if __name__ == "__main__":
    main({"micro_batches": micro_batches, "throughput": throughput})
