"""delta-rs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from benchmarks.workers.harness import (
    WARM_UP_IDS,
    WARM_UP_ROWS,
    Clock,
    grouped,
    load,
    main,
    shares_of,
    stream,
)


def append(clock: Clock, home: str, parts: list[str]) -> dict[str, Any]:
    """One commit per part."""
    tables = [load(part) for part in parts]
    write_deltalake(
        _create(home + "/warm-up", tables[0].schema), tables[0].slice(0, WARM_UP_ROWS), mode="append"
    )
    table = _create(home, tables[0].schema)
    with clock.lap():
        for data in tables:
            write_deltalake(table, data, mode="append")
    return {"rows": table.to_pyarrow_dataset().count_rows()}


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
    table = DeltaTable(home + "/t")
    if form == "duckdb":
        import duckdb

        t = duckdb.from_arrow(table.to_pyarrow_dataset())
        return grouped(t.aggregate("category, count(*) AS rows, sum(code) AS total", "category").fetchall())
    if form == "pandas":
        return {"rows": len(table.to_pandas())}
    import polars as pl

    return {"rows": pl.read_delta(home + "/t").height}


def commits(clock: Clock, home: str, part: str, count: int, rows: int) -> dict[str, Any]:
    """Many small commits through one handle."""
    data = load(part).slice(0, rows)
    write_deltalake(_create(home + "/warm-up", data.schema), data, mode="append")
    table = _create(home, data.schema)
    for _ in range(count):
        with clock.lap():
            write_deltalake(table, data, mode="append")
    return {"rows": table.to_pyarrow_dataset().count_rows()}


def partitions(clock: Clock, home: str, part: str, buffer: str) -> dict[str, Any]:  # noqa: ARG001 - it has none
    """One commit of a stream of batches into a table partitioned by p."""
    warm_up = pa.Table.from_batches([stream(part).read_next_batch().slice(0, WARM_UP_ROWS)])
    write_deltalake(_create(home + "/warm-up", warm_up.schema, ["p"]), warm_up, mode="append")
    table = _create(home, warm_up.schema, ["p"])
    with clock.lap():
        write_deltalake(table, stream(part), mode="append")
    return {"rows": table.to_pyarrow_dataset().count_rows(), "files": len(table.file_uris())}


def sort(
    clock: Clock,
    home: str,
    parts: list[str],
    by: list[str],
    strategy: str,
    target: str,
    queries: list[list[int]],
) -> dict[str, Any]:
    """Z-order what was appended in any order, then count the files whose statistics let queries skip them not."""
    assert strategy == "zorder"
    table = _create(home, load(parts[0]).schema)
    for part in parts:
        write_deltalake(table, load(part), mode="append")
    with clock.lap():
        table.optimize.z_order(by, target_size=int(target))
    bounds = pa.table(table.get_add_actions(flatten=True))
    found = []
    for low, width in queries:
        reads = [_reads(bounds, name, low, low + width) for name in by]
        found.append([pc.mean(each.cast("int8")).as_py() for each in (*reads, pc.and_(*reads))])
    return {"files": len(bounds), "shares": shares_of(found)}


def _reads(bounds: pa.Table, name: str, low: int, high: int) -> Any:
    return pc.and_(pc.greater_equal(bounds[f"max.{name}"], low), pc.less(bounds[f"min.{name}"], high))


def _create(home: str, schema: pa.Schema, partition_by: list[str] | None = None) -> DeltaTable:
    return DeltaTable.create(home + "/t", schema, partition_by=partition_by)


def _read(home: str, columns: list[str] | None, ids: list[int] | None) -> pa.Table:
    condition = (ds.field("id") >= ids[0]) & (ds.field("id") < ids[1]) if ids else None
    return DeltaTable(home + "/t").to_pyarrow_dataset().to_table(columns=columns, filter=condition)


if __name__ == "__main__":
    main(
        {
            "append": append,
            "scan": scan,
            "commits": commits,
            "partitions": partitions,
            "sort": sort,
            "form": form,
        }
    )
