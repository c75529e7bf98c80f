"""DataSource V2 scan of a table, as Spark sees it; `anabranch.spark.native.read_plans` finds the rows.

The planner chooses files by the filters and columns of a query. While the query runs it may tell which partitions a
join has left over; then those of the others are left out as well.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from pyspark.sql.types import StructType

from anabranch.errors import PredicateError, UnsupportedFeatureError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate, conjunction
from anabranch.expr.nodes import Column, In
from anabranch.format.types.data_types import Field
from anabranch.lazy import lazy
from anabranch.spark.jvm.answers import Answers
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.native.catalyst import literal_of_text
from anabranch.spark.native.internals import literal_texts
from anabranch.spark.native.read_plans import NativePlan, Portable, PortablePlan, Query, ReadPlan, way_of

_READ = "org.apache.spark.sql.connector.read"


class TableScan(WithoutMetrics):
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
        self._decided: ReadPlan | None = None
        self._statistics: SizeStatistics | None = None
        self.answers = Answers(jvm)
        """Answers stored in the JVM: none for a stream, whose columns Spark does not ask for."""

    def readSchema(self) -> Any:  # noqa: N802
        schema = self._schema()
        self.answers.learn(
            {
                "readSchema": schema,
                "description": self.description(),
                "toBatch": self.toBatch(),
                "columnarSupportMode": self.columnarSupportMode(),
                "filterAttributes": self.filterAttributes(),
                "estimateSizeInBytes": self.estimateSizeInBytes(),
                "supportedCustomMetrics": self.supportedCustomMetrics(),
            }
        )
        return schema

    def _schema(self) -> Any:
        if isinstance(self._way, NativePlan):
            return self._way.schema
        found, noted = self._way.inner.readSchema(), self._query.metadata
        if not any(noted.values()):
            return found
        # Spark checks the plan of a write by the metadata of columns, such as the length of texts.
        columns = StructType.fromJson(json.loads(found.json()))
        for column in columns:
            column.metadata = noted.get(column.name, column.metadata)
        return self.jvm.struct(columns)

    def description(self) -> str:
        if self._is_stream:
            return "anabranch, a stream"
        scan = self._query.scan
        at = "never written" if scan.snapshot is None else f"snapshot {scan.snapshot.id}"
        if scan.between is not None:
            at += f", added after {scan.between.start}"
        asked = "" if self._query.predicate is None else f", {self._query.predicate}"
        door = f", portable door: {self._way.reason}" if isinstance(self._way, PortablePlan) else ""
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
        """Return the partition columns that are read: runtime filters on them can leave out files."""
        read = set(self._query.names) if isinstance(self._way, NativePlan) else set()
        names = tuple(name for name in self._query.scan.schema.partition_keys if name in read)
        return self.jvm.once(("references", *names), lambda: self._references(names))

    def filter(self, predicates: Any) -> None:
        """Leave out files of partitions that a runtime filter, say of a join, excludes."""
        way = self._way
        asked = runtime_predicate(self.jvm, predicates, self._query.scan.schema.partition_fields)
        if asked is not None and isinstance(way, NativePlan):
            self._decided = way.only(asked)
            self.answers.forget("description", "toBatch", "estimateSizeInBytes")

    def estimateStatistics(self) -> SizeStatistics:  # noqa: N802
        if self._is_stream:
            return SizeStatistics(self.jvm, None)
        way, known = self._way, self._statistics
        if known is None or known.way is not way:
            known = self._statistics = SizeStatistics(self.jvm, way)
        return known

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self.estimateStatistics().sizeInBytes()

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> Any:  # noqa: N802
        return self.jvm.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    # Same as the default methods of Spark's Parquet source, which Py4J does not call.

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        if isinstance(self._decided, PortablePlan):
            return self._decided.inner.supportedCustomMetrics()
        return super().supportedCustomMetrics()

    def columnarSupportMode(self) -> Any:  # noqa: N802
        """Return whether rows come in batches. If left to the partitions, Spark plans them repeatedly to ask."""
        way = None if self._is_stream else self._way
        name = "PARTITION_DEFINED"
        if isinstance(way, NativePlan):
            name = "SUPPORTED" if way.is_columnar else "UNSUPPORTED"
        modes = self.jvm.of(f"{_READ}.Scan$ColumnarSupportMode")
        return self.jvm.once(name, lambda: modes.valueOf(name))

    def _references(self, names: Sequence[str]) -> Any:
        column = self.jvm.of("org.apache.spark.sql.connector.expressions.Expressions").column
        return self.jvm.array(
            "org.apache.spark.sql.connector.expressions.NamedReference",
            [column("`" + name.replace("`", "``") + "`") for name in names],
        )

    @property
    def _way(self) -> ReadPlan:
        with self._deciding:
            if self._decided is None:
                self._decided = way_of(self.jvm, self._query, self._portable)
            return self._decided


class Sized(Protocol):
    """What has a size that is known before it is read."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class SizeStatistics(JavaProxy):
    """Size statistics for the optimiser before files are read, computed once; none for a stream."""

    class Java:
        implements: ClassVar = [f"{_READ}.Statistics"]

    def __init__(self, jvm: Jvm, way: Sized | None) -> None:
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


_MOST_VALUES = 10_000
"""Number of values above which a filter is ignored: translating so many takes 0.1 to 0.2 seconds."""


def runtime_predicate(jvm: Jvm, predicates: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    """Translate IN predicates, all of which must hold, on `fields`; None if none can be translated.

    Spark looks at the rows again, so what cannot be said is left out.

    Args:
        predicates: an array of predicates of DataSource V2.
    """
    parts = [part for p in predicates if (part := _membership(jvm, p, fields)) is not None]
    return conjunction(parts) if parts else None


def _membership(jvm: Jvm, predicate: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    if predicate.name() not in ("IN", "="):
        return None
    children = predicate.children()
    if not 1 < len(children) <= _MOST_VALUES:
        return None
    found = literal_texts(jvm, children)
    if found is None:
        return None
    data_type, texts = found
    try:
        literals = [literal_of_text(json.loads(data_type), text) for text in texts]
        known = tuple(literal for literal in literals if literal is not None)
        if len(known) < len(literals):
            return None
        return bind(In(Column(tuple(children[0].fieldNames())), known), fields)
    except PredicateError:
        return None
