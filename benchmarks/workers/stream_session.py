"""What the workers that stream share."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

SLOTS = 2
COLUMNS = "id BIGINT, v STRING"
WARM_UP_ROWS = 16_000
"""Of a first query, which loads code and starts processes."""
TOO_LONG = 3.0
"""Seconds for each batch after which a stream is given up."""
SETTINGS = {
    "spark.ui.enabled": "false",
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
