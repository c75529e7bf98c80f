"""Scan builder of a catalog table, by DataSource V2: takes a query's filters and columns.

Spark tells the builder filters and columns; `anabranch.spark.native.table_scan` reads the files that these leave over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
from py4j.protocol import Py4JError

from anabranch.errors import AnabranchError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import BigIntType, Field, LocalZonedTimestampType, TimestampType
from anabranch.kernel.scan.answers import Aggregate
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.compiled import NotCompiledError, compiled_object
from anabranch.spark.native.expressions import settled_parts
from anabranch.spark.native.internals import internal_rows
from anabranch.spark.native.portable import portable_scan
from anabranch.spark.native.read_plans import Portable, Query
from anabranch.spark.native.table_scan import SizeStatistics, TableScan
from anabranch.spark.types.arrow_values import to_schema
from anabranch.spark.types.columns import arrow_schema, spark_schema


class ScanBuilder(JavaProxy):
    """Scan builder: takes from Spark what a query needs; the result of a table's ``newScanBuilder``.

    Args:
        find: what to read: a snapshot, with all columns of the table. It is not asked for a stream, which may go on
            when what it began with is gone.
        portable: reads where native reading is not possible.
        columns: those that the table has for Spark, as a ``StructType`` of the JVM; None for all.
        keeps_order: whether the rows of a bucket of a queue table come in the order they were written in.
        streams: the same as a stream: from a checkpoint's folder to a ``MicroBatchStream``; None if it is not one.
    """

    class Java:
        implements: ClassVar = [
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            "org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns",
            "org.apache.spark.sql.connector.read.SupportsPushDownAggregates",
        ]

    def __init__(
        self,
        jvm: Jvm,
        find: Callable[[], Scan],
        *,
        portable: Portable | None = None,
        columns: Any = None,
        keeps_order: bool = False,
        streams: Callable[[str], Any] | None = None,
    ) -> None:
        start_callbacks(jvm.spark)
        self.jvm = jvm
        self._find = functools.cache(find)
        self._portable: Portable = portable or (lambda found, _: portable_scan(jvm, found))
        self._streams = streams
        self._filters: Filters | None = None
        self._answer: AnsweredScan | None = None
        self._columns = columns
        self._keeps_order = keeps_order

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        """Accept all filters; return those that Spark must evaluate on every row as well."""
        self._filters = Filters(self.jvm, filters)
        found = self._find()
        # Of what was added, files are chosen by what their statistics say, and rows decided one by one.
        settled = (
            {part.number for part in settled_parts(self._filters, found.schema)}
            if found.between is None
            else set()
        )
        if not settled:
            return filters
        return self.jvm.seq([self._filters.at(p) for p in self._filters.parts if p.number not in settled])

    def pushedFilters(self) -> Any:  # noqa: N802
        """Return no filters: plans show what the scan made of them."""
        return self.jvm.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def pruneColumns(self, columns: Any) -> None:  # noqa: N802
        self._columns = columns

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802
        """Whether metadata answers the aggregation; Spark asks only where no filter is left."""
        if self._answer is None:
            self._answer = answered_scan(self.jvm, self._query(), aggregation)
        return self._answer is not None

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802
        return self.supportCompletePushDown(aggregation)

    def build(self) -> Any:
        if self._answer is not None:
            return self._answer
        scan = TableScan(self.jvm, self._query(), self._portable, self._streams)
        return scan.answers.before(scan)

    def _query(self) -> Query:
        return Query(self._find, self._filters, self._columns, self._keeps_order)


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


class AnsweredScan(WithoutMetrics):
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
