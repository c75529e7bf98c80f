"""A ``FileIndex`` of Spark's that is our planner: no folder is listed, and filters leave out files before they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

from anabranch.expr.bound import conjunction
from anabranch.format.types.data_types import Field
from anabranch.spark.context.table_state import FILES
from anabranch.spark.jvm.bulk import text_array
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.expressions import predicate_of
from anabranch.spark.native.internals import hadoop_path
from anabranch.spark.native.planned_files import PlannedFiles, apart, directories, hadoop_root, spark_index
from anabranch.spark.types.columns import spark_schema


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
        return text_array(self.jvm, [path for f in self._files.matching(None) for path, _, _ in f.files])

    def refresh(self) -> None:
        """Do nothing: snapshots do not change."""

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self.jvm.none()
