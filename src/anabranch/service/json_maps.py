"""Maps in JSON, which Arrow does not read: they go through it as lists of entries.

A map is written as an object, ``{"a": 1}``, or as a list of pairs, ``[["a", 1]]``, which is how rows are shown.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

_KEY, _VALUE = "key", "value"


def has_map(kind: Any) -> bool:
    """Whether a type is a map or has one inside."""
    return pa.types.is_map(kind) or any(has_map(kind.field(i).type) for i in range(kind.num_fields))


def without_maps(schema: pa.Schema) -> pa.Schema:
    """The schema with a list of entries in place of each map."""
    return pa.schema([f.with_type(_entries_type(f.type)) for f in schema])


def text_without_maps(text: bytes, schema: pa.Schema) -> bytes:
    """JSON, an object a line, with a list of entries in place of each map, and decimals as text, so that they stay exact.

    Raises `ValueError` if it is no JSON.
    """
    kinds = {f.name: f.type for f in schema}
    lines = []
    for line in text.splitlines():
        row = json.loads(line, parse_float=Decimal) if line.strip() else None
        if isinstance(row, dict):
            row = {name: _entries(value, kinds.get(name)) for name, value in row.items()}
        lines.append("" if row is None else json.dumps(row, ensure_ascii=False, default=float))
    return "\n".join(lines).encode()


def with_maps(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the maps of `schema` again."""
    for place, name in enumerate(table.schema.names):
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and has_map(kind):
            column = pa.chunked_array([_maps(chunk, kind) for chunk in table.column(place).chunks], kind)
            table = table.set_column(place, schema.field(name), column)
    return table


def _entries_type(kind: Any) -> Any:
    if not has_map(kind):
        return kind
    if pa.types.is_map(kind):
        entry = [
            pa.field(_KEY, _entries_type(kind.key_type)),
            pa.field(_VALUE, _entries_type(kind.item_type)),
        ]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_entries_type(f.type)) for f in kind])
    return pa.list_(_entries_type(kind.value_type))


def _entries(value: Any, kind: Any) -> Any:
    if value is None or kind is None:
        return value
    if isinstance(value, Decimal) and pa.types.is_decimal(kind):
        return str(value)
    if pa.types.is_map(kind) and isinstance(value, dict | list):
        pairs = [(_key(k, kind.key_type), v) for k, v in value.items()] if isinstance(value, dict) else value
        return [{_KEY: _entries(k, kind.key_type), _VALUE: _entries(v, kind.item_type)} for k, v in pairs]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {f.name: f.type for f in kind}
        return {name: _entries(inner, known.get(name)) for name, inner in value.items()}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_entries(inner, kind.value_type) for inner in value]
    return value


def _key(text: str, kind: Any) -> Any:
    """The key of an object, which JSON has as text only."""
    is_bare = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return json.loads(text) if is_bare else text


def _maps(array: Any, kind: Any) -> Any:
    if not has_map(kind):
        return array
    missing = array.is_null()
    if pa.types.is_struct(kind):
        inner = [_maps(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            array.offsets, _maps(array.values, kind.value_type), type=kind, mask=missing
        )
    keys = _maps(array.values.field(_KEY), kind.key_type)
    values = _maps(array.values.field(_VALUE), kind.item_type)
    return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=missing)
