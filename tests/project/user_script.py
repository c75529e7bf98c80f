"""A program as users write it, for type checkers: what is right passes, and what is wrong is found."""

from __future__ import annotations

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

import anabranch
from anabranch import Lake, Scan, Snapshot, Table, col


def work(lake: Lake, frame: pl.DataFrame) -> int:
    """Write and read; every line is checked, none is carried out."""
    table: Table = lake.create_table("db.t", data=frame, partition_by="dt", options={"bucket": "-1"})
    snapshot: Snapshot = table.append(frame, schema="merge")
    scan: Scan = table.scan((col("id") > 5) & ~col("v").is_null(), columns=["id"], limit=10)
    rows: pa.Table = scan.to_arrow()
    eager: pl.DataFrame = scan.to_polars()
    lazy: pl.LazyFrame = scan.to_polars(lazy=True)
    lazy.collect()
    table.create_tag("good")
    branch: Table = table.branch("fix")
    with anabranch.progress():
        table.compact(full=True)
    expired: int = len(table.expire_partitions("90 d", dry_run=True).partitions)
    picture: str = table.plot("sizes").svg()
    try:
        table.at(timestamp="2026-01-01")
    except anabranch.NotFoundError as error:
        print(error.message, error.hint)
    return (
        scan.count()
        + int(rows.num_rows)
        + eager.height
        + snapshot.id
        + expired
        + len(picture)
        + len(branch.name)
    )


def wrong(lake: Lake, table: Table) -> None:
    """Each line has a mistake that a checker finds: without one its comment would be unused, which is an error."""
    lake.create_table(5)  # type: ignore[arg-type]
    table.scan(limit="ten")  # type: ignore[arg-type]
    table.scan(colums=["id"])  # type: ignore[call-arg]
    table.apend([])  # type: ignore[attr-defined]
    table.expire_partitions(older_than=90)  # type: ignore[arg-type]
    anabranch.conect("x")  # type: ignore[attr-defined]
    count: str = table.scan().count()  # type: ignore[assignment]
    print(count)
