"""Anabranch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anabranch
from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, load, main, stream

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
    main({"append": append, "scan": scan, "plan": plan, "commits": commits, "partitions": partitions})
