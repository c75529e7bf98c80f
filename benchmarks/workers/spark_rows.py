"""Rows that Spark writes: into a table, or as plain Parquet files."""

from __future__ import annotations

import shutil
from typing import Any

import anabranch.spark
from benchmarks.workers.harness import Clock, main
from benchmarks.workers.stream_session import bare_session, finish

COLUMNS = (
    "id a",
    "CAST(id % 1000 AS INT) b",
    "rand(1) c",
    "concat('name-', id % 50000) d",
    "sha2(CAST(id AS STRING), 256) e",
    "CAST(id / 7 AS DECIMAL(12, 2)) f",
    "timestamp_micros(1700000000000000 + id * 1000) g",
    "id % 3 = 0 h",
    "CAST(id % 20 AS INT) p",
)
WARM_UP = 200_000


def make(_clock: Clock, home: str, rows: int) -> dict[str, Any]:
    """The rows, as plain Parquet files."""
    spark = bare_session()
    spark.range(0, rows, 1, 8).selectExpr(*COLUMNS).write.parquet(f"{home}/rows")
    return finish(spark)


def write(clock: Clock, home: str, table: bool, partitioned: bool) -> dict[str, Any]:
    """Write all of them."""
    spark = bare_session()
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    rows = spark.read.parquet(f"{home}/rows")
    shutil.rmtree(f"{home}/warehouse", ignore_errors=True)
    if table:
        anabranch.spark.attach(spark, f"{home}/warehouse")
        spark.sql("CREATE DATABASE lake.db")
    for name, frame in (("warm_up", rows.limit(WARM_UP)), ("all_rows", rows)):
        if table:
            _make_table(spark, f"lake.db.{name}", frame, partitioned=partitioned)
        frame.createOrReplaceTempView("rows")
        with clock.lap() if name == "all_rows" else Clock().lap():
            if table:
                spark.sql(f"INSERT INTO lake.db.{name} SELECT * FROM rows")
            else:
                writer = frame.write.mode("overwrite")
                (writer.partitionBy("p") if partitioned else writer).parquet(f"{home}/{name}")
    written = spark.table("lake.db.all_rows") if table else spark.read.parquet(f"{home}/all_rows")
    return finish(spark, rows=written.count())


def _make_table(spark: Any, name: str, frame: Any, *, partitioned: bool) -> None:
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
    spark.sql(f"CREATE TABLE {name} ({columns}) {'PARTITIONED BY (p)' if partitioned else ''}")


if __name__ == "__main__":
    main({"make": make, "write": write})
