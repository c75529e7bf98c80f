"""Reading Avro files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from anabranch.arrow.files import check_rows
from anabranch.errors import CorruptTableError
from anabranch.format.avro.container import Block, read_blocks, read_header
from anabranch.format.avro.schema import SchemaProblemError, writer_schema
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.kernel.scan.split import SplitFile
from anabranch.storage.protocol import Storage

ToArrow = Callable[[list[Any]], pa.Array]


class AvroData:
    """An Avro file; a single piece, since only decoding shows where rows are."""

    def __init__(self, storage: Storage, file: SplitFile) -> None:
        self.path = file.path
        self.file = file
        self.data = storage.get(file.path)
        self.header = read_header(self.data, path=file.path)
        try:
            self.schema = writer_schema(self.header.schema)
        except SchemaProblemError as problem:
            raise CorruptTableError(f"its Avro schema cannot be used: {problem}", path=file.path) from problem
        self.nodes = _Nodes(json.loads(self.header.schema))

    def pieces(self) -> Sequence[AvroRows]:
        return [AvroRows(self)]


@dataclass(frozen=True, slots=True)
class AvroRows:
    """The rows of an Avro file."""

    file: AvroData

    @property
    def rows(self) -> int:
        return self.file.file.row_count

    def size(self, columns: Sequence[t.Field]) -> int:
        return 4 * len(self.file.data)

    def read(self, columns: Sequence[t.Field]) -> pa.Table:
        tables = list(self._tables(columns))
        return pa.concat_tables(tables) if tables else self._table([], self._converters(columns))

    def stream(self, columns: Sequence[t.Field], batch_rows: int) -> Iterator[pa.Table]:
        for table in self._tables(columns):
            for start in range(0, len(table), batch_rows):
                yield table.slice(start, batch_rows)

    def _tables(self, columns: Sequence[t.Field]) -> Iterator[pa.Table]:
        converters = self._converters(columns)
        count = 0
        for block in read_blocks(self.file.data, self.file.header, path=self.file.path):
            count += block.rows
            yield self._table(self._records(block), converters)
        check_rows(count, self.file.file)

    def _converters(self, columns: Sequence[t.Field]) -> Mapping[str, ToArrow]:
        members = self.file.nodes.members(self.file.nodes.root)
        converters = {}
        for column in columns:
            if column.name in members:
                try:
                    converters[column.name] = _to_arrow(self.file.nodes, members[column.name], column.type)
                except KeyError as error:
                    raise CorruptTableError(
                        f"column '{column.name}' is {column.type}, its Avro schema has no {error}",
                        path=self.file.path,
                    ) from error
        return converters

    def _records(self, block: Block) -> list[dict[str, Any]]:
        source = io.BytesIO(block.payload)
        if block.rows * self.file.schema.min_size > len(block.payload):
            raise self._damaged(f"{block.rows} rows in {len(block.payload)} bytes")
        try:
            records: list[Any] = [
                fastavro.schemaless_reader(source, self.file.schema.nested, None) for _ in range(block.rows)
            ]
        except Exception as error:  # whatever damaged bytes make of the decoder
            raise self._damaged(f"{type(error).__name__}: {error}") from error
        if source.tell() != len(block.payload):
            raise self._damaged(f"{len(block.payload) - source.tell()} bytes are left after the last row")
        return records

    def _table(self, records: list[dict[str, Any]], converters: Mapping[str, ToArrow]) -> pa.Table:
        if not converters:
            return pa.table(
                {"": pa.nulls(len(records))}
            )  # tables of no columns forget their rows when joined
        try:
            return pa.table(
                {name: convert([record[name] for record in records]) for name, convert in converters.items()}
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(f"a value does not fit its column: {error}") from error

    def _damaged(self, what: str) -> CorruptTableError:
        return CorruptTableError(f"an Avro block cannot be decoded ({what})", path=self.file.path)


class _Nodes:
    """Nodes of a writer schema; their logical types define the meaning of numbers."""

    def __init__(self, root: Any) -> None:
        self._named: dict[str, Any] = {}
        self._collect(root)
        self.root = root

    def plain(self, node: Any) -> Any:
        """Return the node without its null branch."""
        if isinstance(node, list):
            others = [branch for branch in node if branch != "null"]
            return self.plain(others[0]) if len(others) == 1 else node
        if isinstance(node, str):
            return self._named.get(node.rpartition(".")[2], {"type": node})
        if isinstance(node, dict) and isinstance(node["type"], dict | list):
            return self.plain(node["type"])
        return node

    def members(self, node: Any) -> dict[str, Any]:
        """Return the fields of a record and their nodes."""
        return {field["name"]: field["type"] for field in self.plain(node)["fields"]}

    def _collect(self, node: Any) -> None:
        if isinstance(node, list):
            for branch in node:
                self._collect(branch)
        elif isinstance(node, dict):
            if "name" in node and "fields" in node:
                self._named[node["name"].rpartition(".")[2]] = node
                for field in node["fields"]:
                    self._collect(field["type"])
            for key in ("items", "values", "type"):
                if isinstance(node.get(key), dict | list):
                    self._collect(node[key])


def _to_arrow(nodes: _Nodes, node: Any, data_type: t.DataType) -> ToArrow:
    """Return a converter from a node's decoded values to an Arrow array, typed as the column where Avro allows."""
    plain = nodes.plain(node)
    match data_type:
        case t.RowType(fields=fields):
            return _rows_to_arrow(nodes, plain, fields)
        case t.ArrayType(element=element):
            inner = _to_arrow(nodes, plain["items"], element)
            return lambda values: _lists(values, inner)
        case t.MapType(key=key, value=value):
            return _maps_to_arrow(nodes, plain, key, value)
        case t.MultisetType(element=element):
            return _maps_to_arrow(nodes, plain, element, t.IntType(nullable=False))
        case t.DecimalType(precision=precision, scale=scale):
            stored = pa.decimal128(plain.get("precision", precision), plain.get("scale", scale))
            return lambda values: _decimals(values, stored)
        case t.TimestampType() | t.LocalZonedTimestampType():
            unit = _unit(plain, default="ms" if data_type.precision <= 3 else "us")
            return lambda values: pa.array(values, pa.int64()).view(pa.timestamp(unit))
        case t.TimeType() if _unit(plain, default="ms") == "us":
            return lambda values: pa.array(values, pa.int64()).view(pa.time64("us"))
        case _:
            arrow_type = to_arrow_type(data_type)
            if pa.types.is_temporal(arrow_type):
                return lambda values: pa.array(values, pa.int32()).view(arrow_type)
            return lambda values: pa.array(values, arrow_type)


def _unit(node: Any, *, default: str) -> str:
    text = str(node.get("logicalType", "")).rpartition("-")[2]
    return {"millis": "ms", "micros": "us", "nanos": "ns"}.get(text, default)


def _rows_to_arrow(nodes: _Nodes, node: Any, fields: Sequence[t.Field]) -> ToArrow:
    members = nodes.members(node)
    converters = {f.name: _to_arrow(nodes, members[f.name], f.type) for f in fields if f.name in members}

    def convert(values: list[Any]) -> pa.Array:
        children = {
            name: inner([None if value is None else value[name] for value in values])
            for name, inner in converters.items()
        }
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(list(children.values()), list(children), mask=mask)

    return convert


def _maps_to_arrow(nodes: _Nodes, node: Any, key: t.DataType, value: t.DataType) -> ToArrow:
    """Return a converter for maps with non-text keys, which Avro has as arrays of key-value records."""
    if node["type"] == "map":
        keys: ToArrow = lambda found: pa.array(found, pa.string())  # noqa: E731
        items = _to_arrow(nodes, node["values"], value)
        entries: Callable[[Any], Iterable[tuple[Any, Any]]] = lambda found: found.items()  # noqa: E731
    else:
        members = nodes.members(node["items"])
        keys, items = _to_arrow(nodes, members["key"], key), _to_arrow(nodes, members["value"], value)
        entries = lambda found: ((entry["key"], entry["value"]) for entry in found)  # noqa: E731

    def convert(values: list[Any]) -> pa.Array:
        pairs = [pair for found in values if found is not None for pair in entries(found)]
        return pa.MapArray.from_arrays(
            _offsets(values), keys([k for k, _ in pairs]), items([v for _, v in pairs]), mask=_mask(values)
        )

    return convert


def _lists(values: list[Any], inner: ToArrow) -> pa.Array:
    elements = inner([element for found in values if found is not None for element in found])
    return pa.ListArray.from_arrays(_offsets(values), elements, mask=_mask(values))


def _offsets(values: list[Any]) -> pa.Array:
    offsets = [0]
    for found in values:
        offsets.append(offsets[-1] + (0 if found is None else len(found)))
    return pa.array(offsets, pa.int32())


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([found is None for found in values], pa.bool_())


def _decimals(values: list[Any], stored: pa.DataType) -> pa.Array:
    """Convert unscaled values (big-endian two's complement bytes) to decimals."""
    unscaled = [0 if v is None else int.from_bytes(v, "big", signed=True) for v in values]
    limit = 10**stored.precision
    if any(not -limit < number < limit for number in unscaled):
        raise ValueError(f"a number of more than {stored.precision} digits")
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in unscaled)
    return pa.Array.from_buffers(stored, len(values), [_validity(values), pa.py_buffer(data)])


def _validity(values: list[Any]) -> pa.Buffer | None:
    bits = pa.array([v is not None for v in values], pa.bool_()).buffers()[1]
    return bits if any(v is None for v in values) else None
