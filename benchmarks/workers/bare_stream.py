"""Streams from Parquet files to Parquet files, with Spark's own file source and sink."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import (
    BATCH_ROWS,
    COLUMNS,
    WARM_UP_ROWS,
    bare_session,
    batch_seconds,
    counted,
    finish,
    rows,
)

CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
FASTER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def micro_batches(clock: Clock, home: str, batches: int, stateful: bool) -> dict[str, Any]:
    """One file of a thousand rows for each micro-batch; the laps are the seconds of each."""
    place = Path(home) / "source"
    place.mkdir(parents=True)
    for number in range(batches):
        path = place / f"{number:06}.parquet"
        pq.write_table(rows(number * BATCH_ROWS, BATCH_ROWS), path)
        os.utime(path, (number, number))  # which is the order in which they are taken
    spark = _session()
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").parquet(str(place))
    sink = (counted(source) if stateful else source).writeStream.format("parquet")
    query = sink.option("checkpointLocation", home + "/checkpoint").start(home + "/sink")
    clock.seconds += batch_seconds(query, batches)
    return finish(spark)


def throughput(clock: Clock, home: str, rows: int, files: int) -> dict[str, Any]:
    """All in one batch, after a small one."""
    spark = _session()
    for name, count in (("little", WARM_UP_ROWS), ("much", rows)):
        frame = spark.range(count).selectExpr("id", "concat('value ', id) AS v", "timestamp_seconds(id) AS t")
        frame.repartition(files).write.parquet(f"{home}/{name}/source")
    _copy(spark, f"{home}/little")
    with clock.lap():
        _copy(spark, f"{home}/much")
    found = spark.read.parquet(f"{home}/much/sink").count()
    return finish(spark, rows=found)


def _session() -> Any:
    spark = bare_session()
    spark.conf.set(CHECKPOINT_FILES, FASTER)
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    return spark


def _copy(spark: Any, place: str) -> None:
    source = spark.readStream.schema(COLUMNS).parquet(f"{place}/source")
    sink = source.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
    sink.trigger(availableNow=True).start(f"{place}/sink").awaitTermination()


if __name__ == "__main__":
    main({"micro_batches": micro_batches, "throughput": throughput})
