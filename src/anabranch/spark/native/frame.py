"""A scan as a DataFrame of Spark's own Parquet reader."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from anabranch.expr.bound import columns, conjunction
from anabranch.format.types.data_types import Field
from anabranch.spark.context.table_state import FILES
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.handles import text_array
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.conversions import nothing
from anabranch.spark.native.door import native_generations, not_as_expected, tell
from anabranch.spark.native.expressions import predicate_of
from anabranch.spark.native.filters import cannot_filter, filter_column, named
from anabranch.spark.native.generations import Generation, Obstacle, shield, shielded
from anabranch.spark.native.internals import hadoop_path, relation_frame
from anabranch.spark.native.planned_files import PlannedFiles, apart, directories, hadoop_root, spark_index
from anabranch.spark.native.portable import chosen_fields, portable_frame
from anabranch.spark.types.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from anabranch.scan.scan import Scan


def native_frame(spark: SparkSession, scan: Scan) -> DataFrame:
    """Return a scan's rows, read by Spark's vectorised Parquet reader where that is possible.

    Spark's filters, also those it finds while a query runs, leave out partitions and files by our metadata; no
    folder is listed. Where native reading is not possible the rows come through the portable door, and the log
    says why.

    Args:
        spark: a session, classic or of Spark Connect; the latter is always the portable door.
        scan: what to read: a snapshot with filter, columns and limit.

    Returns:
        A frame that gives the rows of that snapshot however often it is used.

    Raises what `Scan.plan` does.
    """
    found = _native(spark, scan)
    if isinstance(found, Obstacle):
        tell(scan.context, found)
        found = portable_frame(spark, scan)
    return found if scan.limit is None else found.limit(scan.limit)


def _native(spark: SparkSession, scan: Scan) -> DataFrame | Obstacle:
    reason = None if scan.predicate is None else cannot_filter(scan.predicate)
    if reason is not None:
        return Obstacle(reason)
    if scan.metadata_columns:
        return Obstacle("metadata columns are asked for")
    wanted = _needed(scan)
    made = native_generations(spark, scan, wanted)
    if isinstance(made, Obstacle):
        return made
    try:
        start_callbacks(spark)
        jvm = Jvm(spark)
        rows = reduce(DataFrame.unionAll, [_generation_frame(jvm, scan, generation) for generation in made])
    except Py4JError as error:
        return Obstacle(not_as_expected(error))
    if scan.predicate is not None:
        rows = rows.filter(filter_column(scan.predicate))
    return rows.select(*(named(f.name) for f in chosen_fields(scan)))


def _needed(scan: Scan) -> list[Field]:
    """Return the columns that the scan outputs or filters by, in the order of the table."""
    asked = {f.id for f in chosen_fields(scan)}
    if scan.predicate is not None:
        asked |= columns(scan.predicate)
    return [f for f in scan.schema.fields if f.id in asked]


def _generation_frame(jvm: Jvm, scan: Scan, generation: Generation) -> DataFrame:
    schema = generation.schema
    partition_fields = schema.partition_fields
    keys = {f.id for f in partition_fields}
    data = [f for f in generation.fields if f.id not in keys]
    files = PlannedFiles(scan, schema, generation.schema_ids)
    index = PlannedFileIndex(jvm, files, [*data, *partition_fields])
    frame = relation_frame(
        jvm, index, spark_schema(data), spark_schema(partition_fields), files.whole.height, verify=scan.verify
    )
    return frame.select(*_columns(generation, shielded(scan, generation)))


def _columns(generation: Generation, shields: frozenset[str]) -> list[Column]:
    """Convert the columns of the generation to those of the table."""
    types = {f.name: f.type for f in generation.fields}
    made = []
    for field, name, convert in generation.columns:
        if name is None:
            made.append(nothing(field.type).alias(field.name))
            continue
        found = named(name)
        if name in shields:
            found = shield(found, types[name])
        if convert is not None:
            found = convert(found)
        is_itself = name == field.name and name not in shields and convert is None
        made.append(found if is_itself else found.alias(field.name, metadata=_metadata(field)))
    return made


def _metadata(field: Field) -> dict[str, str]:
    return spark_schema([field])[0].metadata or {}


class PlannedFileIndex(JavaProxy):
    """File index of a pinned snapshot that plans anew with the filters of every query."""

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.execution.datasources.FileIndex"]

    def __init__(self, jvm: Jvm, files: PlannedFiles, fields: Sequence[Field]) -> None:
        self.jvm = jvm
        self._files = files
        self._fields = tuple(fields)
        self._scan = FILES.setdefault(self._paths[-1], files.scan)

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        """Return the files that remain after filters on partition columns and on others.

        Spark never looks again at what it asks of partition columns alone: of these filters the planner uses what
        it understands, and then Spark decides by all of them.
        """
        asked = [Filters(self.jvm, filters) for filters in (partition_filters, data_filters)]
        parts = [predicate_of(filters, self._fields) for filters in asked]
        folders = self._files.matching(conjunction(part for part in parts if part is not None))
        if partition_filters.isEmpty() or not folders:
            return directories(self.jvm, self._files.schema, folders)
        indexes = [spark_index(self.jvm, self._files.scan, group, self._fields) for group in apart(folders)]
        found = [index.listFiles(partition_filters, self.jvm.seq([])) for index in indexes]
        return reduce(lambda some, more: some.appendedAll(more), found)

    def sizeInBytes(self) -> int:  # noqa: N802
        """Total size in bytes, for the optimiser."""
        return self._files.bytes

    def partitionSchema(self) -> Any:  # noqa: N802
        return self.jvm.struct(spark_schema(self._files.schema.partition_fields))

    def rootPaths(self) -> Any:  # noqa: N802
        """Paths of table and snapshot: two, because with a single path Spark's writes would go into its folder."""
        return self.jvm.seq([hadoop_path(self.jvm, path) for path in self._paths])

    @property
    def _paths(self) -> list[str]:
        scan = self._files.scan
        root = hadoop_root(scan.context.storage.url)
        layout = scan.context.layout
        seen = (
            layout.schema_path(scan.schema.id)
            if scan.snapshot is None
            else layout.snapshot_path(scan.snapshot.id)
        )
        added = "" if scan.between is None else f".after-{scan.between.start}"
        return [f"{root}", f"{root}/{seen}{added}"]

    def inputFiles(self) -> Any:  # noqa: N802
        return text_array(self.jvm, [path for f in self._files.matching(None) for path in f.paths()])

    def refresh(self) -> None:
        """Do nothing: snapshots do not change."""

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self.jvm.none()
