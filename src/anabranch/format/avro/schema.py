"""Writer schemas of Avro files, flattened into columns.

The encoding of a record is the encoding of its fields one after the other, so a nested record and the same
fields put into its parent are the same bytes. `WriterSchema` uses that: whatever the nesting and the names
of a writer, decoders see one flat record with the columns ``c0``, ``c1``... A union of null and a record
becomes a column for the branch number, which must say "record" in every row, followed by the record's.

Named types are written out where they are referred to, logical types are dropped (a timestamp stays the
number that is stored), int is widened to long. What a hostile schema could turn into unbounded work is
refused: recursion, excessive nesting or size, arrays whose items take no bytes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import fastavro
import polars as pl

from anabranch.format.avro.container import container_head, write_long

Node: TypeAlias = "str | dict[str, Any] | list[Any]"
"""A normalised schema: JSON of primitives, records, arrays, maps, fixed, enums and unions."""

END_MARK = b"anabranch:end-of-rows"
"""Value of every string and bytes of the row that is appended to see that decoding ended where it must."""

_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEPTH = 16
_MAX_NODES = 5_000
_MAX_FIXED = 1 << 20


class SchemaProblemError(Exception):
    """A writer schema is not valid, or not one that is decoded; the caller names the file."""


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """One column of the flattened record.

    Attributes:
        path: names of the field and of the records around it, joined by dots; None for a branch number.
        dtype: Polars type, None if the field has no column form.
    """

    path: str | None
    dtype: pl.DataType | None


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A writer schema, ready to decode with.

    Attributes:
        columns: of the flat record, in the order of their encoding.
        positions: of the columns, by their path.
        branches: the number that each column of branch numbers must hold, by position.
        min_size: bytes that a row takes at least; never 0.
        head: header of a container of the flat record, up to its sync marker; None if Polars cannot decode it.
        end_row: a valid row that holds `END_MARK`.
        mark: position of the first column that holds it, None if there is none.
        nested: the schema for fastavro, with the nesting as found.
    """

    columns: tuple[AvroColumn, ...]
    positions: dict[str, int]
    branches: dict[int, int]
    min_size: int
    head: bytes | None
    end_row: bytes
    mark: int | None
    nested: Any


@functools.lru_cache(maxsize=64)
def writer_schema(text: bytes) -> WriterSchema:
    """The writer schema in the header of a container. Raises `SchemaProblemError`."""
    try:
        return _prepare(_Normaliser().node(json.loads(text), "", 0))
    except SchemaProblemError:
        raise
    except Exception as error:  # there is no end to what can be wrong in a schema
        raise SchemaProblemError(
            f"it is not a valid Avro schema ({type(error).__name__}: {error})"
        ) from error


def _prepare(root: Node) -> WriterSchema:
    if _record_branch(root)[1] is None:
        raise SchemaProblemError("its rows are not records")
    flat = _Flattener()
    flat.add(root, "")
    mark = next((i for i, node in enumerate(flat.nodes) if node in ("string", "bytes")), None)
    return WriterSchema(
        columns=tuple(flat.columns),
        positions={column.path: i for i, column in enumerate(flat.columns) if column.path is not None},
        branches=flat.branches,
        min_size=max(_min_size(root), 1),
        head=None if mark is None or None in flat.nodes else _container_head(flat.nodes),
        end_row=b"".join(_end_value(root)),
        mark=mark,
        nested=fastavro.parse_schema(root),
    )


class _Normaliser:
    """Writes out named types and drops what does not change the encoding."""

    def __init__(self) -> None:
        self.named: dict[str, tuple[dict[str, Any], str]] = {}
        self.open: set[str] = set()
        self.nodes = 0

    def node(self, schema: Any, namespace: str, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise SchemaProblemError("it is nested or repeated without a sensible bound")
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return "long" if schema == "int" else schema
            full = _full_name(schema, namespace)
            definition, home = self.named[full if full in self.named else schema]
            return self.definition(definition, home, depth)
        if isinstance(schema, list):
            return [self.node(branch, namespace, depth + 1) for branch in schema]
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self.definition(schema, namespace, depth)
        if kind == "array":
            items = self.node(schema["items"], namespace, depth + 1)
            if _min_size(items) == 0:
                raise SchemaProblemError("an array of items that take no bytes")
            return {"type": "array", "items": items}
        if kind == "map":
            return {"type": "map", "values": self.node(schema["values"], namespace, depth + 1)}
        return self.node(kind, namespace, depth + 1)

    def definition(self, schema: dict[str, Any], namespace: str, depth: int) -> Node:
        full = _full_name(schema["name"], schema.get("namespace") or namespace)
        if full in self.open:
            raise SchemaProblemError(f"the type {full} contains itself")
        self.named[full] = (schema, namespace)
        fresh = f"t{self.nodes}"
        if schema["type"] == "enum":
            return {
                "type": "enum",
                "name": fresh,
                "symbols": [f"s{i}" for i, _ in enumerate(schema["symbols"])],
            }
        if schema["type"] == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or not 0 <= size <= _MAX_FIXED:
                raise SchemaProblemError(f"a fixed type of size {size!r}")
            return {"type": "fixed", "name": fresh, "size": size}
        self.open.add(full)
        inner = full.rpartition(".")[0]
        names = [field["name"] for field in schema["fields"]]
        if len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
            raise SchemaProblemError(f"the field names of {full} are not distinct plain names")
        fields = [
            {"name": field["name"], "type": self.node(field["type"], inner, depth + 1)}
            for field in schema["fields"]
        ]
        self.open.discard(full)
        return {"type": "record", "name": fresh, "fields": fields}


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_record(node: Node) -> bool:
    return isinstance(node, dict) and node["type"] == "record"


def _record_branch(node: Node) -> tuple[int | None, dict[str, Any] | None]:
    """A record itself, or the record of a union of null and a record and its branch number."""
    if isinstance(node, dict) and _is_record(node):
        return None, node
    if isinstance(node, list) and len(node) == 2 and "null" in node:
        branch = 1 - node.index("null")
        if _is_record(node[branch]):
            return branch, node[branch]
    return None, None


class _Flattener:
    """Puts the fields of nested records into one record."""

    def __init__(self) -> None:
        self.columns: list[AvroColumn] = []
        self.nodes: list[Node | None] = []
        self.branches: dict[int, int] = {}

    def add(self, node: Node, path: str) -> None:
        branch, record = _record_branch(node)
        if branch is not None:
            self.branches[len(self.columns)] = branch
            self.columns.append(AvroColumn(None, None))
            self.nodes.append("long")
        if record is not None:
            for field in record["fields"]:
                self.add(field["type"], f"{path}.{field['name']}" if path else field["name"])
        else:
            self.columns.append(AvroColumn(path, _dtype(node)))
            self.nodes.append(_polars_node(node))


def _container_head(nodes: list[Node | None]) -> bytes:
    fields = [{"name": f"c{i}", "type": node} for i, node in enumerate(nodes)]
    return container_head(json.dumps({"type": "record", "name": "r", "fields": fields}).encode(), "null")


_DTYPES: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "string": pl.String(),
    "bytes": pl.Binary(),
}


def _dtype(node: Node) -> pl.DataType | None:
    """Polars type of values of a node, None if they have no column form."""
    if isinstance(node, str):
        return _DTYPES.get(node)
    if isinstance(node, list):
        value = _nullable(node)
        return None if value is None else _dtype(value)
    if node["type"] == "array":
        items = _dtype(node["items"])
        return None if items is None else pl.List(items)
    if node["type"] == "record":
        members = {field["name"]: _dtype(field["type"]) for field in node["fields"]}
        if None not in members.values():
            return pl.Struct({name: member for name, member in members.items() if member is not None})
    return None


def _polars_node(node: Node) -> Node | None:
    """The node as Polars can decode or skip it, None if it cannot."""
    if isinstance(node, str):
        return None if node == "null" else node
    if isinstance(node, list):
        value = _nullable(node)
        inner = None if value is None else _polars_node(value)
        return None if inner is None else [inner if branch == value else "null" for branch in node]
    match node["type"]:
        case "enum":
            return "long"
        case "fixed":
            return node if node["size"] else None
        case "array":
            items = _polars_node(node["items"])
            return None if items is None else {"type": "array", "items": items}
        case "record":
            members = [(field["name"], _polars_node(field["type"])) for field in node["fields"]]
            if any(member is None for _, member in members):
                return None
            return {**node, "fields": [{"name": name, "type": member} for name, member in members]}
        case _:
            return None


def _nullable(union: list[Any]) -> Node | None:
    """The other branch of a union of null and one more type."""
    if len(union) != 2 or union.count("null") != 1:
        return None
    other: Node = union[1 - union.index("null")]
    return other


def _min_size(node: Node) -> int:
    """Bytes that a value takes at least."""
    if isinstance(node, str):
        return {"null": 0, "float": 4, "double": 8}.get(node, 1)
    if isinstance(node, list):
        return 1 + min(map(_min_size, node))
    match node["type"]:
        case "record":
            return sum(_min_size(field["type"]) for field in node["fields"])
        case "fixed":
            return int(node["size"])
        case _:
            return 1


def _end_value(node: Node) -> Iterator[bytes]:
    """Encoding of the value a node has in the row that is appended."""
    if isinstance(node, list):
        branch, _ = _record_branch(node)
        chosen = 0 if branch is None else branch
        yield write_long(chosen)
        yield from _end_value(node[chosen])
    elif isinstance(node, dict) and node["type"] == "record":
        for field in node["fields"]:
            yield from _end_value(field["type"])
    elif isinstance(node, dict):
        yield bytes(node["size"]) if node["type"] == "fixed" else b"\0"
    else:
        yield {
            "null": b"",
            "float": bytes(4),
            "double": bytes(8),
            "string": write_long(len(END_MARK)) + END_MARK,
            "bytes": write_long(len(END_MARK)) + END_MARK,
        }.get(node, b"\0")
