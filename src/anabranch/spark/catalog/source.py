"""The portable door as the catalog uses it: the Python data source under a table's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment
from anabranch.options import (
    BRANCH,
    CONSUMER_ID,
    PATH,
    SCAN_SAVEPOINT_ID,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_VERSION,
    STREAM_SCHEMA,
)
from anabranch.scan.metadata import METADATA
from anabranch.spark.catalog import java
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage.plans import stream_columns
from anabranch.spark.native.stream import native_stream
from anabranch.spark.source.data_source import refuse_in_stream, stream_follower
from anabranch.spark.tasks.stream_compaction import watch

_KEPT_BY_ONE = (CONSUMER_ID.key, "scan.watermark.alignment.")
"""Options, or prefixes of options, that only one process of a stream may handle."""


@dataclass(frozen=True)
class TableLocation:
    """Location of a table, for readers and writers in other processes."""

    catalog: str
    """Name of the catalog in the session; empty for ``format("anabranch")``."""
    path: str
    """``db.t``, ``db.t$branch_fix`` or ``db.t$files``."""
    options: Mapping[str, str]
    """Warehouse and credentials."""

    @property
    def name(self) -> str:
        """Qualified name of the table in statements; of one that is named outside of a catalog its name or path."""
        return f"{self.catalog}.{self.path}" if self.catalog else self.path


def source_scan(jvm: Jvm, place: TableLocation, schema: Any, options: Mapping[str, str]) -> Any:
    """A ``Scan`` of the Python data source.

    Args:
        schema: a ``StructType`` of the JVM: the columns to read.
    """
    table, known = _source_table(jvm, place, schema, options)
    return table.newScanBuilder(known).build()


def source_stream(
    jvm: Jvm, place: TableLocation, schema: Any, options: Mapping[str, str], checkpoint: str
) -> Any:
    """A ``MicroBatchStream`` of the table: by Spark's own Parquet reader where a batch allows it.

    Args:
        place: of the table.
        schema: a ``StructType`` of the JVM: its columns.
        checkpoint: folder of the query for this source.
    """
    _refuse_metadata(jvm, checkpoint)

    def portable(asked: Mapping[str, str]) -> Any:
        return source_scan(jvm, place, schema, asked).toMicroBatchStream(checkpoint)

    known = {**place.options, **options, PATH.key: place.path}
    reader = stream_follower(java.python_struct(schema), known, notices=watch(jvm.spark))
    # What keeps track of the query does so once, here in the driver; for batches the portable door only reads.
    for_batches = {k: v for k, v in options.items() if not k.startswith(_KEPT_BY_ONE)}
    # Columns may be renamed while the stream goes on, in those that it began with.
    for_batches[STREAM_SCHEMA.key] = reader.feed.schema.to_json().decode()
    return native_stream(jvm, reader, schema, lambda: portable(for_batches)) or portable(options)


def _refuse_metadata(jvm: Jvm, checkpoint: str) -> None:
    """Raise `UnsupportedFeatureError` if the stream is asked for metadata columns, of which Spark tells no source."""
    try:
        found = stream_columns(jvm, checkpoint)
    except (Py4JError, TypeError):  # another version of Spark: then it fails when it reads
        return
    refuse_in_stream([name for name in found if name in METADATA])


def source_write(
    jvm: Jvm, place: TableLocation, info: Any, options: Mapping[str, str], *, overwrite: bool
) -> Any:
    """Return a ``Write`` of the Python data source for the rows that Spark's `info` describes."""
    table, known = _source_table(jvm, place, info.schema(), options)
    made = jvm.of(f"{java.CONNECTOR}.write.LogicalWriteInfoImpl")
    same = made(info.queryId(), info.schema(), known, info.rowIdSchema(), info.metadataSchema())
    builder = table.newWriteBuilder(same)
    return (builder.truncate() if overwrite else builder).build()


def _source_table(jvm: Jvm, place: TableLocation, schema: Any, options: Mapping[str, str]) -> tuple[Any, Any]:
    """Return Spark's own table over the Python data source, with known columns, and its options."""
    known = jvm.map({**place.options, **options, PATH.key: place.path})
    # By name Spark would find `anabranch.spark.catalog.format_tables`.
    provider = jvm.of("org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2")()
    provider.setShortName("anabranch")
    table = provider.getTable(schema, java.identities(jvm, []), known)
    return table, jvm.root.org.apache.spark.sql.util.CaseInsensitiveStringMap(known)


def moment_options(moment: Moment, context: TableContext) -> dict[str, str]:
    """Return the options by which another process reads the same moment, branch and columns."""
    replaced = {} if context.known_as is None else {BRANCH.key: context.known_as}
    match moment.found_by:
        case "savepoint":
            return {**replaced, SCAN_SAVEPOINT_ID.key: moment.name.rpartition(".")[2]}
        case "tag":
            return {**replaced, SCAN_TAG_NAME.key: moment.name}
    if context.main_generation:  # its number alone may mean a snapshot of a main that was replaced
        return {SCAN_VERSION.key: f"{MAIN_BRANCH}.{moment.name}"}
    return {**replaced, SCAN_SNAPSHOT_ID.key: str(moment.snapshot.id)}
