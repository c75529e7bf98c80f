"""The scan of a table by DataSource V2: Spark's own Parquet reader where that is possible.

The planner chooses files by the filters and columns of a query. While the query runs it may tell which partitions a
join has left over, and they are chosen again.

A scan of this kind has one set of names for all its files. Where they would need several, as after a column was
renamed, the portable door reads them until compaction has rewritten them; `native_frame` can join several.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from py4j.protocol import Py4JError
from pyspark.sql.types import StructType

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bind import BoundPredicate
from anabranch.expr.bound import ALWAYS, conjunction
from anabranch.lazy import lazy
from anabranch.scan import Scan
from anabranch.spark.native.door import native_generations, not_as_expected, tell
from anabranch.spark.native.expressions import columns_in, predicate_of
from anabranch.spark.native.generations import Generation, Obstacle
from anabranch.spark.native.internals import is_columnar
from anabranch.spark.native.nan import shielded
from anabranch.spark.native.parquet_scan import parquet_scan, read_fields
from anabranch.spark.native.planned_files import Folder, PlannedFiles, folders_matching
from anabranch.spark.native.proxy import JavaProxy, Jvm
from anabranch.spark.native.runtime_filters import runtime_predicate
from anabranch.spark.types import spark_schema
from anabranch.spec.types import Field

_READ = "org.apache.spark.sql.connector.read"

Portable = Callable[[Scan, Any], Any]
"""Makes a ``Scan`` of the JVM that reads an Anabranch scan through the portable door; given are the scan, with columns
and filter, and its columns as a ``StructType`` of the JVM."""


@dataclass(frozen=True)
class Query:
    """What one query reads of a table."""

    find: Callable[[], Scan]
    filters: Any
    """Spark's expressions, all of which must hold; None for none."""
    columns: Any
    """A ``StructType`` of the JVM; None for all columns."""

    @lazy
    def scan(self) -> Scan:
        """What the table was when the query named it."""
        return self.find()

    @lazy
    def predicate(self) -> BoundPredicate | None:
        """The filters as far as the planner understands them."""
        return None if self.filters is None else predicate_of(self.filters, self.scan.schema.fields)

    @lazy
    def names(self) -> list[str]:
        """The columns that the query needs, in the order in which Spark wants them."""
        if self.columns is None:
            return [f.name for f in self.scan.schema.fields]
        return list(self.metadata)

    @lazy
    def metadata(self) -> dict[str, dict[str, Any]]:
        """What Spark has noted of each column that it asks for."""
        asked = [] if self.columns is None else json.loads(self.columns.json())["fields"]
        return {str(field["name"]): dict(field["metadata"]) for field in asked}


class Way(Protocol):
    """How a scan comes by its rows."""

    @property
    def inner(self) -> Any:
        """A ``Scan`` of the JVM."""
        ...

    @property
    def files(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class Natively:
    """Files read by Spark's own reader."""

    jvm: Jvm
    scan: Scan
    generation: Generation
    filters: Any
    """Those of the query that footers may be asked for; None for none."""
    columns: Any
    """A ``StructType`` of the JVM; None for all columns."""
    planned: Sequence[Folder]
    """What was there before the running query left anything out."""
    folders: Sequence[Folder]

    @classmethod
    def of(cls, jvm: Jvm, query: Query, generation: Generation) -> Natively:
        """The files of a query. Raises ``Py4JError`` and `UnsupportedFeatureError` where Spark does not take them."""
        filters = query.filters
        if filters is not None:
            parts = [(part, columns_in(part)) for part in (filters.apply(i) for i in range(filters.length()))]
            shields = shielded(query.scan, generation, {name for _, names in parts for name in names})
            filters = jvm.seq(part for part, names in parts if not names & shields)
        files = PlannedFiles(query.scan, generation.schema, generation.schema_ids)
        folders = files.matching(query.predicate)
        made = cls(jvm, query.scan, generation, filters, query.columns, folders, folders)
        made.inner  # noqa: B018 - so that what Spark does not take is known now
        return made

    def only(self, runtime: BoundPredicate) -> Natively:
        """Without the partitions that the running query has no use for, however often it has told."""
        return replace(self, folders=folders_matching(self.planned, runtime, self.scan.schema))

    @lazy
    def inner(self) -> Any:
        return parquet_scan(
            self.jvm,
            self.scan,
            self.folders,
            self.generation.fields,
            filters=self.filters,
            columns=self.columns,
        )

    @property
    def files(self) -> int:
        return sum(len(folder.files) for folder in self.folders)

    @property
    def rows(self) -> int:
        return sum(folder.rows for folder in self.folders)

    @lazy
    def bytes(self) -> int:
        """Of the columns that are read."""
        # Spark has shared out the bytes already, among the columns that it was told of.
        known = int(self.inner.estimateStatistics().sizeInBytes().getAsLong())
        return _share(self.jvm, known, self.generation.fields, self.scan.schema.fields)

    @lazy
    def is_columnar(self) -> bool:
        """Whether the rows come in batches."""
        return is_columnar(self.jvm, self.inner.readSchema())


@dataclass(frozen=True)
class Portably:
    """Files read by Python."""

    jvm: Jvm
    asked: Scan
    inner: Any

    @property
    def files(self) -> int:
        return self.asked.plan().files.height

    @property
    def rows(self) -> int:
        return self.asked.plan().report.rows

    @lazy
    def bytes(self) -> int:
        """Of the columns that are read."""
        whole = self.asked.schema.fields
        read = [f for f in whole if self.asked.columns is None or f.name in self.asked.columns]
        return _share(self.jvm, self.asked.plan().report.bytes, read, whole)


class TableScan(JavaProxy):
    """The rows of a snapshot that a query needs, or the stream of a table.

    Which of the two it is Spark does not say before it asks for one; so nothing is planned before that.
    """

    class Java:
        implements: ClassVar = [
            f"{_READ}.SupportsRuntimeV2Filtering",
            f"{_READ}.SupportsReportStatistics",
        ]

    def __init__(
        self, jvm: Jvm, query: Query, portable: Portable, streams: Callable[[str], Any] | None = None
    ) -> None:
        self.jvm = jvm
        self._query = query
        self._portable = portable
        self._streams = streams
        self._is_stream = False
        self._deciding = threading.RLock()
        self._decided: Way | None = None
        self._statistics: Statistics | None = None

    def readSchema(self) -> Any:  # noqa: N802
        found = self._way.inner.readSchema()
        noted = self._query.metadata
        if isinstance(self._way, Natively) or not any(noted.values()):
            return found
        # By what it has noted of a column, such as the length of its texts, Spark checks the plan of a write.
        columns = StructType.fromJson(json.loads(found.json()))
        for column in columns:
            column.metadata = noted.get(column.name, column.metadata)
        return self.jvm.struct(columns)

    def description(self) -> str:
        if self._is_stream:
            return "anabranch, a stream"
        scan = self._query.scan
        at = "never written" if scan.snapshot is None else f"snapshot {scan.snapshot.id}"
        asked = "" if self._query.predicate is None else f", {self._query.predicate}"
        door = "" if isinstance(self._way, Natively) else ", portable door"
        return f"anabranch {scan.context.title} ({at}, {self._way.files} files{asked}{door})"

    def toBatch(self) -> Any:  # noqa: N802
        return self._way.inner.toBatch()

    def toMicroBatchStream(self, checkpoint: str) -> Any:  # noqa: N802
        if self._streams is None:
            raise UnsupportedFeatureError(
                f"'{self._query.scan.context.title}' cannot be read as a stream here", feature="stream"
            )
        self._is_stream = True
        return self._streams(checkpoint)

    def filterAttributes(self) -> Any:  # noqa: N802
        """The partition columns that are read: by their values files can be left out while the query runs."""
        read = set(self._query.names) if isinstance(self._way, Natively) else set()
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
        way = self._way
        asked = runtime_predicate(list(predicates), self._query.scan.schema.partition_fields)
        if asked is not None and isinstance(way, Natively):
            self._decided = way.only(asked)

    def estimateStatistics(self) -> Statistics:  # noqa: N802
        if self._is_stream:
            return Statistics(self.jvm, None)
        way, known = self._way, self._statistics
        if known is None or known.way is not way:
            known = self._statistics = Statistics(self.jvm, way)
        return known

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
        if isinstance(self._decided, Portably):
            return self._decided.inner.supportedCustomMetrics()
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomMetric", [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomTaskMetric", [])

    def columnarSupportMode(self) -> Any:  # noqa: N802
        """Whether rows come in batches. Where that is left to the partitions, Spark plans them again and again to ask."""
        way = None if self._is_stream else self._way
        name = "PARTITION_DEFINED"
        if isinstance(way, Natively):
            name = "SUPPORTED" if way.is_columnar else "UNSUPPORTED"
        modes = self.jvm.of(f"{_READ}.Scan$ColumnarSupportMode")
        return self.jvm.once(name, lambda: modes.valueOf(name))

    @property
    def _way(self) -> Way:
        with self._deciding:
            if self._decided is None:
                self._decided = self._decide()
            return self._decided

    def _decide(self) -> Way:
        found = _natively(self.jvm, self._query)
        if not isinstance(found, Obstacle):
            return found
        tell(self._query.scan, found)
        scan = self._query.scan
        both = conjunction(p for p in (scan.predicate, self._query.predicate) if p is not None)
        # Rows without any column cannot travel from a Python process.
        chosen = tuple(self._query.names or [scan.schema.fields[0].name])
        asked = replace(scan, columns=chosen, predicate=None if both == ALWAYS else both)
        columns = self.jvm.struct(spark_schema([scan.schema.field(name) for name in chosen]))
        return Portably(self.jvm, asked, self._portable(asked, columns))


class Statistics(JavaProxy):
    """What the optimiser is told of files before they are read, as often as it asks; nothing of a stream."""

    class Java:
        implements: ClassVar = [f"{_READ}.Statistics"]

    def __init__(self, jvm: Jvm, way: Way | None) -> None:
        self.jvm = jvm
        self.way = way

    def sizeInBytes(self) -> Any:  # noqa: N802
        return self._bytes

    def numRows(self) -> Any:  # noqa: N802
        return self._rows

    def columnStats(self) -> Any:  # noqa: N802
        return self.jvm.map({})

    @lazy
    def _bytes(self) -> Any:
        return self._optional(None if self.way is None else self.way.bytes)

    @lazy
    def _rows(self) -> Any:
        return self._optional(None if self.way is None else self.way.rows)

    def _optional(self, number: int | None) -> Any:
        kind = self.jvm.of("java.util.OptionalLong")
        return kind.empty() if number is None else kind.of(number)


def _share(jvm: Jvm, size: int, read: Sequence[Field], whole: Sequence[Field]) -> int:
    """The bytes of some columns of all, by what Spark takes a value of each type to need."""
    if len(read) == len(whole):
        return size
    some, every = (int(jvm.struct(spark_schema(fields)).defaultSize()) for fields in (read, whole))
    return size * some // every


def _natively(jvm: Jvm, query: Query) -> Natively | Obstacle:
    scan = query.scan
    if scan.predicate is not None or scan.limit is not None:
        return Obstacle("the scan filters or limits rows itself")
    made = native_generations(jvm.spark, scan, read_fields(scan.schema, query.names))
    if isinstance(made, Obstacle):
        return made
    if len(made) > 1 or not made[0].is_plain:
        return Obstacle("there are files from before columns were renamed or given other types")
    try:
        return Natively.of(jvm, query, made[0])
    except (Py4JError, UnsupportedFeatureError) as error:
        return Obstacle(not_as_expected(error))
