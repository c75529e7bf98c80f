"""The files of a table in Spark: through the table, or as plain Parquet files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch
from anabranch.kernel.actions.append import Append
from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import bare_session, finish

COMMITS = 8
REPEATS = 3
LARGE = "id BIGINT, price DOUBLE, category STRING, ts TIMESTAMP(6), quantity INT"
SMALL = "id BIGINT, v STRING"


def make(_clock: Clock, home: str, rows: int, files: int) -> dict[str, Any]:
    """A table of many rows in few files, and one of many files that are one file under many names."""
    lake = anabranch.connect(f"{home}/warehouse")
    large = lake.create_table("db.large", LARGE)
    for start in range(0, rows, rows // COMMITS):
        large.append(_rows(start, rows // COMMITS))
    small = lake.create_table("db.small", SMALL)
    (message,) = small.writer().write(pa.table({"id": [1, 2], "v": ["a", "b"]}).to_batches())
    (file,) = message.new_files
    folder = Path(f"{home}/warehouse/db.db/small/bucket-0")
    names = [f"data-{number:08}-0.parquet" for number in range(files)]
    for name in names:
        os.link(folder / file.file_name, folder / name)
    small.commit(Append([replace(message, new_files=tuple(replace(file, file_name=name) for name in names))]))
    return {}


def read(clock: Clock, home: str, native: bool, columns: int) -> dict[str, Any]:
    """Read columns of the large table to nowhere."""
    spark = bare_session()
    names = ["price", "id", "category", "ts", "quantity"][:columns]
    frame = _frame(spark, home, "large", native=native).select(*names)
    _to_nowhere(frame)
    for _ in range(REPEATS):
        with clock.lap():
            _to_nowhere(frame)
    return finish(spark, rows=frame.count())


def plan(clock: Clock, home: str, native: bool) -> dict[str, Any]:
    """From the session to the tasks of a scan of all small files."""
    spark = bare_session()
    _tasks(_frame(spark, home, "large", native=native))
    with clock.lap():
        _tasks(_frame(spark, home, "small", native=native))
    return finish(spark)


def _frame(spark: Any, home: str, name: str, *, native: bool) -> Any:
    if native:
        return anabranch.connect(f"{home}/warehouse", spark=spark).table(f"db.{name}").scan().to_spark()
    folder = Path(f"{home}/warehouse/db.db/{name}/bucket-0")
    listed = sorted(
        str(path) for path in folder.iterdir() if name == "large" or path.name.endswith("-0.parquet")
    )
    return spark.read.parquet(*listed)


def _to_nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _tasks(frame: Any) -> int:
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def _rows(start: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(start)
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "price": numbers.random(count),
            "category": pa.array(numbers.integers(0, 50, count)).cast(pa.string()),
            "ts": pa.array(ids * 1_000_000).cast(pa.timestamp("us")),
            "quantity": pa.array(numbers.integers(0, 100, count), pa.int32()),
        }
    )


if __name__ == "__main__":
    main({"make": make, "read": read, "plan": plan})
