"""Writing a DataFrame by Spark's own tasks, without Python in them: the native way to write.

Our Java (``java/tasks``) puts Spark's rows into data files through the Parquet library that Spark ships; the commit
stays in Python, which makes commit messages of what the tasks tell. Files are the same as those of `anabranch.arrow`:
types, checksums, sizes, statistics, durability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as st

from anabranch.arrow.writer import WriteContext
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import NotCompiledError, compiled_class, not_given
from anabranch.spark.native.data_files import alike, commits, data_files, impossible, other_type
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.internals import unsupported
from anabranch.spark.native.written import TaskAnswer, answers
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
