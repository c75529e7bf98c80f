"""Writes through the catalog: Spark's rows go to our writers, and the driver commits once.

Appends and overwrites of what a condition names are carried out as ``t.append(frame)`` and ``t.overwrite(frame)``:
Spark hands over the query as a frame, whose rows are brought together by partition and bucket before they are
written. Overwriting the partitions that occur in the rows, and streams, are writes that Spark carries out, by tasks of its
own (`anabranch.spark.catalog.native_sinks`) or through the Python data source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.expr.nodes import Predicate, all_of
from anabranch.lineage.model import LINEAGE_PROPERTY
from anabranch.options import DYNAMIC_PARTITION_OVERWRITE, LINEAGE_ENTRY, OVERWRITE_IF_UNCHANGED_SINCE
from anabranch.spark.catalog import java
from anabranch.spark.catalog.conditions import translated
from anabranch.spark.catalog.native_sinks import native_batch, native_stream
from anabranch.spark.catalog.source import TableLocation, source_write
from anabranch.spark.context.options import spelled, table_options
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.lineage.batch_lineage import command_origin
from anabranch.spark.lineage.job_marks import taking_part
from anabranch.spark.native.data_files import impossible, mismatch
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

_WRITE = f"{java.CONNECTOR}.write"


class WriteBuilder(JavaProxy):
    """Write builder: Spark tells it which rows a write replaces."""

    class Java:
        implements = [f"{_WRITE}.SupportsDynamicOverwrite", f"{_WRITE}.SupportsOverwriteV2"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, table: Table, place: TableLocation, info: Any) -> None:
        self.jvm = jvm
        self._options = spelled(java.given_options(info.options()))
        self._table = table.with_options(table_options(self._options))
        self._place = place
        self._info = info
        self._dynamic = False
        self._everything = False
        self._where: Predicate | None = None

    def truncate(self) -> WriteBuilder:
        self._everything = True
        return self

    def overwriteDynamicPartitions(self) -> WriteBuilder:  # noqa: N802
        self._dynamic = True
        return self

    def canOverwrite(self, _predicates: Any) -> bool:  # noqa: N802
        return True  # what cannot be is refused by `overwrite`, which says why

    def overwrite(self, predicates: Any) -> WriteBuilder:
        conditions = list(predicates)
        known = translated(conditions, self._table.schema.fields)
        if len(known) < len(conditions):
            unknown = [p for p in conditions if not any(p is k for k, _ in known)]
            raise InvalidInputError(
                f"cannot overwrite the rows of '{self._place.name}' with {unknown[0].toString()}",
                hint="name whole partitions, by comparing partition columns with values.",
            )
        self._where = all_of([meant for _, meant in known])
        return self

    def build(self) -> Any:
        if self._dynamic and self._table.schema.partition_keys:
            return PartitionsWrite(self.jvm, self._table, self._partitions)
        return FrameWrite(self.jvm, self._place, self._action(), self._stream, self._way)

    def _action(self) -> Callable[[DataFrame], Any]:
        table, where = self._table, self._where
        since = OVERWRITE_IF_UNCHANGED_SINCE.of(self._options)
        if where is not None or self._everything or self._dynamic:
            return lambda frame: table.replace(frame, where, if_unchanged_since=since)
        if since is not None:
            raise InvalidInputError(
                f"{OVERWRITE_IF_UNCHANGED_SINCE.key} is {since}, but the rows are appended",
                hint="use a write that overwrites, or leave the option out.",
            )
        return table.append

    def _way(self) -> str:
        """How the rows will be written, for plans."""
        try:
            schema = java.python_struct(self._info.schema())
            rows = RowWriter.of(self._table, schema)
        except AnabranchError:  # the write itself will say it
            return "refused"
        reason = impossible(self.jvm, rows) or mismatch(rows, schema)
        return "by tasks of Spark" if reason is None else f"by processes of Python: {reason}"

    def _stream(self) -> Any:
        """A ``StreamingWrite``."""
        return stream_write(self.jvm, self._place, self._info, self._options, overwrite=self._everything)

    def _partitions(self) -> Any:
        """A ``BatchWrite`` that replaces the partitions which occur in the rows."""
        options = {**self._options, DYNAMIC_PARTITION_OVERWRITE.key: "true"}
        options |= known_origin(self.jvm, self._table)
        return batch_write(self.jvm, self._place, self._info, options, overwrite=True)


def batch_write(
    jvm: Jvm, place: TableLocation, info: Any, options: Mapping[str, str], *, overwrite: bool
) -> Any:
    """A ``BatchWrite`` of the rows that Spark's `info` describes, by tasks of Spark where possible."""
    native = native_batch(jvm, place, info, options, overwrite=overwrite)
    if native is not None:
        return native
    return source_write(jvm, place, info, options, overwrite=overwrite).toBatch()


def stream_write(
    jvm: Jvm, place: TableLocation, info: Any, options: Mapping[str, str], *, overwrite: bool
) -> Any:
    """A ``StreamingWrite`` of the rows that Spark's `info` describes, by tasks of Spark where possible."""
    native = native_stream(jvm, place, info, options, overwrite=overwrite)
    if native is not None:
        return native
    return source_write(jvm, place, info, options, overwrite=overwrite).toStreaming()


def known_origin(jvm: Jvm, table: Table) -> dict[str, str]:
    """The option that tells what commits, which may be another process that sees no plan, where the rows come from."""
    with taking_part(jvm.spark) as run:
        return {LINEAGE_ENTRY.key: command_origin(jvm, table, run)[LINEAGE_PROPERTY]}


class FrameWrite(WithoutMetrics):
    """A write of a whole query by one call of ours, or of the batches of a stream."""

    class Java:
        implements = [f"{_WRITE}.V1Write"]  # noqa: RUF012

    def __init__(
        self,
        jvm: Jvm,
        place: TableLocation,
        write: Callable[[DataFrame], Any],
        stream: Callable[[], Any] | None,
        way: Callable[[], str] | None = None,
    ) -> None:
        self.jvm = jvm
        self._place = place
        self._write = write
        self._stream = stream
        self._way = way
        self._text: str | None = None

    def description(self) -> str:
        return f"anabranch {self._place.name}"

    def toString(self) -> str:  # noqa: N802
        """In plans it says how the rows are written."""
        if self._text is None:
            way = "" if self._way is None else f" ({self._way()})"
            self._text = super().toString() + way
        return self._text

    def toInsertableRelation(self) -> TableInsert:  # noqa: N802
        return TableInsert(self.jvm, self._write)

    def toStreaming(self) -> Any:  # noqa: N802
        assert self._stream is not None, "Spark does not stream into a table that it has only staged"
        return self._stream()


class TableInsert(JavaProxy):
    """Insertion of the rows into the table."""

    class Java:
        implements = ["org.apache.spark.sql.sources.InsertableRelation"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, write: Callable[[DataFrame], Any]) -> None:
        self.jvm = jvm
        self._write = write

    def insert(self, data: Any, _overwrite: bool) -> None:
        from pyspark.sql import DataFrame

        with taking_part(self.jvm.spark):
            self._write(DataFrame(data, self.jvm.spark))


class PartitionsWrite(WithoutMetrics):
    """Write that replaces the partitions its rows belong to; Spark groups rows by partition first."""

    class Java:
        implements = [f"{_WRITE}.RequiresDistributionAndOrdering"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, table: Table, batch: Callable[[], Any]) -> None:
        self.jvm = jvm
        self._table = table
        self._batch = batch

    def description(self) -> str:
        return f"anabranch {self._table.name}"

    def requiredDistribution(self) -> Any:  # noqa: N802
        keys = [
            transform.references()[0]
            for transform in java.identities(self.jvm, self._table.schema.partition_keys)
        ]
        expressions = self.jvm.array(f"{java.CONNECTOR}.expressions.Expression", keys)
        return self.jvm.of(f"{java.CONNECTOR}.distributions.Distributions").clustered(expressions)

    def distributionStrictlyRequired(self) -> bool:  # noqa: N802
        return False

    def requiredNumPartitions(self) -> int:  # noqa: N802
        return 0

    def advisoryPartitionSizeInBytes(self) -> int:  # noqa: N802
        return 0

    def requiredOrdering(self) -> Any:  # noqa: N802
        return self.jvm.array(f"{java.CONNECTOR}.expressions.SortOrder", [])

    def toBatch(self) -> Any:  # noqa: N802
        return self._batch()
