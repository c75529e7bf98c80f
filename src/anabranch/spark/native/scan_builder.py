"""Reading a table that a catalog gave, by DataSource V2: Spark's own Parquet reader where that is possible.

Spark tells the builder filters and columns; the planner chooses files with both. While a query runs it may tell
which partitions a join has left over, and they are chosen again.

A scan of this kind has one set of names for all its files. Where they would need several, as after a column was
renamed, the portable door reads them until compaction has rewritten them; `native_frame` can join several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from py4j.protocol import Py4JError

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bind import BoundPredicate
from anabranch.expr.bound import ALWAYS, conjunction
from anabranch.lazy import lazy
from anabranch.scan import Scan
from anabranch.spark.native.door import native_generations, tell
from anabranch.spark.native.expressions import columns_in, predicate_of
from anabranch.spark.native.generations import Generation, Obstacle
from anabranch.spark.native.nan import shielded
from anabranch.spark.native.parquet_scan import parquet_scan, read_fields
from anabranch.spark.native.planned_files import Folder, PlannedFiles
from anabranch.spark.native.portable import portable_scan
from anabranch.spark.native.proxy import JavaProxy, Jvm, start_callbacks
from anabranch.spark.native.runtime_filters import runtime_predicate
from anabranch.spark.types import spark_schema

_READ = "org.apache.spark.sql.connector.read"

Portable = Callable[[Scan, Any], Any]
"""Makes a ``Scan`` of the JVM that reads an Anabranch scan through the portable door; given are the scan, with columns
and filter, and its columns as a ``StructType`` of the JVM."""


class ScanBuilder(JavaProxy):
    """Hears from Spark what a query needs of the table: what ``newScanBuilder`` of a table gives.

    Args:
        jvm: of the session.
        scan: what to read: a snapshot, with all columns of the table.
        portable: reads where native reading is not possible.
        streams: the same as a stream: from a checkpoint's folder to a ``MicroBatchStream``; None if it is not one.
    """

    class Java:
        implements: ClassVar = [
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            f"{_READ}.SupportsPushDownRequiredColumns",
        ]

    def __init__(
        self,
        jvm: Jvm,
        scan: Scan,
        *,
        portable: Portable | None = None,
        streams: Callable[[str], Any] | None = None,
    ) -> None:
        start_callbacks(jvm.spark)
        self.jvm = jvm
        self._scan = scan
        self._portable: Portable = portable or (lambda found, _: portable_scan(jvm, found))
        self._streams = streams
        self._filters: Any = None
        self._columns: Any = None

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        """Takes all; Spark checks every row by all of them as well."""
        self._filters = filters
        return filters

    def pushedFilters(self) -> Any:  # noqa: N802
        """None that Spark need not check."""
        return self.jvm.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def pruneColumns(self, columns: Any) -> None:  # noqa: N802
        self._columns = columns

    def build(self) -> Any:
        scan = self._scan
        predicate = None if self._filters is None else predicate_of(self._filters, scan.schema.fields)
        names = self._names()
        found = self._native(names, predicate)
        if not isinstance(found, Obstacle):
            return found
        tell(scan, found)
        both = conjunction(p for p in (scan.predicate, predicate) if p is not None)
        # Rows without any column cannot travel from a Python process.
        chosen = tuple(names or [scan.schema.fields[0].name])
        asked = replace(scan, columns=chosen, predicate=None if both == ALWAYS else both)
        columns = self.jvm.struct(spark_schema([scan.schema.field(name) for name in chosen]))
        return self._portable(asked, columns)

    def _names(self) -> list[str]:
        """The columns of the table that the query needs, in the order in which Spark wants them."""
        if self._columns is None:
            return [f.name for f in self._scan.schema.fields]
        return list(self._columns.fieldNames())

    def _native(self, names: Sequence[str], predicate: BoundPredicate | None) -> NativeScan | Obstacle:
        scan = self._scan
        if scan.predicate is not None or scan.limit is not None:
            return Obstacle("the scan filters or limits rows itself")
        wanted = read_fields(scan.schema, names)
        made = native_generations(self.jvm.spark, scan, wanted)
        if isinstance(made, Obstacle):
            return made
        if len(made) > 1 or not made[0].is_plain:
            return Obstacle("there are files from before columns were renamed or given other types")
        query = Query(scan, made[0], predicate, self._filters, self._columns)
        try:
            planned = plan(self.jvm, query)
        except (Py4JError, UnsupportedFeatureError) as error:
            return Obstacle(f"Spark's internals are not as expected: {str(error).splitlines()[0]}")
        return NativeScan(self.jvm, query, planned, self._streams)


@dataclass(frozen=True)
class Query:
    """What one query reads of a table."""

    scan: Scan
    generation: Generation
    predicate: BoundPredicate | None
    filters: Any
    """The same, and what the planner does not understand, as Spark's expressions; None for none."""
    columns: Any
    """A ``StructType`` of the JVM; None for all columns."""

    @lazy
    def files(self) -> PlannedFiles:
        return PlannedFiles(self.scan, self.generation.schema, self.generation.schema_ids)

    def folders(self, runtime: BoundPredicate | None = None) -> list[Folder]:
        """The files to read, also by what only the running query knows."""
        parts = [p for p in (self.predicate, runtime) if p is not None]
        return self.files.matching(conjunction(parts) if parts else None)


@dataclass(frozen=True)
class Planned:
    """The files of a query, and Spark's scan of them."""

    folders: Sequence[Folder]
    inner: Any
    """A ``ParquetScan`` of the JVM."""


class NativeScan(JavaProxy):
    """Some files of a snapshot, read by Spark's Parquet reader."""

    class Java:
        implements: ClassVar = [
            f"{_READ}.SupportsRuntimeV2Filtering",
            f"{_READ}.SupportsReportStatistics",
        ]

    def __init__(
        self, jvm: Jvm, query: Query, planned: Planned, streams: Callable[[str], Any] | None = None
    ) -> None:
        self.jvm = jvm
        self._query = query
        self._planned = planned
        self._streams = streams

    def readSchema(self) -> Any:  # noqa: N802
        return self._planned.inner.readSchema()

    def description(self) -> str:
        scan = self._query.scan
        at = "never written" if scan.snapshot is None else f"snapshot {scan.snapshot.id}"
        asked = "" if self._query.predicate is None else f", {self._query.predicate}"
        files = sum(len(folder.files) for folder in self._planned.folders)
        return f"anabranch {scan.context.title} ({at}, {files} files{asked})"

    def toBatch(self) -> Any:  # noqa: N802
        return self._planned.inner.toBatch()

    def toMicroBatchStream(self, checkpoint: str) -> Any:  # noqa: N802
        assert self._streams is not None, "a table that says it can be read as a stream"
        return self._streams(checkpoint)

    def filterAttributes(self) -> Any:  # noqa: N802
        """The partition columns that are read: by their values files can be left out while the query runs."""
        read = set(self.readSchema().fieldNames())
        expressions = self.jvm.of("org.apache.spark.sql.connector.expressions.Expressions")
        return self.jvm.array(
            "org.apache.spark.sql.connector.expressions.NamedReference",
            [
                expressions.column("`" + name.replace("`", "``") + "`")
                for name in self._query.scan.schema.partition_keys
                if name in read
            ],
        )

    def filter(self, predicates: Any) -> None:
        """Leave out files of partitions that a join, say, has no use for."""
        asked = runtime_predicate(list(predicates), self._query.scan.schema.partition_fields)
        if asked is None:
            return
        self._planned = plan(self.jvm, self._query, asked)

    def estimateStatistics(self) -> Statistics:  # noqa: N802
        return Statistics(self.jvm, self._planned.folders)

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.estimateStatistics().sizeInBytes()

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    # What Spark's Parquet source says of itself by default methods, which Py4J does not call.

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomMetric", [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomTaskMetric", [])

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self.jvm.of(f"{_READ}.Scan$ColumnarSupportMode").valueOf("PARTITION_DEFINED")


class Statistics(JavaProxy):
    """What the optimiser is told of files before they are read."""

    class Java:
        implements: ClassVar = [f"{_READ}.Statistics"]

    def __init__(self, jvm: Jvm, folders: Sequence[Folder]) -> None:
        self.jvm = jvm
        self._folders = folders

    def sizeInBytes(self) -> Any:  # noqa: N802
        size = sum(size for folder in self._folders for _, size, _ in folder.files)
        return self.jvm.of("java.util.OptionalLong").of(size)

    def numRows(self) -> Any:  # noqa: N802
        return self.jvm.of("java.util.OptionalLong").of(sum(folder.rows for folder in self._folders))

    def columnStats(self) -> Any:  # noqa: N802
        return self.jvm.map({})


def plan(jvm: Jvm, query: Query, runtime: BoundPredicate | None = None) -> Planned:
    """The files of a query as Spark reads them, also by what only the running query knows."""
    filters = query.filters
    if filters is not None:
        parts = [(part, columns_in(part)) for part in (filters.apply(i) for i in range(filters.length()))]
        shields = shielded(query.scan, query.generation, {name for _, names in parts for name in names})
        filters = jvm.seq(part for part, names in parts if not names & shields)
    folders = query.folders(runtime)
    fields = query.generation.fields
    inner = parquet_scan(jvm, query.scan, folders, fields, filters=filters, columns=query.columns)
    return Planned(folders, inner)
