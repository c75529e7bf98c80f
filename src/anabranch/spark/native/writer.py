"""Writing a DataFrame by Spark's own tasks, without Python in them: the native way to write.

Our Java (``java/tasks``) puts Spark's rows into data files through the Parquet library that Spark ships; the commit
stays in Python, which makes commit messages of what the tasks tell. Files are the same as those of `anabranch.arrow`:
types, checksums, sizes, statistics, durability.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as st

from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.arrow.writer import WriteContext
from anabranch.errors import AnabranchError, CorruptTableError, SchemaError
from anabranch.format.records.data_file import DataFileMeta
from anabranch.format.records.stats import ColumnFacts, gathered_stats, has_bounds, stats_modes
from anabranch.format.rows.binary_row import encode_row, is_text, with_arity
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import NANOS_PER_UNIT
from anabranch.kernel.commit.commit_message import CommitMessage, EventTimes
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import NotCompiledError, compiled_class, not_given
from anabranch.spark.native.data_files import alike, commits, data_files, impossible, other_type
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.internals import unsupported
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.types.columns import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
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

    @classmethod
    def of(cls, frame: DataFrame, rows: RowWriter) -> NativeWriter | Obstacle:
        """What writes such frames natively, or why nothing does.

        Args:
            frame: the rows.
            rows: what writes them the portable way.
        """
        reason = unsupported(frame.sparkSession)
        if reason is not None:
            return Obstacle(reason)
        jvm = Jvm(frame.sparkSession)
        reason = impossible(jvm, rows)
        if reason is not None:
            return Obstacle(reason)
        casts: list[st.DataType | None] = []
        for field, place in zip(rows.context.schema.fields, rows.places, strict=True):
            given = None if place is None else frame.schema.fields[place].dataType
            cast = _cast(field.name, given, spark_type(field.type))
            if isinstance(cast, Obstacle):
                return cast
            casts.append(cast)
        try:
            compiled_class(jvm, "Commits")
        except NotCompiledError as error:
            return Obstacle(str(error))
        return cls(jvm, rows, tuple(casts))

    def write(self, frame: DataFrame) -> tuple[DataFrame, list[TaskAnswer]]:
        """Write the rows, durable on return.

        Returns:
            What was carried out, and the answers of its tasks in their order. If one of them refused its rows, what the
            others wrote is not there any more.

        Raises:
            ClassesMissingError: the executors did not get our classes.
        """
        from pyspark.sql import DataFrame

        positions: Sequence[int | None] = self.rows.places
        if any(cast is not None for cast in self.casts):
            frame, positions = self._cast(frame), range(len(positions))
        ordered = self.rows.context.schema.bucket > 0
        files = data_files(self.jvm, self.rows, frame.schema.json(), positions, ordered=ordered)
        heard = commits(self.jvm, files)
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the way into the JVM
        write = self.jvm.of(_WRITE)(self.jvm.none(), heard, plan, self.jvm.seq([]))
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
        return carried_out, answers_of(heard, self.rows.context)

    def _cast(self, frame: DataFrame) -> DataFrame:
        """The columns of the table in their order. They go by place: names may differ in case only."""
        from pyspark.sql import functions as sf

        numbered = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        columns: list[Column] = []
        for field, place, cast in zip(
            self.rows.context.schema.fields, self.rows.places, self.casts, strict=True
        ):
            column = sf.lit(None).cast(spark_type(field.type)) if place is None else sf.col(f"c{place}")
            columns.append((column if cast is None else column.cast(cast)).alias(f"s{len(columns)}"))
        return numbered.select(*columns)


def answers_of(heard: Any, context: WriteContext) -> list[TaskAnswer]:
    """What the tasks told a ``Commits``; if one of them refused its rows, the files of the others are removed."""
    found = answers(bytes(heard.told()), context)
    if any(answer.refusal is not None for answer in found):
        heard.discard()
    return found


def _cast(name: str, given: st.DataType | None, wanted: st.DataType) -> st.DataType | Obstacle | None:
    """What to cast values to so that nothing can be lost; None for nothing."""
    if given is None or alike(given, wanted):
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
    return Obstacle(other_type(name, given, wanted))


_EXACT = Context(prec=38)
_STORED_NANOS = {"s": NANOS_PER_UNIT["ms"], "ms": NANOS_PER_UNIT["ms"], "us": NANOS_PER_UNIT["us"]}
"""Nanoseconds of what Parquet stores for a moment, by the unit of its Arrow type."""
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class TaskAnswer:
    """What one task wrote, or why it refused its rows."""

    messages: list[CommitMessage]
    refusal: AnabranchError | None


def answers(told: bytes, context: WriteContext) -> list[TaskAnswer]:
    """The answers of all tasks, in their order.

    Args:
        told: as ``Commits.told`` gives it.
    """
    return [_answer(pickle.loads(part), context) for part in _parts(told)]  # noqa: S301 - of our own tasks


def _parts(told: bytes) -> Iterator[memoryview]:
    rest = memoryview(told)
    while rest:
        (size,) = _LENGTH.unpack_from(rest)
        yield rest[_LENGTH.size : _LENGTH.size + size]
        rest = rest[_LENGTH.size + size :]


def _answer(said: Any, context: WriteContext) -> TaskAnswer:
    files, refusal, times = said
    schema = context.schema
    types = [f.type for f in schema.partition_fields]
    modes = stats_modes(schema)
    splitter = Splitter(schema, context.all_options)
    found: dict[BucketKey, list[DataFileMeta]] = {}
    for path, partition, bucket, rows, size, millis, columns in files:
        values = [_partition_value(kind, v) for kind, v in zip(types, partition, strict=True)]
        key = BucketKey(with_arity(len(types), encode_row(types, values, reserve_nulls=True)), bucket)
        folder, _, name = path.rpartition("/")
        if folder != splitter.folder(key):
            raise CorruptTableError(
                f"a task wrote to the folder '{folder}' what belongs to '{splitter.folder(key)}'",
                path=path,
                hint="this is a mistake of Anabranch; nothing was committed.",
            )
        known = found.setdefault(key, [])
        first = known[-1].max_sequence_number + 1 if known and schema.bucket > 0 else 0
        facts = [_facts(f.type, column) for f, column in zip(schema.fields, columns, strict=True)]
        known.append(
            DataFileMeta(
                file_name=name,
                file_size=size,
                row_count=rows,
                value_stats=gathered_stats(schema.fields, modes, facts),
                min_sequence_number=first,
                max_sequence_number=first + rows - 1,
                schema_id=schema.id,
                creation_time=millis + context.runtime.clock.local_offset_millis(millis),
                file_source=context.source,
                written_millis=millis,
            )
        )
    messages = [CommitMessage(key.partition, key.bucket, schema.bucket, tuple(f)) for key, f in found.items()]
    if messages and times is not None:
        newest, ahead = times
        messages[0] = replace(messages[0], event_times=EventTimes(newest, {}, ahead))
    return TaskAnswer(messages, None if refusal is None else SchemaError(refusal[0], hint=refusal[1]))


def _partition_value(data_type: t.DataType, value: Any) -> Any:
    if value is None:
        return None
    if is_text(data_type):
        return bytes(value).decode()
    return Decimal(value) if isinstance(data_type, t.DecimalType) else value


def _facts(data_type: t.DataType, column: Sequence[Any] | None) -> ColumnFacts | None:
    if column is None:
        return None
    nulls, low, high = column
    if low is None or not has_bounds(data_type):
        return ColumnFacts(nulls)
    return ColumnFacts(nulls, _physical(data_type, bytes(low)), _physical(data_type, bytes(high)))


def _physical(data_type: t.DataType, stored: bytes) -> Any:
    """The physical value of what Parquet stores in its plain encoding."""
    match data_type:
        case t.BooleanType():
            return stored != b"\0"
        case t.FloatType():
            return struct.unpack("<f", stored)[0]
        case t.DoubleType():
            return struct.unpack("<d", stored)[0]
        case t.DecimalType(precision=precision, scale=scale):
            order = "little" if precision <= 18 else "big"
            return _EXACT.scaleb(Decimal(int.from_bytes(stored, order, signed=True)), -scale)  # type: ignore[arg-type]
        case t.TimestampType() | t.LocalZonedTimestampType():
            unit = to_arrow_type(data_type).unit
            return int.from_bytes(stored, "little", signed=True) * _STORED_NANOS[unit]
        case _ if is_text(data_type):
            return stored.decode()
        case _:
            return int.from_bytes(stored, "little", signed=True)
