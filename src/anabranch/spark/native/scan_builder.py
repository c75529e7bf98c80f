"""Scan builder of a catalog table, by DataSource V2: takes a query's filters and columns.

Spark tells the builder filters and columns; `anabranch.spark.native.table_scan` reads the files that these leave over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from anabranch.scan.scan import Scan
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.aggregates import AnsweredScan, answered_scan
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.expressions import settled_parts
from anabranch.spark.native.portable import portable_scan
from anabranch.spark.native.read_plans import Portable, Query
from anabranch.spark.native.table_scan import TableScan


class ScanBuilder(JavaProxy):
    """Scan builder: takes from Spark what a query needs; the result of a table's ``newScanBuilder``.

    Args:
        jvm: of the session.
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
