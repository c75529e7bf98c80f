"""``format("anabranch")`` in classic sessions: its tables are read and written as those of the catalog are.

Spark plans and commits what a Python data source reads and writes in processes of their own, and its tasks hand every
row to Python. The tables here are objects of the driver instead, whose rows Spark's own tasks read and write; what these
cannot, and all of Spark Connect, is left to the data source. Options, columns and results are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.options import PATH, SCAN_FILTER
from anabranch.scan.scan import Scan
from anabranch.spark.catalog import java
from anabranch.spark.catalog.source import TableLocation, source_stream
from anabranch.spark.catalog.tables import LakeTable, note_read
from anabranch.spark.catalog.writes import batch_write, known_origin, stream_write
from anabranch.spark.context.options import INCREMENTAL, refuse_catalog_options, refuse_incremental, spelled
from anabranch.spark.context.table_state import TableState
from anabranch.spark.context.tables import first_view
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.lineage.batch_reads import reading
from anabranch.spark.native.compiled import NotCompiledError, driver_class
from anabranch.spark.native.scan_builder import ScanBuilder
from anabranch.spark.source.data_source import check_columns, fields_of, refuse_added
from anabranch.spark.source.system_tables import system_read
from anabranch.spark.types.columns import spark_schema_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_WRITE = f"{java.CONNECTOR}.write"


def register_format(spark: SparkSession, defaults: Mapping[str, str]) -> None:
    """Let ``format("anabranch")`` of a session find the tables here before it asks the data source.

    Args:
        spark: a classic session.
        defaults: options of the session, which those of a read or write override.
    """
    start_callbacks(spark)
    jvm = Jvm(spark)
    try:
        driver_class(jvm, "DefaultSource")
        jvm.of("anabranch.DefaultSource").register(jvm.session, _Opener(jvm, defaults))
    except NotCompiledError as error:
        _LOG.info("format('anabranch') works by processes of Python in this session: %s", error)


class _Opener(JavaProxy):
    """Callback that opens the table of a read or write; None leaves it to the data source."""

    class Java:
        implements = ["java.util.function.BiFunction"]  # noqa: RUF012 - Py4J reads it so

    def __init__(self, jvm: Jvm, defaults: Mapping[str, str]) -> None:
        self.jvm = jvm
        self._defaults = spelled(defaults, is_checked=True)

    def apply(self, columns: Any, given: Any) -> FormatTable | None:
        asked = java.python_map(given)
        refuse_catalog_options(asked)
        options = {**self._defaults, **spelled(asked, besides=self._defaults, incremental=True)}
        if not PATH.of(options) or system_read(options) is not None:
            return None
        return FormatTable(self.jvm, options, columns)


class FormatTable(LakeTable):
    """A table that the options of a read or write name.

    Args:
        jvm: of the session.
        options: theirs and the session's.
        columns: a ``StructType`` of the JVM: of the rows to write, or what somebody says that the table has; None to
            take the table's.
    """

    def __init__(self, jvm: Jvm, options: Mapping[str, str], columns: Any) -> None:
        # A state is shared by all reads of its snapshot: what one of them asks besides is not part of it.
        view, self._missing = first_view({k: v for k, v in options.items() if k not in INCREMENTAL})
        super().__init__(
            jvm,
            TableState(view.table, view.snapshot, view.schema),
            TableLocation("", options[PATH.key], options),
            columns or jvm.struct(spark_schema_json(fields_of(view.schema, options))),
        )
        self._given = options

    def newScanBuilder(self, _options: Any) -> ScanBuilder:  # noqa: N802
        def streamed(checkpoint: str) -> Any:
            refuse_incremental(self._given)
            return source_stream(self.jvm, self.place, self._java_schema, self._given, checkpoint)

        return ScanBuilder(
            self.jvm, self._rows, columns=self._java_schema, keeps_order=True, streams=streamed
        )

    def newWriteBuilder(self, info: Any) -> FormatWrite:  # noqa: N802
        refuse_incremental(self._given)
        return FormatWrite(self.jvm, self, info)

    def _abilities(self) -> tuple[str, ...]:
        return "BATCH_READ", "MICRO_BATCH_READ", "BATCH_WRITE", "STREAMING_WRITE", "TRUNCATE"

    def _rows(self) -> Scan:
        """What a batch reads: the rows there were when Spark asked for the table, whenever it is carried out."""
        if self._missing is not None:
            raise self._missing
        refuse_added(self._given)
        seen = self.seen.by({key: self._given[key] for key in INCREMENTAL if key in self._given})
        check_columns(seen.schema, java.python_struct(self._java_schema), self._given)
        with reading(self.jvm.spark) as is_planned:
            note_read(seen, is_planned=is_planned)
        condition = SCAN_FILTER.of(self._given)
        if condition is None:
            return seen.scan
        return replace(seen.scan, predicate=bind(parse(condition), seen.schema.fields))


class FormatWrite(JavaProxy):
    """A write into such a table, and what Spark builds it with."""

    class Java:
        implements = [f"{_WRITE}.SupportsTruncate", f"{_WRITE}.Write"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, into: FormatTable, info: Any) -> None:
        self.jvm = jvm
        self._into = into
        self._info = info
        self._overwrite = False

    def truncate(self) -> FormatWrite:
        self._overwrite = True
        return self

    def build(self) -> FormatWrite:
        return self

    def description(self) -> str:
        return f"anabranch {self._into.place.name}"

    def toBatch(self) -> Any:  # noqa: N802
        into = self._into
        options = {**into.place.options, **known_origin(self.jvm, into.table)}
        return batch_write(self.jvm, into.place, self._info, options, overwrite=self._overwrite)

    def toStreaming(self) -> Any:  # noqa: N802
        into = self._into
        return stream_write(self.jvm, into.place, self._info, into.place.options, overwrite=self._overwrite)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array(f"{java.CONNECTOR}.metric.CustomMetric", [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array(f"{java.CONNECTOR}.metric.CustomTaskMetric", [])
