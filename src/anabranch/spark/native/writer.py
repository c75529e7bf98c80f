"""Writing a DataFrame by Spark's own tasks, without Python in them: the native way to write.

Our Java (``java/write``) puts Spark's rows into data files through the Parquet library that Spark ships; the commit
stays in Python, which makes commit messages of what the tasks tell. Files are the same as those of `anabranch.arrow`:
types, checksums, sizes, statistics, durability.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as st

from anabranch.arrow.files import native_path
from anabranch.arrow.parquet_encode import SCHEMA_SETTINGS, PageSettings
from anabranch.arrow.parquet_footer import JoinedFile
from anabranch.arrow.storable import storable_schema
from anabranch.expr.row_rules import RowRules
from anabranch.options import (
    FILE_FORMAT,
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    TARGET_FILE_SIZE,
    WATERMARK_SOURCE_COLUMN,
    WRITE_BUFFER_FOR_APPEND,
    WRITE_BUFFER_SIZE,
)
from anabranch.spark.native.compiled import NotCompiledError, compiled_class, not_given
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.internals import unsupported
from anabranch.spark.native.proxy import Jvm
from anabranch.spark.native.written import TaskAnswer, answers
from anabranch.spark.row_writer import RowWriter
from anabranch.spark.types import spark_schema_json, spark_type
from anabranch.spec.arrow_types import to_arrow_schema, to_arrow_type
from anabranch.spec.schema import TableSchema
from anabranch.spec.type_grammar import inner_types
from anabranch.spec.types import (
    MAX_LENGTH,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    Field,
    IntType,
    LocalZonedTimestampType,
    MultisetType,
    SmallIntType,
    TimestampType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from anabranch.spec.watermark import watermark_definition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LOG = logging.getLogger(__name__)
_FORMAT, _FILE = "parquet", "data"
_NO_LIMIT = (1 << 63) - 1
_MICROS = {"s": 1_000_000, "ms": 1_000}
"""Microseconds by which a moment must be divisible, by the unit of its column."""
_KEY_TYPES = (
    BooleanType, TinyIntType, SmallIntType, IntType, BigIntType, DateType, DecimalType, CharType, VarCharType,
)  # fmt: skip
"""Types of partition columns whose folders our Java spells as Python does."""
_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_CODECS = {"zstd": "ZSTD", "lz4": "LZ4_RAW", "snappy": "SNAPPY", "gzip": "GZIP", "none": "UNCOMPRESSED"}
_WRITE = "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2"
_MISSING_CLASS = "java.lang.ClassNotFoundException: anabranch."


class ClassesMissingError(Exception):
    """Executors did not get our classes; nothing was written."""


@dataclass(frozen=True)
class NativeWriter:
    """Writes frames to one table."""

    jvm: Jvm
    rows: RowWriter
    casts: tuple[st.DataType | None, ...]
    """For each column of the table what its values are cast to, without loss; None for as they are."""
    files: Any
    """The ``DataFiles`` of our Java, which travel to the tasks."""

    @classmethod
    def of(cls, frame: DataFrame, rows: RowWriter) -> NativeWriter | Obstacle:
        """What writes such frames natively, or why nothing does.

        Args:
            frame: the rows.
            rows: what writes them the portable way.
        """
        spark = frame.sparkSession
        reason = unsupported(spark) or _reason(rows)
        if reason is not None:
            return Obstacle(reason)
        casts: list[st.DataType | None] = []
        for field, place in zip(rows.context.schema.fields, rows.places, strict=True):
            given = None if place is None else frame.schema.fields[place].dataType
            cast = _cast(given, spark_type(field.type))
            if isinstance(cast, Obstacle):
                return Obstacle(f"column '{field.name}' {cast.reason}")
            casts.append(cast)
        jvm = Jvm(spark)
        reason = _unspellable(jvm, rows)
        if reason is not None:
            return Obstacle(reason)
        try:
            return cls(jvm, rows, tuple(casts), _data_files(jvm, rows))
        except NotCompiledError as error:
            return Obstacle(str(error))

    def write(self, frame: DataFrame) -> tuple[DataFrame, list[TaskAnswer]]:
        """Write the rows, durable on return.

        Returns:
            What was carried out, and the answers of its tasks in their order. If one of them refused its rows, what the
            others wrote is not there any more.

        Raises:
            ClassesMissingError: the executors did not get our classes.
        """
        from pyspark.sql import DataFrame

        commits = _made(self.jvm, "Commits", self.files)
        plan = self._as_stored(frame)._jdf.queryExecution().analyzed()  # noqa: SLF001 - the way into the JVM
        write = self.jvm.of(_WRITE)(self.jvm.none(), commits, plan, self.jvm.seq([]))
        dataset = self.jvm.of("org.apache.spark.sql.classic.Dataset").ofRows(self.jvm.session, write)
        carried_out = DataFrame(dataset, self.jvm.spark)
        try:
            carried_out.collect()
        except Exception as error:
            if _MISSING_CLASS not in str(error):
                raise
            reason = "executors do not get the classes that the driver has compiled"
            not_given(self.jvm, reason)
            raise ClassesMissingError(reason) from error
        found = answers(bytes(commits.told()), self.rows.context)
        if any(answer.refusal is not None for answer in found):
            commits.discard()
        return carried_out, found

    def _as_stored(self, frame: DataFrame) -> DataFrame:
        """The columns of the table in their order. They go by place: names may differ in case only."""
        from pyspark.sql import functions as sf

        count = len(frame.columns)
        numbered = frame.toDF(*(f"c{i}" for i in range(count)))
        fields = self.rows.context.schema.fields
        columns: list[Column] = []
        for field, place, cast in zip(fields, self.rows.places, self.casts, strict=True):
            column = sf.lit(None).cast(spark_type(field.type)) if place is None else sf.col(f"c{place}")
            columns.append((column if cast is None else column.cast(cast)).alias(f"s{len(columns)}"))
        return numbered.select(*columns)


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
    if watermark_definition(schema) is not None or WATERMARK_SOURCE_COLUMN.of(options) is not None:
        return "event times are looked at on the way, for its watermark"
    for field in schema.partition_fields:
        if not isinstance(field.type, _KEY_TYPES):
            return f"it is partitioned by '{field.name}', a column of type {field.type}"
    return None


def _unspellable(jvm: Jvm, rows: RowWriter) -> str | None:
    """Why Java does not find the names of files; it spells them as the locale of its process says."""
    schema = rows.context.schema
    texts = any(isinstance(f.type, CharType | VarCharType) for f in schema.partition_fields)
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


def _cast(given: st.DataType | None, wanted: st.DataType) -> st.DataType | Obstacle | None:
    """What to cast values to so that nothing can be lost; None for nothing."""
    if given is None or _alike(given, wanted):
        return None
    match given, wanted:
        case (st.ByteType() | st.ShortType() | st.IntegerType(), st.LongType() | st.IntegerType()):
            if _INTEGERS.index(type(given)) < _INTEGERS.index(type(wanted)):
                return wanted
        case (st.ByteType(), st.ShortType()) | (
            st.ByteType() | st.ShortType() | st.IntegerType(),
            st.DoubleType(),
        ):
            return wanted
        case st.DecimalType(), st.DecimalType():
            if (
                wanted.scale >= given.scale
                and wanted.precision - wanted.scale >= given.precision - given.scale
            ):
                return wanted
    return Obstacle(
        f"is {wanted.simpleString()} and not {given.simpleString()}, as in the rows: each value is checked"
    )


def _alike(given: st.DataType, wanted: st.DataType) -> bool:
    """Whether values are the same in both; nullability is checked value by value."""
    match given, wanted:
        case st.ArrayType(), st.ArrayType():
            return _alike(given.elementType, wanted.elementType)
        case st.MapType(), st.MapType():
            return _alike(given.keyType, wanted.keyType) and _alike(given.valueType, wanted.valueType)
        case st.StructType(), st.StructType():
            return given.names == wanted.names and all(
                _alike(g.dataType, w.dataType) for g, w in zip(given, wanted, strict=True)
            )
        case _:
            return given == wanted


def _data_files(jvm: Jvm, rows: RowWriter) -> Any:
    """The ``DataFiles`` of a table. Raises `NotCompiledError`."""
    context = rows.context
    schema, options = context.schema, context.all_options
    pages = PageSettings.of(options)
    keyed = schema.bucket_keys if schema.bucket > 1 else ()
    budget = WRITE_BUFFER_SIZE.of(options) if WRITE_BUFFER_FOR_APPEND.of(options) else _NO_LIMIT
    settings = {
        "root": _root(rows),
        "columns": spark_schema_json(schema.fields),
        "limits": ",".join(str(limit) for f in schema.fields for limit in _limits(f.type)),
        "partition-keys": _places(schema, schema.partition_keys),
        "bucket-keys": _places(schema, keyed),
        "buckets": str(max(1, schema.bucket)),
        "ordered": str(schema.bucket > 0).lower(),
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
    return _made(jvm, "DataFiles", jvm.map(settings), _empty_file(schema.fields))


def _made(jvm: Jvm, name: str, *arguments: Any) -> Any:
    """An object of a compiled class, which has one constructor."""
    constructor = compiled_class(jvm, name)
    given = jvm.gateway.new_array(jvm.of("java.lang.Object"), len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return constructor.newInstance(given)


def _root(rows: RowWriter) -> str:
    path = native_path(rows.context.storage, _FILE)
    assert path is not None, "asked of a table that lies elsewhere"
    return path.removesuffix(f"/{_FILE}")


def _places(schema: TableSchema, names: Sequence[str]) -> str:
    positions = {f.name: i for i, f in enumerate(schema.fields)}
    return ",".join(str(positions[name]) for name in names)


def _limits(data_type: DataType) -> list[int]:
    """For each leaf of a type what a value must not exceed, or, of a moment, be divisible by."""
    match data_type:
        case CharType(length=length) | VarCharType(length=length):
            return [_NO_LIMIT if length == MAX_LENGTH else length]
        case BinaryType(length=length) | VarBinaryType(length=length):
            return [length]
        case TimestampType() | LocalZonedTimestampType():
            return [_MICROS.get(to_arrow_type(data_type).unit, 1)]
        case MultisetType(element=element):
            return [*_limits(element), _NO_LIMIT]
    inner = [*inner_types(data_type)]
    return [limit for one in inner for limit in _limits(one)] if inner else [_NO_LIMIT]


def _empty_file(fields: Sequence[Field]) -> bytes:
    """The footer of a file of these columns without rows, as our own writer makes it."""
    schema = storable_schema(to_arrow_schema(fields))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **SCHEMA_SETTINGS):
        pass
    file = JoinedFile()
    file.add(memoryview(sink.getvalue()))
    return file.tail()[:-8]
