"""Rows of a Spark task into data files of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.errors import InvalidInputError, SchemaError
from anabranch.kernel.commit_message import CommitMessage
from anabranch.spark.arrow_values import to_schema
from anabranch.spark.types import type_from_spark
from anabranch.spec import types as t
from anabranch.spec.arrow_types import to_arrow_field
from anabranch.table import Table


@dataclass(frozen=True)
class RowWriter:
    """Writes Arrow batches as Spark hands them over. Picklable."""

    context: WriteContext
    schema: pa.Schema
    """The columns that come, in their order, in the table's Arrow types."""

    @classmethod
    def of(cls, table: Table, schema: StructType) -> RowWriter:
        """A writer of rows with these columns, which go by name.

        Raises `SchemaError` if they do not fit the table.
        """
        latest = table.schema
        fields = latest.fields
        by_name = {f.name: f for f in fields}
        folded = {f.name.lower(): f for f in fields}
        targets = []
        for column in schema:
            target = by_name.get(column.name) or folded.get(column.name.lower())
            if target is None:
                raise SchemaError(
                    f"column '{column.name}' is not in '{table.name}'",
                    hint=f"its columns are: {', '.join(by_name)}. Drop the column, or add it to the table first.",
                )
            given = type_from_spark(column.dataType, where=column.name)
            if not _fits(given, target.type):
                raise SchemaError(
                    f"column '{column.name}' is {given}, but '{table.name}' has {target.type}",
                    hint=f"cast it in the query: CAST({column.name} AS {target.type.spelling}).",
                )
            targets.append(target)
        _check_once(targets, table)
        _check_missing(targets, fields, table)
        # One task, one core: Spark runs as many tasks side by side as there are cores.
        context = WriteContext(table.context.storage, latest, table.options, threads=1)
        return cls(context, pa.schema([to_arrow_field(f) for f in targets]))

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[CommitMessage]:
        """Write all rows; what was written is removed if that fails."""
        return write((self._row_batch(batch) for batch in batches), self.context)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the files of these messages."""
        abort(messages, self.context)


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


def _check_once(targets: Sequence[t.Field], table: Table) -> None:
    seen: set[str] = set()
    for target in targets:
        if target.name in seen:
            raise SchemaError(
                f"two columns of the rows are both '{target.name}' of '{table.name}'",
                hint="names differ in more than upper and lower case: rename one of them.",
            )
        seen.add(target.name)


def _check_missing(targets: Sequence[t.Field], fields: Sequence[t.Field], table: Table) -> None:
    given = {f.name for f in targets}
    missing = [f.name for f in fields if f.name not in given and not f.type.nullable and f.default is None]
    if missing:
        raise SchemaError(
            f"the rows lack column '{missing[0]}' of '{table.name}', which is NOT NULL",
            hint="add it to the query; nullable columns may be left out and become null.",
        )
