"""What the workers that stream share."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pyarrow as pa

SLOTS = 2
COLUMNS = "id BIGINT, v STRING, t TIMESTAMP"
COUNTED = "start TIMESTAMP_LTZ, k BIGINT, n BIGINT"
BATCH_ROWS = 1_000
WARM_UP_ROWS = 16_000
"""Of a first query, which loads code and starts processes."""
BEGIN = 1_800_000_000
"""Epoch seconds of the first event."""
TOO_LONG = 3.0
"""Seconds for each batch after which a stream is given up."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def bare_session() -> Any:
    """A SparkSession without Anabranch."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(first: int, count: int) -> pa.Table:
    """Rows of a source. Each thousand is of another ten seconds."""
    ids = pa.array(range(first, first + count), pa.int64())
    micros = [
        (BEGIN + 10 * (i // BATCH_ROWS)) * 1_000_000 + i % BATCH_ROWS for i in range(first, first + count)
    ]
    times = pa.array(micros, pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "v": [f"value {i}" for i in range(first, first + count)], "t": times})


def counted(frame: Any) -> Any:
    """How often each of a thousand keys was there in ten seconds: windows that close as the next rows come."""
    from pyspark.sql import functions as f

    windows = frame.withWatermark("t", "0 seconds").groupBy(
        f.window("t", "10 seconds"), (f.col("id") % BATCH_ROWS).alias("k")
    )
    return windows.count().select(f.col("window.start").alias("start"), "k", f.col("count").alias("n"))


def batch_seconds(query: Any, batches: int) -> list[float]:
    """Wait until a query has done so many batches with rows, end it, and tell how long each took."""
    deadline = time.monotonic() + TOO_LONG * batches + 60
    while len(done := [p for p in query.recentProgress if p.numInputRows]) < batches:
        if query.exception() or time.monotonic() > deadline:
            raise RuntimeError(f"{len(done)} of {batches} batches: {query.exception()}")
        time.sleep(0.5)
    query.stop()
    return [batch.durationMs["triggerExecution"] / 1000 for batch in done[:batches]]


def finish(spark: Any, **facts: Any) -> dict[str, Any]:
    """End the session and pass the facts on."""
    spark.stop()
    return facts
