"""Commits with and without lineage, and what of a micro-batch is lineage."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

import anabranch
from anabranch.lineage.model import Engine
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.lookups import Lookups
from anabranch.spark.lineage.stream_lineage import batch_origin, batch_sources
from benchmarks.workers import table_stream
from benchmarks.workers.harness import Clock, main


def commits(clock: Clock, home: str, rows: int, count: int) -> dict[str, Any]:
    """Pairs of commits into two tables; the laps are those of a job that has read another table."""
    lake = anabranch.connect(home)
    data = pa.table({"id": pa.array(range(rows), pa.int64()), "v": [f"value {i}" for i in range(rows)]})
    source, silent, told = (lake.create_table(f"db.{name}", data.schema) for name in ("a", "b", "c"))
    source.append(data)
    without: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        silent.append(data)
        without.append(time.perf_counter() - start)
        with lake.job("benchmark"):
            source.scan().to_arrow()
            with clock.lap():
                told.append(data)
    if "anabranch.lineage" not in told.snapshot.properties or silent.snapshot.id != count:
        raise AssertionError("the commits are not what they should be")
    return {"without": without}


def micro_batches(clock: Clock, home: str, batches: int) -> dict[str, Any]:
    """The laps are the seconds of each micro-batch; `gathering` those of gathering its lineage, once the stream has ended.

    What it looked up is not among that: only the process of a stream that runs can be asked.
    """
    table_stream.micro_batches(clock, home, batches, stateful=False)
    gathering: list[float] = []
    for batch in range(batches):
        checkpoint = Checkpoint.of({"checkpointLocation": home + "/checkpoint"})
        start = time.perf_counter()
        engine = Engine("spark", None, "application", checkpoint.query_id, batch)
        entry = batch_origin(batch_sources(checkpoint, batch, Lookups()), "benchmark", None, "run", engine)
        entry.to_json()
        gathering.append(time.perf_counter() - start)
        if not entry.inputs and batch > 0:
            raise AssertionError(f"batch {batch} has no inputs: {entry.problems}")
    return {"gathering": gathering}


if __name__ == "__main__":
    main({"commits": commits, "micro_batches": micro_batches})
