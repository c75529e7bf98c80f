"""pypaimon, without its native extension."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, grouped, load, main, stream

NAME = "db.t"


def append(clock: Clock, home: str, parts: list[str]) -> dict[str, Any]:
    """One commit per part."""
    tables = [load(part) for part in parts]
    _write(_create(home + "/warm-up", tables[0].schema), tables[0].slice(0, WARM_UP_ROWS))
    table = _create(home, tables[0].schema)
    with clock.lap():
        for data in tables:
            _write(table, data)
    return {"rows": table.snapshot_manager().get_latest_snapshot().total_record_count}


def scan(
    clock: Clock, home: str, columns: list[str] | None = None, ids: list[int] | None = None
) -> dict[str, Any]:
    """Read to an Arrow table."""
    _read(home + "/warm-up", columns, ids and WARM_UP_IDS)
    with clock.lap():
        data = _read(home, columns, ids)
    return {"rows": data.num_rows, "columns": data.num_columns}


def plan(clock: Clock, home: str, table: str, p: int | None = None, id: int | None = None) -> dict[str, Any]:
    """Plan without reading."""
    _splits(home, "db.warm_up", p, id)
    with clock.lap():
        splits = _splits(home, table, p, id)
    return {"files": sum(len(split.files) for split in splits)}


def form(clock: Clock, home: str, form: str) -> dict[str, Any]:
    """Hand all rows to a library."""
    _form(home + "/warm-up", form)
    with clock.lap():
        return _form(home, form)


def _form(home: str, form: str) -> dict[str, Any]:
    builder = _catalog(home).get_table(NAME).new_read_builder()
    read, splits = builder.new_read(), builder.new_scan().plan().splits()
    if form == "duckdb":
        found = read.to_duckdb(splits, "t").execute(
            "SELECT category, count(*), sum(code) FROM t GROUP BY category"
        )
        return grouped(found.fetchall())
    if form == "pandas":
        return {"rows": len(read.to_pandas(splits))}
    import polars as pl

    return {"rows": len(pl.from_arrow(read.to_arrow(splits)))}


def commits(clock: Clock, home: str, part: str, count: int, rows: int) -> dict[str, Any]:
    """Many small commits through one handle."""
    data = load(part).slice(0, rows)
    _write(_create(home + "/warm-up", data.schema), data)
    table = _create(home, data.schema)
    for _ in range(count):
        with clock.lap():
            _write(table, data)
    return {"rows": table.snapshot_manager().get_latest_snapshot().total_record_count}


def partitions(clock: Clock, home: str, part: str, buffer: str) -> dict[str, Any]:  # noqa: ARG001 - it has none
    """One commit of a stream of batches into a table partitioned by p."""
    warm_up = pa.Table.from_batches([stream(part).read_next_batch().slice(0, WARM_UP_ROWS)])
    _write(_create(home + "/warm-up", warm_up.schema, ["p"]), warm_up)
    table = _create(home, warm_up.schema, ["p"])
    with clock.lap():
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        for batch in stream(part):
            write.write_arrow_batch(batch)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
    splits = table.new_read_builder().new_scan().plan().splits()
    files = [file for split in splits for file in split.files]
    return {"rows": sum(file.row_count for file in files), "files": len(files)}


def _catalog(home: str) -> Any:
    return CatalogFactory.create({"warehouse": home})


def _create(home: str, schema: pa.Schema, partition_keys: list[str] | None = None) -> Any:
    catalog = _catalog(home)
    catalog.create_database("db", True)
    catalog.create_table(NAME, Schema.from_pyarrow_schema(schema, partition_keys=partition_keys), False)
    return catalog.get_table(NAME)


def _write(table: Any, data: pa.Table) -> None:
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(data)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


def _read(home: str, columns: list[str] | None, ids: list[int] | None) -> pa.Table:
    builder = _catalog(home).get_table(NAME).new_read_builder()
    if ids:
        build = builder.new_predicate_builder()
        bounds = [build.greater_or_equal("id", ids[0]), build.less_than("id", ids[1])]
        builder = builder.with_filter(build.and_predicates(bounds))
    if columns:
        builder = builder.with_projection(columns)
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def _splits(home: str, table: str, p: int | None, id: int | None) -> list[Any]:
    builder = _catalog(home).get_table(table).new_read_builder()
    build = builder.new_predicate_builder()
    if p is not None:
        builder = builder.with_filter(build.equal("p", p))
    if id is not None:
        builder = builder.with_filter(build.equal("id", id))
    splits: list[Any] = builder.new_scan().plan().splits()
    return splits


if __name__ == "__main__":
    main(
        {
            "append": append,
            "scan": scan,
            "plan": plan,
            "commits": commits,
            "partitions": partitions,
            "form": form,
        }
    )
