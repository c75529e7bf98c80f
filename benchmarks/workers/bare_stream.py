"""Streams that have the shape of ours and do nothing beside it: what Spark itself takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import COLUMNS, WARM_UP_ROWS, bare_session, batch_seconds, finish

ROWS = 1_000


class Nothing(DataSource):
    """A thousand rows for each batch, and a sink that lets them go."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return Source(int(self.options.get("batches", "0")))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return Sink()


class Source(DataSourceStreamReader):
    """Counts batches."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # type: ignore[override] # noqa: N802
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(start["batch"], end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first = partition.value * ROWS
        ids = pa.array(range(first, first + ROWS), pa.int64())
        yield pa.record_batch([ids, pa.array(["x" * 20] * ROWS)], names=["id", "v"])


class Sink(DataSourceStreamArrowWriter):
    """Counts rows and forgets them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        pass


def micro_batches(clock: Clock, home: str, batches: int) -> dict[str, Any]:
    """The laps are the seconds of each micro-batch."""
    spark = bare_session()
    spark.dataSource.register(Nothing)
    source = spark.readStream.format("nothing").option("batches", str(batches)).load()
    query = source.writeStream.format("nothing").option("checkpointLocation", home + "/checkpoint").start()
    clock.seconds += batch_seconds(query, batches)
    return finish(spark)


def throughput(clock: Clock, home: str, rows: int, files: int) -> dict[str, Any]:
    """Parquet files to Parquet files with Spark's own file source and sink, all in one batch, after a small one."""
    spark = bare_session()
    for name, count in (("little", WARM_UP_ROWS), ("much", rows)):
        frame = spark.range(count).selectExpr("id", "concat('value ', id) AS v")
        frame.repartition(files).write.parquet(f"{home}/{name}/source")
    _copy(spark, f"{home}/little")
    with clock.lap():
        _copy(spark, f"{home}/much")
    found = spark.read.parquet(f"{home}/much/sink").count()
    return finish(spark, rows=found)


def _copy(spark: Any, place: str) -> None:
    source = spark.readStream.schema(COLUMNS).parquet(f"{place}/source")
    sink = source.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
    sink.trigger(availableNow=True).start(f"{place}/sink").awaitTermination()


if __name__ == "__main__":
    main({"micro_batches": micro_batches, "throughput": throughput})
