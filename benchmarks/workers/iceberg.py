"""pyiceberg with a catalog in SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThan

from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, grouped, load, main

NAME = "db.t"


def append(clock: Clock, home: str, parts: list[str]) -> dict[str, Any]:
    """One commit per part."""
    tables = [load(part) for part in parts]
    _create(home + "/warm-up", tables[0].schema).append(tables[0].slice(0, WARM_UP_ROWS))
    table = _create(home, tables[0].schema)
    with clock.lap():
        for data in tables:
            table.append(data)
    return {"rows": table.scan().count()}


def scan(
    clock: Clock, home: str, columns: list[str] | None = None, ids: list[int] | None = None
) -> dict[str, Any]:
    """Read to an Arrow table."""
    _read(home + "/warm-up", columns, ids and WARM_UP_IDS)
    with clock.lap():
        data = _read(home, columns, ids)
    return {"rows": data.num_rows, "columns": data.num_columns}


def form(clock: Clock, home: str, form: str) -> dict[str, Any]:
    """Hand all rows to a library."""
    _form(home + "/warm-up", form)
    with clock.lap():
        return _form(home, form)


def _form(home: str, form: str) -> dict[str, Any]:
    scan_ = _catalog(home).load_table(NAME).scan()
    if form == "duckdb":
        found = scan_.to_duckdb("t").execute("SELECT category, count(*), sum(code) FROM t GROUP BY category")
        return grouped(found.fetchall())
    return {"rows": len(scan_.to_polars() if form == "polars" else scan_.to_pandas())}


def commits(clock: Clock, home: str, part: str, count: int, rows: int) -> dict[str, Any]:
    """Many small commits through one handle."""
    data = load(part).slice(0, rows)
    _create(home + "/warm-up", data.schema).append(data)
    table = _create(home, data.schema)
    for _ in range(count):
        with clock.lap():
            table.append(data)
    return {"rows": table.scan().count()}


def _catalog(home: str) -> SqlCatalog:
    Path(home).mkdir(parents=True, exist_ok=True)
    return SqlCatalog("bench", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}")


def _create(home: str, schema: pa.Schema) -> Any:
    catalog = _catalog(home)
    catalog.create_namespace("db")
    return catalog.create_table(NAME, schema)


def _read(home: str, columns: list[str] | None, ids: list[int] | None) -> pa.Table:
    condition = And(GreaterThanOrEqual("id", ids[0]), LessThan("id", ids[1])) if ids else AlwaysTrue()
    scan_ = _catalog(home).load_table(NAME).scan(condition, tuple(columns) if columns else ("*",))
    return scan_.to_arrow()


if __name__ == "__main__":
    main({"append": append, "scan": scan, "commits": commits, "form": form})
