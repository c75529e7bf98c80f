"""Aggregates of Spark's queries that follow from metadata: no data file is opened for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
from py4j.protocol import Py4JError

from anabranch.errors import AnabranchError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import BigIntType, Field, LocalZonedTimestampType, TimestampType
from anabranch.kernel.scan.answers import Aggregate
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.compiled import NotCompiledError, compiled_object
from anabranch.spark.native.internals import internal_rows
from anabranch.spark.native.read_plans import Query
from anabranch.spark.native.table_scan import SizeStatistics
from anabranch.spark.types.arrow_values import to_schema
from anabranch.spark.types.columns import arrow_schema, spark_schema

_READ = "org.apache.spark.sql.connector.read"
_MOST_ROWS = 10_000
"""Most groups that are answered, as one task reads them all."""
_DIGITS = 6
"""Digits of a second that Spark has."""


@dataclass(frozen=True)
class Aggregates:
    """What a query computes of all rows, and which columns it groups them by."""

    asked: tuple[Aggregate, ...]
    by: tuple[Field, ...]

    @classmethod
    def of(cls, aggregation: Any, schema: TableSchema) -> Aggregates | None:
        """Translate Spark's ``Aggregation``; None if it is about more than plain columns."""
        asked = [_asked(each, schema) for each in aggregation.aggregateExpressions()]
        by = [_column(each, schema) for each in aggregation.groupByExpressions()]
        known, groups = [a for a in asked if a is not None], [b for b in by if b is not None]
        if len(known) < len(asked) or len(groups) < len(by) or any(map(_is_cut, groups)):
            return None
        return cls(tuple(known), tuple(groups))

    @property
    def fields(self) -> list[Field]:
        """The columns of the answer: the groups, then the aggregates."""
        names = {f.name for f in self.by}
        found = [Field(i, f.name, f.type.with_nullable(True)) for i, f in enumerate(self.by)]
        for number, each in enumerate(self.asked):
            kind = BigIntType() if each.what == "count" or each.column is None else each.column.type
            name = f"a{number}"
            while name in names:
                name = f"_{name}"
            found.append(Field(len(found), name, kind.with_nullable(True)))
        return found


class AnsweredScan(JavaProxy):
    """A scan whose rows are the answer to a query."""

    class Java:
        implements: ClassVar = [f"{_READ}.SupportsReportStatistics"]

    def __init__(self, jvm: Jvm, scan: Scan, rows: pa.Table, fields: Sequence[Field]) -> None:
        self.jvm = jvm
        self._scan = scan
        self._schema = spark_schema(fields)
        columns = [column.combine_chunks() for column in rows.columns]
        batch = to_schema(pa.RecordBatch.from_arrays(columns, schema=rows.schema), arrow_schema(fields))
        self._size = _Size(rows.num_rows, batch.nbytes)
        self._batch = compiled_object(jvm, "KnownRows", internal_rows(jvm, batch, self._schema))

    def readSchema(self) -> Any:  # noqa: N802 - Java's name, as all of them
        return self.jvm.struct(self._schema)

    def description(self) -> str:
        at = "never written" if self._scan.snapshot is None else f"snapshot {self._scan.snapshot.id}"
        return f"anabranch {self._scan.context.title} ({at}, answered from metadata)"

    def toBatch(self) -> Any:  # noqa: N802
        return self._batch

    def estimateStatistics(self) -> SizeStatistics:  # noqa: N802
        return SizeStatistics(self.jvm, self._size)

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.estimateStatistics().sizeInBytes()

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self.jvm.of(f"{_READ}.Scan$ColumnarSupportMode").valueOf("UNSUPPORTED")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomMetric", [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomTaskMetric", [])


@dataclass(frozen=True)
class _Size:
    rows: int
    bytes: int


def answered_scan(jvm: Jvm, query: Query, aggregation: Any) -> AnsweredScan | None:
    """A scan of the answer to Spark's ``Aggregation`` of the rows of a query; None if metadata does not tell it."""
    try:
        scan = query.filtered
        wanted = Aggregates.of(aggregation, scan.schema)
        rows = None if wanted is None else scan.answer(wanted.asked, wanted.by)
        if wanted is None or rows is None or rows.num_rows > _MOST_ROWS:
            return None
        return AnsweredScan(jvm, scan, rows, wanted.fields)
    except (AnabranchError, Py4JError, NotCompiledError):  # a query that reads the files says it better
        return None


def _is_cut(column: Field) -> bool:
    """Whether Spark sees different values of the column as one, so that groups of them would come twice."""
    kind = column.type
    return isinstance(kind, TimestampType | LocalZonedTimestampType) and kind.precision > _DIGITS


def _asked(function: Any, schema: TableSchema) -> Aggregate | None:
    match str(function.getClass().getSimpleName()):
        case "CountStar":
            return Aggregate("count")
        case "Count" if not function.isDistinct():
            return _of_column("count", function, schema)
        case "Min":
            return _of_column("min", function, schema)
        case "Max":
            return _of_column("max", function, schema)
    return None


def _of_column(what: Literal["count", "min", "max"], function: Any, schema: TableSchema) -> Aggregate | None:
    column = _column(function.column(), schema)
    return None if column is None else Aggregate(what, column)


def _column(expression: Any, schema: TableSchema) -> Field | None:
    """The column that an expression is; None if it is something else."""
    if not str(expression.getClass().getSimpleName()).endswith("FieldReference"):
        return None
    names = list(expression.fieldNames())
    return next((f for f in schema.fields if len(names) == 1 and f.name == names[0]), None)
