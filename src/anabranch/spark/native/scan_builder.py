"""Reading a table that a catalog gave, by DataSource V2: what a query needs of it.

Spark tells the builder filters and columns; `anabranch.spark.native.table_scan` reads the files that these leave over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from anabranch.scan.scan import Scan
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.portable import portable_scan
from anabranch.spark.native.table_scan import TableScan
from anabranch.spark.native.ways import Portable, Query


class ScanBuilder(JavaProxy):
    """Hears from Spark what a query needs of the table: what ``newScanBuilder`` of a table gives.

    Args:
        jvm: of the session.
        find: what to read: a snapshot, with all columns of the table. It is not asked for a stream, which may go on
            when what it began with is gone.
        portable: reads where native reading is not possible.
        streams: the same as a stream: from a checkpoint's folder to a ``MicroBatchStream``; None if it is not one.
    """

    class Java:
        implements: ClassVar = [
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            "org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns",
        ]

    def __init__(
        self,
        jvm: Jvm,
        find: Callable[[], Scan],
        *,
        portable: Portable | None = None,
        streams: Callable[[str], Any] | None = None,
    ) -> None:
        start_callbacks(jvm.spark)
        self.jvm = jvm
        self._find = find
        self._portable: Portable = portable or (lambda found, _: portable_scan(jvm, found))
        self._streams = streams
        self._filters: Filters | None = None
        self._columns: Any = None

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        """Takes all; Spark checks every row by all of them as well."""
        self._filters = Filters(self.jvm, filters)
        return filters

    def pushedFilters(self) -> Any:  # noqa: N802
        """None that Spark need not check."""
        return self.jvm.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def pruneColumns(self, columns: Any) -> None:  # noqa: N802
        self._columns = columns

    def build(self) -> Any:
        scan = TableScan(
            self.jvm, Query(self._find, self._filters, self._columns), self._portable, self._streams
        )
        return scan.answers.before(scan)
