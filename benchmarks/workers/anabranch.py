"""Anabranch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

import anabranch
from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, grouped, load, main, stream

NAME = "db.t"


def append(
    clock: Clock, home: str, parts: list[str], options: dict[str, str] | None = None
) -> dict[str, Any]:
    """One commit per part."""
    tables = [load(part) for part in parts]
    _create(home + "/warm-up", tables[0]).append(tables[0].slice(0, WARM_UP_ROWS))
    table = _create(home, tables[0], options=options)
    with clock.lap():
        for data in tables:
            table.append(data)
    return {"rows": table.snapshot.total_record_count}


def scan(
    clock: Clock, home: str, columns: list[str] | None = None, ids: list[int] | None = None
) -> dict[str, Any]:
    """Read to an Arrow table."""
    anabranch.connect(home + "/warm-up").table(NAME).scan(_between(ids and WARM_UP_IDS), columns).to_arrow()
    with clock.lap():
        data = anabranch.connect(home).table(NAME).scan(_between(ids), columns).to_arrow()
    return {"rows": data.num_rows, "columns": data.num_columns}


def plan(clock: Clock, home: str, table: str, p: int | None = None, id: int | None = None) -> dict[str, Any]:
    """Plan without reading."""
    condition = f"p = {p}" if p is not None else f"id = {id}" if id is not None else None
    lake = anabranch.connect(home)
    len(lake.table("db.warm_up").scan(condition).plan().splits)
    with clock.lap():
        splits = lake.table(table).scan(condition).plan().splits
    return {"files": sum(len(split.files) for split in splits)}


def form(clock: Clock, home: str, form: str) -> dict[str, Any]:
    """Hand all rows to a library."""
    _form(home + "/warm-up", form)
    with clock.lap():
        return _form(home, form)


def count(clock: Clock, home: str) -> dict[str, Any]:
    """Count the rows."""
    anabranch.connect(home)
    with clock.lap():
        return {"rows": anabranch.connect(home).table(NAME).scan().count()}


def append_partition(clock: Clock, home: str, part: str, p: int) -> dict[str, Any]:
    """Add rows of one partition to a table of `benchmarks.large_table`."""
    rows = load(part)
    rows = rows.select(["id", "price"]).append_column("p", pa.array([p] * rows.num_rows, pa.int32()))
    _create(home + "/warm-up", rows).append(rows.slice(0, WARM_UP_ROWS))
    with clock.lap():
        anabranch.connect(home).table(NAME).append(rows)
    return {"rows": rows.num_rows}


def lazily(clock: Clock, home: str, form: str, p: int) -> dict[str, Any]:
    """Add up a column of one partition, by a filter that the library hands down."""
    _lazily(home + "/warm-up", form, p)
    with clock.lap():
        rows, total = _lazily(home, form, p)
    return {"rows": rows, "total": int(total)}


def _lazily(home: str, form: str, p: int) -> tuple[Any, ...]:
    scan_ = anabranch.connect(home).table(NAME).scan()
    if form == "polars":
        frame = scan_.to_polars(lazy=True).filter(pl.col("p") == p)
        return frame.select(pl.len(), pl.col("id").sum()).collect().row(0)
    (found,) = scan_.to_duckdb().filter(f"p = {p}").aggregate("count(*), sum(id)").fetchall()
    return tuple(found)


def _form(home: str, form: str) -> dict[str, Any]:
    scan_ = anabranch.connect(home).table(NAME).scan()
    if form == "duckdb":
        t = scan_.to_duckdb()
        return grouped(t.aggregate("category, count(*) AS rows, sum(code) AS total", "category").fetchall())
    return {"rows": len(scan_.to_polars() if form == "polars" else scan_.to_pandas())}


def commits(clock: Clock, home: str, part: str, count: int, rows: int) -> dict[str, Any]:
    """Many small commits through one handle."""
    data = load(part).slice(0, rows)
    _create(home + "/warm-up", data).append(data)
    table = _create(home, data)
    for _ in range(count):
        with clock.lap():
            table.append(data)
    return {"rows": table.snapshot.total_record_count}


def partitions(clock: Clock, home: str, part: str, buffer: str) -> dict[str, Any]:
    """One commit of a stream of batches into a table partitioned by p."""
    how = {"partition_by": ["p"], "options": {"write-buffer-size": buffer}}
    warm_up = stream(part).read_next_batch().slice(0, WARM_UP_ROWS)
    _create(home + "/warm-up", warm_up, **how).append(warm_up)
    table = _create(home, warm_up, **how)
    with clock.lap():
        table.append(stream(part))
    plan = table.scan().plan()
    return {"rows": plan.report.rows, "files": len(plan.files)}


def _create(home: str, data: Any, **how: Any) -> Any:
    Path(home).mkdir(parents=True, exist_ok=True)
    return anabranch.connect(home).create_table(NAME, data.schema, **how)


def _between(ids: list[int] | None) -> str | None:
    return f"id >= {ids[0]} AND id < {ids[1]}" if ids else None


if __name__ == "__main__":
    main(
        {
            "append": append,
            "scan": scan,
            "plan": plan,
            "commits": commits,
            "partitions": partitions,
            "form": form,
            "count": count,
            "append_partition": append_partition,
            "lazily": lazily,
        }
    )
