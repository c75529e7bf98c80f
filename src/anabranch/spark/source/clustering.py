"""Clustering of rows before a write: few buckets per task, and therefore few, large files.

Without this every task writes a file for every bucket that it meets a row of. Spark does it best: what it is
asked for depends on the table and on what Spark can do for the frame.

- Scalable tables with partitions: rows go by partition. Spark also cuts up a partition that would make one task much
  longer than the others (it *rebalances*), where adaptive execution is on.
- Scalable tables without partitions: nothing is done.
- Queues: rows go by partition and bucket, the whole of a bucket to one task, and are sorted back into the order they
  had. A queue of one bucket without partitions is left alone: the files of its tasks are committed in their order.

Streams cannot be sorted. Those into queues are left alone as well, unless order does not matter (`keep_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.arrow.event_times import source_field
from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import CommitKind
from anabranch.format.rows.bucket import assign_buckets
from anabranch.format.types.data_types import Field
from anabranch.kernel.commit.commit_message import WriteLoad, load_limit
from anabranch.spark.context.attached import table_of
from anabranch.spark.context.running import context_of, slots_of
from anabranch.spark.rows.row_writer import fit_spark, target_of
from anabranch.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BUCKET = "__anabranch_bucket"
_ORDER = "__anabranch_order"
_ROW_BY_ROW = frozenset({"Project", "Filter", "Union", "SubqueryAlias", "LocalLimit", "GlobalLimit"})
"""Plan steps of Spark that are cheap to execute twice."""


def cluster(
    frame: DataFrame, table: Table | str, *, keep_order: bool = True, tasks: int | None = None
) -> DataFrame:
    """Redistribute rows so that each task of a write has few buckets of the table. Lazy.

    ``t.append(frame)`` and ``t.overwrite(frame)`` do this by themselves; streams and ``frame.write`` do not.

    Args:
        frame: rows to be written; of a query or of a stream.
        table: where to; by name in the warehouse of the frame's session.
        keep_order: whether rows of one bucket of a queue must keep the order they have. Streams can then not be
            clustered by bucket.
        tasks: number of tasks that write; chosen by Spark if None.

    Raises:
        SchemaError: a column of the frame is not in the table.
        NotFoundError: there is no such table, or the session knows no warehouse.
    """
    if isinstance(table, str):
        table = table_of(frame.sparkSession, table)
    schema = table.schema
    if schema.bucket > 0:
        return _clustered_queue(frame, table, keep_order=keep_order, tasks=tasks)
    places = _columns(frame, table, schema.partition_fields)
    if not places:
        return frame
    if tasks is not None:
        return frame.repartition(tasks, *places)
    if frame.isStreaming or not _is_adaptive(frame.sparkSession):
        return frame.repartition(*places)
    return frame.hint("rebalance", *places)


def expected_load(frame: DataFrame, table: Table) -> WriteLoad | None:
    """Estimate the load of writing the frame, if that is cheap; assumes enough tasks, where Spark has them.

    Partitions are counted in the frame if that takes no more than reading their columns from where they are stored.
    Otherwise they are expected to be as many as at the last append. None if there was none.
    """
    limit = load_limit(table.options)
    schema = table.schema
    if limit is None or not (schema.partition_keys or schema.bucket > 1):
        return None
    partitions = _counted(frame, table)
    load = last_load(table) if partitions is None else WriteLoad(partitions, max(1, schema.bucket), 1)
    if load is None:
        return None
    spark = frame.sparkSession
    most = max(slots_of(spark), int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200))
    return replace(load, tasks=min(most, load.tasks_below(limit)))


def last_load(table: Table, *, tasks: int = 1) -> WriteLoad | None:
    """Return the load of `tasks` tasks writing as much as the newest snapshot; None if that was no append.

    Only an estimate: errors are ignored and give None, so that no write fails because of it.
    """
    try:
        snapshot = table.snapshot
        if snapshot is None or snapshot.commit_kind != CommitKind.APPEND or not table.schema.partition_keys:
            return None
        files = table.plan_delta(snapshot).files
    except AnabranchError:
        return None
    return (
        WriteLoad(files["partition"].n_unique(), max(1, table.schema.bucket), tasks) if len(files) else None
    )


def _clustered_queue(frame: DataFrame, table: Table, *, keep_order: bool, tasks: int | None) -> DataFrame:
    schema = table.schema
    keys = [schema.field(name) for name in schema.bucket_keys] if schema.bucket > 1 else []
    key_columns = _columns(frame, table, keys)
    places = _columns(frame, table, schema.partition_fields)
    if len(key_columns) < len(keys) or not (keys or places) or (frame.isStreaming and keep_order):
        return frame
    from pyspark.sql import functions as sf

    moved = frame
    if keys:
        moved = moved.withColumn(_BUCKET, _bucket_function(keys, schema.bucket)(*key_columns))
        places.append(sf.col(_BUCKET))
    if keep_order:
        # Counted up through the frame's parts, one after the other: the order in which tasks would write them.
        moved = moved.withColumn(_ORDER, sf.monotonically_increasing_id())
    moved = moved.repartition(*places) if tasks is None else moved.repartition(tasks, *places)
    if keep_order:
        # Sorted by bucket, so that a task has one file open at a time.
        moved = moved.sortWithinPartitions(*places, _ORDER)
    return moved.drop(_BUCKET, _ORDER)


def _bucket_function(keys: Sequence[Field], count: int) -> Callable[..., Column]:
    """Return a function from a row's key columns to its bucket, as every engine computes it."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import IntegerType

    def buckets(*columns: pa.Array) -> pa.Array:
        fitted = [fit_spark(column, key) for column, key in zip(columns, keys, strict=True)]
        return pa.array(assign_buckets(fitted, [key.type for key in keys], count))

    function: Callable[..., Column] = sf.arrow_udf(buckets, returnType=IntegerType())  # type: ignore[attr-defined]
    return function


def _columns(frame: DataFrame, table: Table, fields: Sequence[Field]) -> list[Column]:
    """Return the frame's columns for these table columns; ones that it lacks become null and are left out."""
    from pyspark.sql import functions as sf

    schema = table.schema
    source = source_field(schema, table.options)
    stored = [column for column in frame.columns if source is None or column != source.name]
    named = {target_of(column, schema, table).name: column for column in stored}
    return [sf.col("`" + named[f.name].replace("`", "``") + "`") for f in fields if f.name in named]


def _is_adaptive(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.adaptive.enabled", "true")).lower() == "true"


def _counted(frame: DataFrame, table: Table) -> int | None:
    """Count the partitions in the frame; None if that would repeat much of the frame's work."""
    fields = table.schema.partition_fields
    if not fields:
        return 1
    if frame.isStreaming or context_of(frame.sparkSession) is None:
        return None
    try:
        if not _is_row_by_row(frame._jdf.queryExecution().optimizedPlan()):  # noqa: SLF001 - Python has no other way
            return None
        return max(1, frame.select(*_columns(frame, table, fields)).distinct().count())
    except Exception:  # of Py4J or Spark: the write itself will say what is wrong
        return None


def _is_row_by_row(plan: Any) -> bool:
    children = plan.children()
    count = children.size()
    if count == 0:
        return True
    return plan.nodeName() in _ROW_BY_ROW and all(_is_row_by_row(children.apply(i)) for i in range(count))
