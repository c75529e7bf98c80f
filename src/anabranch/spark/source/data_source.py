"""The data source ``anabranch``: tables in Spark without a jar, classic or through Spark Connect.

Spark makes an object of it for every read or write, asks it for the columns, and sends it by pickle to
wherever the work is planned and done.

Filters of a query are *not* pushed down. Spark (tried: 4.1.4, 4.2.1 and 4.3.0) keeps what a reader planned
for one query and uses it for every later query of the same DataFrame: after ``df.filter("a = 3")`` a plain
``df.count()`` counts what was planned for the filter. So our reader offers no ``pushFilters``; what to
leave out is said when the table is opened, with ``scan.filter`` and ``scan.columns``, and holds for the whole
DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from anabranch.errors import OptionError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field, LocalZonedTimestampType, VarCharType
from anabranch.lineage.reads import state_read
from anabranch.options import (
    SCAN_COLUMNS,
    SCAN_FILTER,
    SCAN_ON_OVERWRITE,
    SCAN_WATERMARK_COLUMN,
    STREAM_SCHEMA,
)
from anabranch.scan.metadata import METADATA_FIELDS, columns_named, metadata_columns
from anabranch.spark.context.options import refuse_catalog_options, spelled
from anabranch.spark.context.tables import NewestState, columns_of, open_table, view_of
from anabranch.spark.lineage.lookups import tell
from anabranch.spark.source.batch import BatchReader, BatchWriter
from anabranch.spark.source.stream_writer import StreamWriter
from anabranch.spark.source.system_tables import SystemReader, system_read
from anabranch.spark.streams.stream_reader import StreamReader, follower, stream_reader
from anabranch.spark.types.columns import arrow_schema, fields_from_spark, spark_schema
from anabranch.streaming.offsets import CHANGE_COLUMN, WATERMARK_COLUMN


class AnabranchSource(DataSource):
    """Batch and streaming data source and sink for one table."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Options of the session, which those of a read or write override."""

    notices: ClassVar[Path | None] = None
    """Folder where the session's process expects notices of streaming commits; None if it does not."""

    slots: ClassVar[int | None] = None
    """Number of tasks that the session runs in parallel, if known."""

    application: ClassVar[str | None] = None
    """Name of the application, if known."""

    newest: NewestState | None = None
    """Newest state when Spark asked for the columns: the DataFrame keeps reading it."""

    @classmethod
    def name(cls) -> str:
        return "anabranch"

    def schema(self) -> StructType:
        options = self._spelled()
        system = system_read(options)
        if system is not None:
            return spark_schema(_chosen(system.schema, options))
        schema, self.newest = columns_of(options)
        return spark_schema(fields_of(schema, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._spelled()
        system = system_read(options)
        if system is not None:
            return SystemReader(system, check_columns(system.schema, schema, options))
        refuse_added(options)
        view = view_of(options, self.newest)
        tell(self.notices, state_read(view.table.context, view.snapshot))
        return BatchReader(view, check_columns(view.schema, schema, options), SCAN_FILTER.of(options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = self._spelled()
        table = open_table(options)
        return BatchWriter.of(
            table, schema, options, overwrite=overwrite, slots=self.slots, application=self.application
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._spelled()
        table = open_table(options)
        text = STREAM_SCHEMA.of(options)
        began = table.schema if text is None else TableSchema.from_json(text.encode(), path=STREAM_SCHEMA.key)
        refuse_in_stream(metadata_columns(schema.names, began))
        target = check_columns(began, schema, options)
        reader = stream_reader(table, target, options, notices=self.notices, schema=began)
        reader.slots = self.slots
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = self._spelled()
        table = open_table(options)
        return StreamWriter.of(table, schema, options, overwrite=overwrite, notices=self.notices)

    def _spelled(self) -> dict[str, str]:
        refuse_catalog_options(self.options)
        return {**self.defaults, **spelled(self.options, besides=self.defaults)}


def fields_of(schema: TableSchema, options: Mapping[str, str]) -> tuple[Field, ...]:
    """The columns that a read by these options has: those of the table that it chooses, then those that it adds.

    Raises `SchemaError`.
    """
    return _of_stream(_chosen(schema, options), options)


def stream_follower(schema: StructType, options: Mapping[str, str], *, notices: Path | None) -> StreamReader:
    """Return the stream reader of a table for the driver process, with columns that Spark already knows.

    Args:
        schema: those columns.
        options: warehouse, path and options of the read.
        notices: as in `source_with`.
    """
    asked = spelled(options, is_checked=True)
    table = open_table(asked)
    refuse_in_stream(metadata_columns(schema.names, table.schema))
    return follower(table, check_columns(table.schema, schema, asked), asked, notices=notices)


def source_with(
    defaults: Mapping[str, str],
    *,
    notices: Path | None = None,
    slots: int | None = None,
    application: str | None = None,
) -> type[AnabranchSource]:
    """Return the data source class with the options of a session, to be registered there.

    Args:
        notices: a folder of the session's process for word of streaming commits.
        slots: how many tasks the session runs side by side.
    """
    # Defined at run time, so that the class is pickled by value together with both.
    return type(
        "AnabranchSource",
        (AnabranchSource,),
        {
            "defaults": spelled(defaults, is_checked=True),
            "notices": notices,
            "slots": slots,
            "application": application,
        },
    )


def _chosen(schema: TableSchema, options: Mapping[str, str]) -> tuple[Field, ...]:
    names = SCAN_COLUMNS.of(options)
    return schema.fields if names is None else columns_named(names, schema)


def _of_stream(columns: tuple[Field, ...], options: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the columns of a stream: those of the table, then those that it adds. Raises `SchemaError`."""
    added = _added(options)
    doubled = {f.name for f in columns} & {f.name for f in added}
    if doubled:
        raise SchemaError(
            f"the table has a column '{min(doubled)}', and the stream adds one of that name",
            hint="choose other columns with scan.columns, or rename it: "
            "lake.table(...).alter().rename_column(...).apply().",
        )
    return columns + added


def _added(options: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the columns that the options of a read ask a stream to add."""
    wanted = (
        (SCAN_ON_OVERWRITE.of(options) == "changes", _CHANGE),
        (SCAN_WATERMARK_COLUMN.of(options), _WATERMARK),
    )
    return tuple(field for is_wanted, field in wanted if is_wanted)


def refuse_added(options: Mapping[str, str]) -> None:
    """Raise `OptionError` if a batch read asks for stream columns: Spark asks for the columns of both alike."""
    for field in _added(options):
        raise OptionError(
            f"the column {field.name} is one of streams, and this is a batch read",
            hint=f"leave out {SCAN_ON_OVERWRITE.key}=changes and {SCAN_WATERMARK_COLUMN.key}, or use spark.readStream.",
        )


def refuse_in_stream(names: Sequence[str]) -> None:
    """Raise `UnsupportedFeatureError` if a stream is asked for metadata columns, of these names."""
    if names:
        raise UnsupportedFeatureError(
            f"a stream was asked for {', '.join(names)}, which only batch reads have",
            feature="metadata-columns",
            hint="leave them out; _watermark is a column of streams, with scan.watermark-column.",
        )


def check_columns(schema: TableSchema, asked: StructType, options: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a read, with the columns that Spark was given, if these go with the table's.

    They are not the table's if the user gave a schema, or if the table's was changed after it was opened; columns
    added since then do not matter to a stream that is under way. Raises `SchemaError` if they do not go with
    the table's.
    """
    known = {f.name: f for f in (*METADATA_FIELDS, *schema.fields, *_added(options))}
    there = spark_schema([known[name] for name in asked.names if name in known])
    if _shape(asked) not in (_shape(there), _shape(there, nullable=True)):
        chosen = spark_schema(_chosen(schema, options))
        raise SchemaError(
            f"the table's columns are {chosen.simpleString()}, but {asked.simpleString()} was asked for",
            hint="leave out .schema(...), the table knows its columns; if they were changed meanwhile, load it again.",
        )
    return arrow_schema(fields_from_spark(asked))


def _shape(schema: StructType, *, nullable: bool | None = None) -> Any:
    """Return names, types and nullability, with all nullability set to `nullable` if given."""

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return [plain(v) for v in value] if isinstance(value, list) else value
        return {
            key: nullable if nullable is not None and key in _NULLABILITY else plain(inner)
            for key, inner in value.items()
            if key != "metadata"
        }

    return plain(schema.jsonValue())


_CHANGE = Field(
    -1, CHANGE_COLUMN, VarCharType(nullable=False), "insert, or delete for a row that was taken away"
)
_WATERMARK = Field(-1, WATERMARK_COLUMN, LocalZonedTimestampType(nullable=False), "the table's watermark")

_NULLABILITY = ("nullable", "containsNull", "valueContainsNull")
