"""Engine for tables on Spark: writes, scans, measures and sorts by jobs, classic or through Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.engine import WrittenRows
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.spark.context.running import slots_of
from anabranch.spark.native.frame import native_frame
from anabranch.spark.tasks import sort
from anabranch.spark.tasks.audit import measure
from anabranch.spark.tasks.frame_writer import write_frame
from anabranch.spark.tasks.task_engine import TaskEngine
from anabranch.spark.types.columns import frame_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
    from anabranch.maintenance.sort import SortJob
    from anabranch.scan.scan import Scan


@dataclass(frozen=True)
class SparkEngine(TaskEngine):
    """Engine of tables that were opened with a session: see the protocols in `anabranch.engine`."""

    def columns(self, frame: Any) -> Sequence[Field] | None:
        """See `anabranch.engine.WritesFrames`."""
        return frame_columns(frame)

    def write(self, frame: Any, table: Any, schema: TableSchema | None = None) -> WrittenRows | None:
        """See `anabranch.engine.WritesFrames`: a Spark DataFrame is written by tasks of its own session."""
        return write_frame(frame, table, schema)

    def frame(self, scan: Scan) -> DataFrame:
        """See `anabranch.engine.ReadsFrames`: read by Spark's own Parquet reader where that is possible."""
        return native_frame(self.spark, scan)

    def measure(self, measures: Sequence[Any], sides: Any) -> dict[Any, Any]:
        """See `anabranch.engine.MeasuresRows`: conditions in text are Spark's SQL."""
        return measure(self, measures, sides)

    def largest_for_one_task(self, total: int) -> int:
        """See `anabranch.maintenance.sort.SortingEngine`."""
        return sort.largest_for_one_task(total, slots_of(self.spark))

    def sort(self, task: CompactionTask, job: SortJob) -> Rewrite:
        """See `anabranch.maintenance.sort.SortingEngine`."""
        return sort.sort_with_many(self, task, job, slots=slots_of(self.spark))
