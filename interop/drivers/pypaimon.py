"""pypaimon 2.1 behind the driver protocol: run as `python -m interop.drivers.pypaimon` by its interpreter."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.common.identifier import Identifier
from pypaimon.schema.data_types import AtomicType, DataField, PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange

from interop import canonical
from interop.drivers.serve import Unsupported, serve


def hello() -> dict[str, str]:
    """Which peer this is."""
    return {"peer": f"pypaimon {version('pypaimon')}"}


def create_table(
    warehouse: str,
    table: str,
    fields: list[dict[str, Any]],
    partition_keys: list[str],
    options: dict[str, str],
) -> None:
    """Create the table (and its database) from fields as schema files spell them."""
    catalog = _catalog(warehouse)
    catalog.create_database(table.partition(".")[0], True)
    schema = Schema([DataField.from_dict(f) for f in fields], partition_keys, [], options)
    catalog.create_table(table, schema, False)


def add_column(warehouse: str, table: str, name: str, type: str) -> None:
    """Add a nullable column of an atomic type at the end."""
    change = SchemaChange.add_column(name, AtomicType(type))
    _catalog(warehouse).alter_table(Identifier.from_string(table), [change], False)


def append(warehouse: str, table: str, rows: list[list[Any]]) -> None:
    """Commit canonical rows, columns in schema order."""
    _write(warehouse, table, rows, None)


def overwrite(warehouse: str, table: str, rows: list[list[Any]], partition: dict[str, str]) -> None:
    """Replace the whole table, or one partition, by canonical rows."""
    _write(warehouse, table, rows, partition)


def read(
    warehouse: str,
    table: str,
    options: dict[str, str] | None = None,
    filter: dict[str, Any] | None = None,
    columns: list[str] | None = None,
) -> dict[str, Any]:
    """Canonical rows; `options` are dynamic table options such as scan.snapshot-id."""
    builder, splits = _scan(warehouse, table, options, filter, columns)
    data = builder.new_read().to_arrow(splits)
    return {"columns": data.schema.names, "rows": canonical.rows_of(data)}


def plan(warehouse: str, table: str, filter: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The splits a read would take: bucket, rows and file names."""
    _, splits = _scan(warehouse, table, None, filter, None)
    return [
        {"bucket": s.bucket, "rows": s.row_count, "files": [f.file_name for f in s.files]} for s in splits
    ]


def buckets(warehouse: str, table: str, columns: list[str]) -> list[list[Any]]:
    """Pairs of bucket and canonical row of those columns, over the whole table, in the order of reading."""
    builder, splits = _scan(warehouse, table, None, None, columns)
    found = []
    for split in splits:
        data = builder.new_read().to_arrow([split])
        values = [canonical.values_of(column.combine_chunks()) for column in data.columns]
        found += [[split.bucket, list(row)] for row in zip(*values, strict=True)]
    return found


def compact(warehouse: str, table: str) -> None:
    """Not something this peer does."""
    raise Unsupported(f"pypaimon does not compact ({table} in {warehouse})")


def _catalog(warehouse: str) -> Any:
    return CatalogFactory.create({"warehouse": warehouse})


def _table(warehouse: str, table: str, options: dict[str, str] | None = None) -> Any:
    found = _catalog(warehouse).get_table(table)
    return found.copy(options) if options else found


def _write(warehouse: str, table: str, rows: list[list[Any]], partition: dict[str, str] | None) -> None:
    target = _table(warehouse, table)
    builder = target.new_batch_write_builder()
    if partition is not None:
        builder = builder.overwrite(partition)
    write, commit = builder.new_write(), builder.new_commit()
    try:
        schema = PyarrowFieldParser.from_paimon_schema(target.fields)
        write.write_arrow(canonical.table_of(rows, schema))
        commit.commit(write.prepare_commit())
    finally:
        write.close()
        commit.close()


def _scan(
    warehouse: str,
    table: str,
    options: dict[str, str] | None,
    condition: dict[str, Any] | None,
    columns: list[str] | None,
) -> tuple[Any, list[Any]]:
    source = _table(warehouse, table, options)
    builder = source.new_read_builder()
    if condition is not None:
        builder = builder.with_filter(_predicate(builder.new_predicate_builder(), source, condition))
    if columns is not None:
        builder = builder.with_projection(columns)
    return builder, builder.new_scan().plan().splits()


def _predicate(build: Any, table: Any, condition: dict[str, Any]) -> Any:
    operator = condition["op"]
    if operator in ("and", "or"):
        combine = build.and_predicates if operator == "and" else build.or_predicates
        return combine([_predicate(build, table, part) for part in condition["of"]])
    column = condition["column"]
    field = next(f for f in table.fields if f.name == column)
    arrow_type = PyarrowFieldParser.from_paimon_type(field.type)
    literals = [_literal(v, arrow_type) for v in condition.get("values", [])]
    method = getattr(build, operator)
    return method(column, literals) if operator in ("is_in", "is_not_in") else method(column, *literals)


def _literal(value: Any, arrow_type: pa.DataType) -> Any:
    return pa.scalar(canonical.parse(value, arrow_type), arrow_type).as_py()


if __name__ == "__main__":
    serve(
        {
            f.__name__: f
            for f in (hello, create_table, add_column, append, overwrite, read, plan, buckets, compact)
        }
    )
