"""Writing of a Spark task's rows to data files of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from anabranch.arrow.convert import fit, fit_column
from anabranch.arrow.event_times import source_field
from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.errors import SchemaError
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import defined_by_write
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_schema, to_arrow_type
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.options import WATERMARK_SOURCE_COLUMN
from anabranch.spark.types.arrow_values import to_type
from anabranch.spark.types.columns import arrow_type, type_from_spark
from anabranch.table import Table


@dataclass(frozen=True)
class RowWriter:
    """Writes Arrow batches as Spark hands them over. Picklable."""

    context: WriteContext
    places: tuple[int | None, ...]
    """For each table column its index among the incoming columns; None if it does not come."""
    source: int | None = None
    """Index of the column with each row's source, if the table does not have it."""

    @classmethod
    def of(cls, table: Table, schema: StructType, planned: TableSchema | None = None) -> RowWriter:
        """Return a writer of rows with these columns, which are matched by name.

        Args:
            schema: of the rows.
            planned: what to write them in; the table's schema if None.

        Raises `SchemaError` if they do not fit the table, `UnsupportedFeatureError` if it cannot be written.
        """
        latest = defined_by_write(planned or table.schema, table.options)
        check_writable(latest, path=table.context.layout.schema_path(latest.id))
        places: dict[str, int] = {}
        source, source_place = source_field(latest, table.options), None
        for place, column in enumerate(schema):
            if source is not None and column.name == source.name:
                _check_source(column)
                source_place = place
                continue
            target = target_of(column.name, latest, table)
            _check_type(type_from_spark(column.dataType, where=column.name), target, table)
            if target.name in places:
                raise SchemaError(
                    f"two columns of the rows are both '{target.name}' of '{table.name}'",
                    hint="names must differ in more than upper and lower case: rename one of them.",
                )
            places[target.name] = place
        missing = [
            f.name
            for f in latest.fields
            if f.name not in places and not f.type.nullable and f.default is None
        ]
        if missing:
            raise SchemaError(
                f"the rows lack column '{missing[0]}' of '{table.name}', which is NOT NULL",
                hint="add it to the query; nullable columns may be left out and become null.",
            )
        if source is not None and source_place is None:
            raise SchemaError(
                f"the rows have no column '{source.name}', which '{WATERMARK_SOURCE_COLUMN.key}' names",
                hint="add it to the query, or leave the option out.",
            )
        # One task, one core: Spark runs as many tasks side by side as there are cores.
        context = WriteContext(table.context.storage, latest, table.options, threads=1)
        return cls(context, tuple(places.get(f.name) for f in latest.fields), source_place)

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[CommitMessage]:
        """Write all rows; remove what was written if that fails."""
        context = replace(self.context, spill_folder=_local_folder())
        return write((self._fitted(batch) for batch in batches), context)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the files of these messages."""
        abort(messages, self.context)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the columns and Arrow types of the table. Raises `SchemaError`."""
        fields = self.context.schema.fields
        columns = [
            fit_spark(pa.nulls(batch.num_rows) if place is None else batch.column(place), f)
            for f, place in zip(fields, self.places, strict=True)
        ]
        extra = source_field(self.context.schema, self.context.all_options)
        if extra is not None and self.source is not None:
            fields = (*fields, extra)
            columns.append(_source_values(batch.column(self.source), extra))
        return pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(fields))


def target_of(name: str, schema: TableSchema, table: Table) -> t.Field:
    """Return the table's column of that name, else the only one that matches ignoring case, as Spark does."""
    exact = [f for f in schema.fields if f.name == name]
    found = exact or [f for f in schema.fields if f.name.lower() == name.lower()]
    if len(found) != 1:
        raise SchemaError(
            f"column '{name}' is not in '{table.name}'",
            hint=f"its columns are: {', '.join(f.name for f in schema.fields)}. Drop the column from the query, "
            "or add it to the table first.",
        )
    return found[0]


def fit_spark(array: Any, target: t.Field) -> Any:
    """Convert a column from Spark to the Arrow type of the table's. Raises `SchemaError`."""
    if _has_times(target.type) and not pa.types.is_null(array.type):
        try:
            array = to_type(array, to_arrow_type(target.type), exact=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(f"column '{target.name}' holds a value that does not fit: {error}") from error
    return fit_column(array, target)


def _check_type(given: t.DataType, target: t.Field, table: Table) -> None:
    """Check a type by the rules of the embedded engine, applied to zero rows."""
    try:
        fit_spark(pa.array([], arrow_type(given)), target)
    except SchemaError as error:
        raise SchemaError(
            f"column '{target.name}' is {given.spelling}, but '{table.name}' has {target.type}",
            hint=f"cast it in the query: CAST({target.name} AS {target.type.spelling}).",
        ) from error


def _check_source(column: StructField) -> None:
    """Raise `SchemaError` for a source column that cannot be written as text."""
    if not isinstance(column.dataType, StringType | IntegralType):
        raise SchemaError(
            f"column '{column.name}' is {column.dataType.simpleString()}, but names the source of a row",
            hint="make it text, for example concat_ws('-', topic, partition).",
        )


def _source_values(array: Any, source: t.Field) -> Any:
    """Convert the sources of rows to text. Raises `SchemaError` if one is null."""
    return fit(array.cast(pa.string()), source.type, source.name)


def _has_times(data_type: t.DataType) -> bool:
    """Whether a type contains times of day, which Spark has as plain numbers."""
    match data_type:
        case t.TimeType():
            return True
        case t.ArrayType(element=inner) | t.MultisetType(element=inner):
            return _has_times(inner)
        case t.MapType(key=key, value=value):
            return _has_times(key) or _has_times(value)
        case t.RowType(fields=fields):
            return any(_has_times(f.type) for f in fields)
        case _:
            return False


def _local_folder() -> str | None:
    """Return one of Spark's local disks on this machine; None if Spark does not say which."""
    folders = [f for f in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(f)]  # noqa: PTH112
    task = TaskContext.get()
    return folders[(0 if task is None else task.partitionId()) % len(folders)] if folders else None
