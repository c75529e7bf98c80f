"""A stream into a table, with compaction beside it or without."""

from __future__ import annotations

import time
from typing import Any

import anabranch
import anabranch.spark
from benchmarks.workers.harness import Clock, main

SLOTS = 2
ROWS_PER_FILE = 100
TOO_LONG = 3.0
"""Seconds for each commit after which the stream is given up."""


def stream(clock: Clock, home: str, commits: int, files: int, write_only: bool) -> dict[str, Any]:
    """Commit every second; the laps are the seconds of each micro-batch."""
    lake = anabranch.connect(home + "/warehouse")
    table = lake.create_table("db.t", "timestamp TIMESTAMP(6) WITH LOCAL TIME ZONE, value BIGINT")
    spark = anabranch.spark.session(
        home + "/warehouse",
        master=f"local[{SLOTS}]",
        **{
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.numRecentProgressUpdates": str(2 * commits + 100),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    rate = spark.readStream.format("rate").options(rowsPerSecond=files * ROWS_PER_FILE, numPartitions=files)
    sink = rate.load().writeStream.format("anabranch").option("write-only", str(write_only).lower())
    sink = sink.option("checkpointLocation", home + "/checkpoint").queryName("rate")
    query = sink.trigger(processingTime="1 second").start("db.t")
    deadline = time.monotonic() + TOO_LONG * commits + 60
    while len(batches := [p for p in query.recentProgress if p.numInputRows]) < commits:
        if query.exception() or time.monotonic() > deadline:
            raise RuntimeError(f"{len(batches)} of {commits} batches: {query.exception()}")
        time.sleep(1)
    query.stop()
    clock.seconds += [batch.durationMs["triggerExecution"] / 1000 for batch in batches]
    values = table.scan(columns=["value"]).to_arrow()["value"]
    once = sorted(values.to_pylist()) == list(range(len(values)))
    facts = {"rows": len(values), "every_row_once": once, "live_files": _live_files(table)}
    spark.stop()
    return facts


def _live_files(table: Any) -> list[tuple[float, int]]:
    """Seconds since the first commit, and how many live files there were, after each snapshot."""
    snapshots = sorted(table.snapshots(), key=lambda s: s.id)
    return [
        (
            (snapshot.time_millis - snapshots[0].time_millis) / 1000,
            sum(len(split.files) for split in table.at(snapshot.id).scan().plan().splits),
        )
        for snapshot in snapshots
    ]


if __name__ == "__main__":
    main({"stream": stream})
