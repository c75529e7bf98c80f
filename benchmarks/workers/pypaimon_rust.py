"""pypaimon-rust: Paimon's Rust client through its Python binding."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, load, main

NAME = "db.t"
SQL_TYPES = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us"): "TIMESTAMP(6)",
}


def append(clock: Clock, home: str, parts: list[str]) -> dict[str, Any]:
    """One commit per part."""
    tables = [load(part) for part in parts]
    _write(_create(home + "/warm-up", tables[0].schema), tables[0].slice(0, WARM_UP_ROWS))
    table = _create(home, tables[0].schema)
    with clock.lap():
        for data in tables:
            _write(table, data)
    return {"rows": table.latest_snapshot().total_record_count()}


def scan(
    clock: Clock, home: str, columns: list[str] | None = None, ids: list[int] | None = None
) -> dict[str, Any]:
    """Read to an Arrow table."""
    _read(home + "/warm-up", columns, ids and WARM_UP_IDS)
    with clock.lap():
        data = _read(home, columns, ids)
    return {"rows": data.num_rows, "columns": data.num_columns}


def plan(clock: Clock, home: str, table: str, p: int | None = None, id: int | None = None) -> dict[str, Any]:
    """Plan without reading. Splits do not tell their files; the rows do, at 1,000 a file."""
    _plan(home, "db.warm_up", p, id)
    with clock.lap():
        splits = _plan(home, table, p, id).splits()
    return {"files": sum(split.row_count() for split in splits) // 1_000}


def commits(clock: Clock, home: str, part: str, count: int, rows: int) -> dict[str, Any]:
    """Many small commits through one handle."""
    data = load(part).slice(0, rows)
    _write(_create(home + "/warm-up", data.schema), data)
    table = _create(home, data.schema)
    for _ in range(count):
        with clock.lap():
            _write(table, data)
    return {"rows": table.latest_snapshot().total_record_count()}


def _table(home: str, name: str = NAME) -> Any:
    return PaimonCatalog({"warehouse": home}).get_table(name)


def _create(home: str, schema: pa.Schema) -> Any:
    context = SQLContext()
    context.register_catalog("paimon", {"warehouse": home})
    context.set_current_catalog("paimon")
    context.sql("CREATE SCHEMA IF NOT EXISTS paimon.db")
    columns = ", ".join(f"{field.name} {SQL_TYPES[field.type]}" for field in schema)
    context.sql(f"CREATE TABLE paimon.db.t ({columns})")
    return _table(home)


def _write(table: Any, data: pa.Table) -> None:
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    for batch in data.to_batches():
        write.write_arrow(batch)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


def _read(home: str, columns: list[str] | None, ids: list[int] | None) -> pa.Table:
    builder = _table(home).new_read_builder()
    if ids:
        bounds = [_compare("greaterOrEqual", "id", ids[0]), _compare("lessThan", "id", ids[1])]
        builder = builder.with_filter({"method": "and", "children": bounds})
    if columns:
        builder = builder.with_projection(columns)
    return pa.Table.from_batches(builder.new_read().read(builder.new_scan().plan().splits()))


def _plan(home: str, table: str, p: int | None, id: int | None) -> Any:
    builder = _table(home, table).new_read_builder()
    if p is not None:
        builder = builder.with_filter(_compare("equal", "p", p))
    if id is not None:
        builder = builder.with_filter(_compare("equal", "id", id))
    return builder.new_scan().plan()


def _compare(method: str, field: str, literal: int) -> dict[str, Any]:
    return {"method": method, "field": field, "literals": [literal]}


if __name__ == "__main__":
    main({"append": append, "scan": scan, "plan": plan, "commits": commits})
