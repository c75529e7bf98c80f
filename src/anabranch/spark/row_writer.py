"""Rows of a Spark task into data files of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.errors import InvalidInputError, SchemaError
from anabranch.kernel.commit_message import CommitMessage
from anabranch.spark.arrow_values import to_type
from anabranch.spark.types import type_from_spark
from anabranch.spec import types as t
from anabranch.spec.arrow_types import to_arrow_schema
from anabranch.spec.schema import TableSchema
from anabranch.table import Table


@dataclass(frozen=True)
class RowWriter:
    """Writes Arrow batches as Spark hands them over. Picklable."""

    context: WriteContext
    places: tuple[int | None, ...]
    """For each column of the table its place among the columns that come; None if it does not come."""

    @classmethod
    def of(cls, table: Table, schema: StructType) -> RowWriter:
        """A writer of rows with these columns, which go by name.

        Raises `SchemaError` if they do not fit the table.
        """
        latest = table.schema
        places: dict[str, int] = {}
        for place, column in enumerate(schema):
            target = _target(column.name, latest, table)
            given = type_from_spark(column.dataType, where=column.name)
            if not _fits(given, target.type):
                raise SchemaError(
                    f"column '{column.name}' is {given}, but '{table.name}' has {target.type}",
                    hint=f"cast it in the query: CAST({column.name} AS {target.type.spelling}).",
                )
            if target.name in places:
                raise SchemaError(
                    f"two columns of the rows are both '{target.name}' of '{table.name}'",
                    hint="names must differ in more than upper and lower case: rename one of them.",
                )
            places[target.name] = place
        missing = [f.name for f in latest.fields if f.name not in places and not f.type.nullable]
        if missing:
            raise SchemaError(
                f"the rows lack column '{missing[0]}' of '{table.name}', which is NOT NULL",
                hint="add it to the query; nullable columns may be left out and become null.",
            )
        # One task, one core: Spark runs as many tasks side by side as there are cores.
        context = WriteContext(table.context.storage, latest, table.options, threads=1)
        return cls(context, tuple(places.get(f.name) for f in latest.fields))

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[CommitMessage]:
        """Write all rows; what was written is removed if that fails."""
        return write((self._row_batch(batch) for batch in batches), self.context)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the files of these messages."""
        abort(messages, self.context)

    def _row_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the columns and Arrow types of the table. Raises `SchemaError`."""
        schema = to_arrow_schema(self.context.schema.fields)
        columns = []
        for place, field in zip(self.places, schema, strict=True):
            column = (
                pa.nulls(batch.num_rows, field.type)
                if place is None
                else to_type(batch.column(place), field.type)
            )
            if not field.nullable and column.null_count:
                raise SchemaError(
                    f"column '{field.name}' is NOT NULL, but {column.null_count} of the rows have null there",
                    hint="filter those rows out, or give the column a value with coalesce().",
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def partition_spec(text: str) -> dict[str, str]:
    """Partition values by column from ``dt=2026-01-01/hour=3``. Raises `InvalidInputError`."""
    spec: dict[str, str] = {}
    for part in text.split("/"):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or name.strip() in spec:
            raise InvalidInputError(
                f"'{text}' names no partition",
                hint="write column=value, several separated by '/': dt=2026-01-01/hour=3.",
            )
        spec[name.strip()] = value.strip()
    return spec


_INTEGERS = (t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType)
_TEXTS = (t.CharType, t.VarCharType)
_BYTES = (t.BinaryType, t.VarBinaryType)


def _fits(given: t.DataType, target: t.DataType) -> bool:
    """Whether every value of type `given` can be stored in `target`, or is refused by its value alone."""
    for family in (_INTEGERS, (t.FloatType, t.DoubleType)):
        if isinstance(given, family) and isinstance(target, family):
            return family.index(type(given)) <= family.index(type(target))
    match given, target:
        case t.IntType(), t.TimeType():
            return True
        case t.DecimalType(), t.DecimalType():
            digits = target.precision - target.scale >= given.precision - given.scale
            return digits and target.scale >= given.scale
        case t.ArrayType(), t.ArrayType():
            return _fits(given.element, target.element)
        case t.MapType(), t.MapType():
            return _fits(given.key, target.key) and _fits(given.value, target.value)
        case t.MapType(), t.MultisetType():
            return _fits(given.key, target.element) and isinstance(given.value, t.IntType)
        case t.RowType(), t.RowType():
            names = [f.name for f in given.fields] == [f.name for f in target.fields]
            return names and all(
                _fits(g.type, w.type) for g, w in zip(given.fields, target.fields, strict=True)
            )
    return any(isinstance(given, family) and isinstance(target, family) for family in (_TEXTS, _BYTES)) or (
        type(given) is type(target)
    )


def _target(name: str, schema: TableSchema, table: Table) -> t.Field:
    """The table's column of that name, else its only one when case is ignored."""
    exact = [f for f in schema.fields if f.name == name]
    found = exact or [f for f in schema.fields if f.name.lower() == name.lower()]
    if len(found) != 1:
        raise SchemaError(
            f"column '{name}' is not in '{table.name}'",
            hint=f"its columns are: {', '.join(f.name for f in schema.fields)}. Drop the column from the query, "
            "or add it to the table first.",
        )
    return found[0]
