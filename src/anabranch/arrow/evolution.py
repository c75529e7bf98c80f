"""Mapping of a data file's columns to those of the table: by name within the file's schema, by id between schemas.

A data file never changes, its table does. The schema a file was written with says what each name in the file
means; ids connect it to the schema that is read. What the file lacks is null, what the table dropped is passed
over, and a column of the same name but another id is another column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow import nested
from anabranch.arrow.files import without_columns
from anabranch.arrow.stored_values import restored, timestamps
from anabranch.errors import AnabranchError, CorruptTableError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_field, to_arrow_type
from anabranch.format.types.widening import ReadAs, digits_of, reading

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class _Column:
    target: t.Field
    source: t.Field | None
    """Column in the file's schema; None if the file was written before the column was added."""
    convert: Convert = field(default=lambda array: array)


class ColumnMapping:
    """Mapping from files of one schema to some columns of the table.

    Args:
        schema: what the files were written with.

    Raises:
        UnsupportedFeatureError: a column's type was changed in a way that is not implemented.
    """

    def __init__(self, schema: TableSchema, fields: Sequence[t.Field]) -> None:
        self._schema_id = schema.id
        sources = {f.id: f for f in schema.fields}
        self._columns = [_column(f, sources.get(f.id), schema) for f in fields]
        self._schema = pa.schema([to_arrow_field(f) for f in fields])

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def sources(self) -> list[t.Field]:
        """Columns needed from the file, as in its schema."""
        return [c.source for c in self._columns if c.source is not None]

    def apply(self, rows: pa.Table, path: str) -> pa.Table:
        """Convert rows of a file to rows of the table.

        Args:
            rows: columns of the file, at least those of `sources` that are in it.

        Raises:
            CorruptTableError: the file holds something else than its schema says.
            SchemaError: a column is NOT NULL here, but null in the file, whose schema allows that.
            UnsupportedFeatureError: a timestamp is outside of the years that Arrow expresses in nanoseconds.
        """
        count = rows.num_rows
        present = {name: position for position, name in enumerate(rows.schema.names)}
        columns = []
        for column, wanted in zip(self._columns, self._schema, strict=True):
            position = None if column.source is None else present.get(column.source.name)
            if column.source is None or position is None:
                values = pa.chunked_array([pa.nulls(count, wanted.type)])
            else:
                values = _converted(rows.column(position), column, wanted.type, path)
            if values.null_count and not wanted.nullable:
                raise self._null_error(column, values.null_count, count, path)
            columns.append(values)
        if not columns:
            return without_columns(count)
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _null_error(self, column: _Column, nulls: int, count: int, path: str) -> AnabranchError:
        name = column.target.name
        found = f"{path}: column '{name}' is NOT NULL, but null in {nulls} of {count} rows"
        if column.source is not None and not column.source.type.nullable:
            return CorruptTableError(found)
        return SchemaError(
            f"{found}: in schema {self._schema_id}, with which they were written, it "
            + ("does not exist" if column.source is None else "may be null"),
            hint=f"{_BEGUN_BEFORE} Otherwise alter the table to allow nulls in '{name}'.",
        )


def _converted(values: pa.ChunkedArray, column: _Column, target: pa.DataType, path: str) -> pa.ChunkedArray:
    assert column.source is not None
    try:
        chunks = [column.convert(restored(chunk, column.source.type)) for chunk in values.chunks]
        return pa.chunked_array(chunks, target)
    except _NullInside as found:
        raise SchemaError(
            f"{path}: column '{column.target.name}' is {column.target.type}, but {found} is null in some rows, as "
            f"{column.source.type}, with which they were written, allows",
            hint=f"{_BEGUN_BEFORE} Otherwise alter the table to allow nulls there.",
        ) from found
    except OverflowError as error:
        raise UnsupportedFeatureError(
            f"column '{column.source.name}' is {column.source.type} and holds {error}",
            feature="timestamp-range",
            path=path,
            hint="Nanoseconds reach from 1677 to 2262. Read the other columns here, and this one with Spark.",
        ) from error
    except (pa.ArrowException, TypeError) as error:
        raise CorruptTableError(
            f"column '{column.source.name}' holds {values.type}, which is not {column.source.type}: {error}",
            path=path,
        ) from error


def _column(target: t.Field, source: t.Field | None, schema: TableSchema) -> _Column:
    if source is None:
        return _Column(target, None)
    try:
        return _Column(target, source, converter(source.type, target.type))
    except _NotOffered as refusal:
        raise UnsupportedFeatureError(
            f"column '{target.name}' is {target.type}, but {source.type} in schema {schema.id}, with which files "
            f"were written; reading {refusal.source} as {refusal.target} is not offered",
            feature="type-change",
            hint=f"{_BEGUN_BEFORE} Otherwise read the table as of a snapshot from before the change, or compact it "
            "with the engine that made it.",
        ) from refusal


_BEGUN_BEFORE = (
    "If the schema was changed after this read began, begin it again; a stream goes on from its checkpoint."
)


class _NotOffered(Exception):  # noqa: N818
    """The type conversion is not supported."""

    def __init__(self, source: t.DataType, target: t.DataType) -> None:
        super().__init__(source, target)
        self.source = source
        self.target = target


class _NullInside(Exception):  # noqa: N818
    """A field inside of a value is null although it must not be."""


def converter(source: t.DataType, target: t.DataType) -> Convert:
    """Return a converter between the Arrow types of two column types. Raises `_NotOffered`."""
    if source.with_nullable(True) == target.with_nullable(True):
        return _same
    match source, target:
        case t.RowType(), t.RowType():
            return _row_converter(source, target)
        case t.ArrayType(), t.ArrayType():
            return _list_converter(source, target)
        case (t.MapType(), t.MapType()) if source.key.with_nullable(True) == target.key.with_nullable(True):
            return _map_converter(source, target)
        case _:
            return _atomic_converter(source, target)


def _same(array: pa.Array) -> pa.Array:
    return array


def _row_converter(source: t.RowType, target: t.RowType) -> Convert:
    positions = {f.id: position for position, f in enumerate(source.fields)}
    arrow_type = to_arrow_type(target)
    steps: list[tuple[int | None, Convert, pa.DataType]] = []
    required: list[tuple[int, str]] = []
    for at, (member, arrow_field) in enumerate(zip(target.fields, arrow_type, strict=True)):
        position = positions.get(member.id)
        convert = _same if position is None else converter(source.fields[position].type, member.type)
        steps.append((position, convert, arrow_field.type))
        if not member.type.nullable and (position is None or source.fields[position].type.nullable):
            required.append((at, member.name))

    def convert_rows(array: pa.Array) -> pa.Array:
        children = [
            pa.nulls(len(array), child_type) if position is None else convert(array.field(position))
            for position, convert, child_type in steps
        ]
        for at, name in required:
            if pc.any(pc.and_(children[at].is_null(), array.is_valid())).as_py():
                raise _NullInside(f"'{name}'")
        return nested.with_children(array, children, arrow_type)

    return convert_rows


def _list_converter(source: t.ArrayType, target: t.ArrayType) -> Convert:
    convert, arrow_type = converter(source.element, target.element), to_arrow_type(target)
    forbids_nulls = source.element.nullable and not target.element.nullable

    def convert_lists(array: pa.Array) -> pa.Array:
        if forbids_nulls:
            array = nested.without_hidden(array)
        values = nested.list_values(array)
        if forbids_nulls and values.null_count:
            raise _NullInside("an element")
        return nested.with_values(array, convert(values), arrow_type)

    return convert_lists


def _map_converter(source: t.MapType, target: t.MapType) -> Convert:
    convert, arrow_type = converter(source.value, target.value), to_arrow_type(target)
    forbids_nulls = source.value.nullable and not target.value.nullable

    def convert_maps(array: pa.Array) -> pa.Array:
        if forbids_nulls:
            array = nested.without_hidden(array)
        keys, items = nested.map_entries(array)
        if forbids_nulls and items.null_count:
            raise _NullInside("a value")
        return nested.with_entries(array, keys, convert(items), arrow_type)

    return convert_maps


def _atomic_converter(source: t.DataType, target: t.DataType) -> Convert:
    """Return a lossless conversion, or one that cuts text to a shorter length, as Paimon reads it."""
    arrow_type = to_arrow_type(target)
    match reading(source, target):
        case ReadAs.SAME:
            return _same
        case ReadAs.CAST:
            return lambda array: array.cast(arrow_type)
        case ReadAs.ROUNDED:
            return lambda array: array.cast(arrow_type, safe=False)
        case ReadAs.DIGITS:
            whole = pa.decimal128(digits_of(source), 0)
            return lambda array: array.cast(whole).cast(arrow_type)
        case ReadAs.TEXT:
            assert isinstance(source, t.CharType | t.VarCharType)
            assert isinstance(target, t.CharType | t.VarCharType)
            return _text_converter(source.length, target)
        case ReadAs.TIME:
            return lambda array: timestamps(array, arrow_type)
        case None:
            raise _NotOffered(source, target)


def _text_converter(source_length: int, target: t.CharType | t.VarCharType) -> Convert:
    def convert_text(array: pa.Array) -> pa.Array:
        values: Any = array
        if target.length < source_length:
            values = pc.utf8_slice_codeunits(values, 0, target.length)
        if isinstance(target, t.CharType):
            values = pc.utf8_rpad(values, target.length)
        return values

    return convert_text
