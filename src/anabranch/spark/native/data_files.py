"""What the tasks of a write are told: the ``DataFiles`` of our Java for rows of one kind into one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as st

from anabranch.arrow.files import native_path
from anabranch.arrow.parquet_encode import SCHEMA_SETTINGS, PageSettings
from anabranch.arrow.parquet_footer import JoinedFile
from anabranch.arrow.stored_values import storable_schema
from anabranch.expr.row_rules import RowRules
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import watermark_definition
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_schema, to_arrow_type
from anabranch.format.types.grammar import inner_types
from anabranch.kernel.log.cache import MetadataCache
from anabranch.options import (
    FILE_FORMAT,
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    TARGET_FILE_SIZE,
    WATERMARK_MAX_AHEAD,
    WATERMARK_SOURCE_COLUMN,
    WRITE_BUFFER_FOR_APPEND,
    WRITE_BUFFER_SIZE,
)
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import compiled_class, compiled_object, made_by
from anabranch.spark.native.internals import unsupported
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.types.columns import spark_schema_json, spark_type

_FORMAT, _FILE = "parquet", "data"
_NO_LIMIT = (1 << 63) - 1
_MICROS = {"s": 1_000_000, "ms": 1_000}
"""Microseconds by which a moment must be divisible, by the unit of its column."""
_KEY_TYPES = (
    t.BooleanType, t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType, t.DateType, t.DecimalType, t.CharType, t.VarCharType,
)  # fmt: skip
"""Types of partition columns whose folders our Java spells as Python does."""
_CODECS = {"zstd": "ZSTD", "lz4": "LZ4_RAW", "snappy": "SNAPPY", "gzip": "GZIP", "none": "UNCOMPRESSED"}
_KEPT_BYTES = 1 << 20
"""Of settings, by which what was made of them is found for the next batch of a stream."""


def impossible(jvm: Jvm, rows: RowWriter) -> str | None:
    """Why tasks of Spark do not write rows of the table natively, whatever their columns; None if they do."""
    return unsupported(jvm.spark) or _reason(rows) or _unspellable(jvm, rows)


def data_files(
    jvm: Jvm,
    rows: RowWriter,
    given: str,
    positions: Sequence[int | None],
    *,
    ordered: bool,
    first_batch: int = 0,
) -> Any:
    """The ``DataFiles`` for rows of some columns, which have the types of the table's columns.

    Args:
        jvm: of the session.
        rows: what would write them the portable way.
        given: columns of the rows that come, as Spark's JSON.
        positions: for each column of the table its place among these; None if it does not come.
        ordered: whether rows of one bucket come together.
        first_batch: rows of earlier batches of a stream are not written.

    Raises:
        NotCompiledError: this version of Spark does not compile our Java.
    """
    context = rows.context
    schema, options = context.schema, context.all_options
    pages = PageSettings.of(options)
    definition = watermark_definition(schema)
    keyed = schema.bucket_keys if schema.bucket > 1 else ()
    budget = WRITE_BUFFER_SIZE.of(options) if WRITE_BUFFER_FOR_APPEND.of(options) else _NO_LIMIT
    settings = {
        "root": _root(rows),
        "columns": spark_schema_json(schema.fields),
        "given": given,
        "positions": ",".join(str(-1 if place is None else place) for place in positions),
        "limits": ",".join(str(limit) for f in schema.fields for limit in _limits(f.type)),
        "partition-keys": _places(schema, schema.partition_keys),
        "bucket-keys": _places(schema, keyed),
        "buckets": str(max(1, schema.bucket)),
        "ordered": str(ordered).lower(),
        "first-batch": str(first_batch),
        "time-column": _places(schema, [] if definition is None else [definition.column]) or "-1",
        "max-ahead": str(WATERMARK_MAX_AHEAD.of(options)),
        "legacy-names": str(PARTITION_LEGACY_NAME.of(options)).lower(),
        "default-name": PARTITION_DEFAULT_NAME.of(options),
        "slots": str(jvm.spark.sparkContext.getConf().get("spark.executor.cores", "0")),
        "version": str(jvm.spark.version),
        "compression": _CODECS[pages.codec],
        "compression-level": str(pages.level or 0),
        "checksums": str(pages.checksum).lower(),
        "target-size": str(TARGET_FILE_SIZE.of(options)),
        "buffer-size": str(budget),
    }
    make = compiled_class(jvm, "DataFiles")
    kept = jvm.once("data files", lambda: MetadataCache(_KEPT_BYTES))
    footer = _empty_file(schema.fields)

    def made() -> Any:
        return made_by(jvm, make, jvm.map(settings), footer)

    return kept.get_or(
        (make.toString(), *settings.values()), made, lambda _: sum(map(len, settings.values()))
    )


def mismatch(rows: RowWriter, given: st.StructType) -> str | None:
    """Why rows of these columns are not written as they are; None if they are."""
    for field, place in zip(rows.context.schema.fields, rows.places, strict=True):
        wanted = spark_type(field.type)
        if place is not None and not alike(given[place].dataType, wanted):
            return other_type(field.name, given[place].dataType, wanted)
    return None


def other_type(name: str, given: st.DataType, wanted: st.DataType) -> str:
    """That a column of the rows is of another type than the table's, as a reason."""
    return (
        f"column '{name}' is {wanted.simpleString()} and not {given.simpleString()}, as in the rows: each value is "
        "checked"
    )


def commits(jvm: Jvm, files: Any) -> Any:
    """The ``Commits`` of our Java: what hears what the tasks wrote. Raises `NotCompiledError`."""
    return compiled_object(jvm, "Commits", files)


def alike(given: st.DataType, wanted: st.DataType) -> bool:
    """Whether values are the same in both types; nullability is checked value by value."""
    match given, wanted:
        case st.ArrayType(), st.ArrayType():
            return alike(given.elementType, wanted.elementType)
        case st.MapType(), st.MapType():
            return alike(given.keyType, wanted.keyType) and alike(given.valueType, wanted.valueType)
        case st.StructType(), st.StructType():
            return given.names == wanted.names and all(
                alike(g.dataType, w.dataType) for g, w in zip(given, wanted, strict=True)
            )
        case _:
            return given == wanted


def _reason(rows: RowWriter) -> str | None:
    """Why rows of the table are not written natively, whatever the frame."""
    context = rows.context
    schema, options = context.schema, context.all_options
    if native_path(context.storage, _FILE) is None:
        return f"the table lies in {context.storage.url}, and not in a folder of this machine"
    if FILE_FORMAT.of(options) != _FORMAT:
        return f"its files are of format {FILE_FORMAT.of(options)}"
    rules = RowRules.of(schema)
    if rules.fields:
        return f"column '{rules.fields[0].name}' has a DEFAULT"
    if rules.checks:
        return f"the table has the CHECK '{rules.checks[0].name}'"
    source = WATERMARK_SOURCE_COLUMN.of(options)
    if source is not None:
        return f"its watermark is that of each source, which column '{source}' names"
    for field in schema.partition_fields:
        if not isinstance(field.type, _KEY_TYPES):
            return f"it is partitioned by '{field.name}', a column of type {field.type}"
    return None


def _unspellable(jvm: Jvm, rows: RowWriter) -> str | None:
    """Why Java does not find the names of files; it spells them as the locale of its process says."""
    schema = rows.context.schema
    texts = any(isinstance(f.type, t.CharType | t.VarCharType) for f in schema.partition_fields)
    names = "".join(schema.partition_keys) + PARTITION_DEFAULT_NAME.of(rows.context.all_options)
    root = _root(rows)
    try:
        root.encode()
    except UnicodeEncodeError:
        return f"the name of its folder is not UTF-8: {root!r}"
    if not texts and names.isascii() and root.isascii():
        return None
    found = jvm.once(
        "file names", lambda: str(jvm.of("java.lang.System").getProperty("sun.jnu.encoding", "")).upper()
    )
    if found == "UTF-8":
        return None
    return f"Java takes names of files for {found or 'unknown'} here, as the locale says, and not for UTF-8"


def _root(rows: RowWriter) -> str:
    path = native_path(rows.context.storage, _FILE)
    assert path is not None, "asked of a table that lies elsewhere"
    return path.removesuffix(f"/{_FILE}")


def _places(schema: TableSchema, names: Sequence[str]) -> str:
    positions = {f.name: i for i, f in enumerate(schema.fields)}
    return ",".join(str(positions[name]) for name in names)


def _limits(data_type: t.DataType) -> list[int]:
    """For each leaf of a type what a value must not exceed, or, of a moment, be divisible by."""
    match data_type:
        case t.CharType(length=length) | t.VarCharType(length=length):
            return [_NO_LIMIT if length == t.MAX_LENGTH else length]
        case t.BinaryType(length=length) | t.VarBinaryType(length=length):
            return [length]
        case t.TimestampType() | t.LocalZonedTimestampType():
            return [_MICROS.get(to_arrow_type(data_type).unit, 1)]
        case t.MultisetType(element=element):
            return [*_limits(element), _NO_LIMIT]
    inner = [*inner_types(data_type)]
    return [limit for one in inner for limit in _limits(one)] if inner else [_NO_LIMIT]


@lru_cache(maxsize=256)
def _empty_file(fields: tuple[t.Field, ...]) -> bytes:
    """The footer of a file of these columns without rows, as our own writer makes it."""
    schema = storable_schema(to_arrow_schema(fields))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **SCHEMA_SETTINGS):
        pass
    file = JoinedFile()
    file.add(memoryview(sink.getvalue()))
    return file.tail()[:-8]
