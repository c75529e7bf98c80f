"""Sort compaction: all rows of chosen partitions are rewritten in an order that lets queries skip files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from anabranch.arrow.sort_key import MOST_CURVE_COLUMNS, STRATEGIES, SortOrder
from anabranch.arrow.sorting import sort
from anabranch.arrow.writer import WriteContext
from anabranch.engine import Engine, LocalEngine
from anabranch.errors import InvalidInputError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import name_list
from anabranch.format.types.data_types import ArrayType, MapType, MultisetType, RowType
from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
from anabranch.kernel.compaction.planning import plan_sort
from anabranch.kernel.compaction.selection import Partitions, made_before, select_partitions
from anabranch.kernel.log.context import TableContext
from anabranch.maintenance.compact import CompactionResult, newest_files
from anabranch.maintenance.rewrites import RewriteOutcome, carry_out, write_context

_SHAPING: Final = ("file.", "metadata.stats-mode", "parquet.", "target-file-size")
"""Options of a call, over the table's, that change the files written for the same rows."""


@dataclass(frozen=True, slots=True)
class SortJob:
    """Everything but the task that sorting a partition needs. Picklable if the storage is."""

    order: SortOrder
    writing: WriteContext
    schema_of: Callable[[int], TableSchema]
    """Returns the schema of an id."""

    def run(self, task: CompactionTask) -> Rewrite:
        """Sort a partition in this process, on the local disk if it is larger than the memory for it."""
        return sort(task, self.writing, self.schema_of, self.order)


@runtime_checkable
class SortingEngine(Engine, Protocol):
    """An engine that can sort one partition with many tasks."""

    def largest_for_one_task(self, total: int) -> int:
        """Return the bytes of a partition above which many tasks should sort it, if all have `total` bytes."""
        ...

    def sort(self, task: CompactionTask, job: SortJob) -> Rewrite:
        """Sort as `SortJob.run`; if it fails, files of tasks still running are left to orphan cleaning."""
        ...


def sort_compact(
    context: TableContext,
    options: Mapping[str, str],
    *,
    engine: Engine,
    by: str | Sequence[str],
    strategy: str = "zorder",
    partitions: Partitions | None = None,
) -> CompactionResult:
    """Sort all rows of each of these partitions, and replace the files that were read. See `Table.sort_compact`.

    A partition is replaced as a whole or, if others rewrote some of its files meanwhile, skipped. Rows that are
    appended meanwhile stay as they are. A partition unchanged since the same call is skipped.
    """
    live, schema = newest_files(context)
    _check_scalable(schema, context)
    order = sort_order(by, strategy, schema)
    chosen = select_partitions(live, partitions, schema)
    description: dict[str, Any] = {"sort": order.strategy, "by": list(order.by)}
    shape = {key: value for key, value in sorted(options.items()) if key.startswith(_SHAPING)}
    if shape:
        description["options"] = shape
    sorted_before = made_before(context, chosen, schema, description)
    planned = plan_sort(chosen)
    tasks = [task for task in planned if frozenset(f.file_name for f in task.files) not in sorted_before]
    writing = write_context(context, options, engine)
    job = SortJob(order, writing, context.schemas.get)
    outcome = RewriteOutcome()
    for where, some, work in _shares(tasks, engine, job):
        outcome += carry_out(context, options, some, engine=where, description=description, work=work)
    return CompactionResult.of(outcome)


def sort_order(by: str | Sequence[str], strategy: str, schema: TableSchema) -> SortOrder:
    """Return the sort order of these names. Raises `SchemaError`, `InvalidInputError`."""
    if strategy not in STRATEGIES:
        raise InvalidInputError(
            f"'{strategy}' is no way to sort", hint=f"choose one of {', '.join(STRATEGIES)}."
        )
    names = list(name_list(by, "columns to sort by"))
    if not names:
        raise InvalidInputError(
            "no column to sort by was given",
            hint="name the columns that queries filter by, those that they filter by most often first.",
        )
    for name in names:
        _check_column(name, names, schema)
    if strategy != "order" and len(names) > MOST_CURVE_COLUMNS:
        raise InvalidInputError(
            f"{len(names)} columns are too many for strategy '{strategy}'",
            hint=f"at most {MOST_CURVE_COLUMNS} can be near each other; two to four are best.",
        )
    return SortOrder(strategy, tuple(names))


_Work = Callable[[CompactionTask], Rewrite]


def _shares(
    tasks: Sequence[CompactionTask], engine: Engine, job: SortJob
) -> Iterator[tuple[Engine, Sequence[CompactionTask], _Work]]:
    """Yield which tasks run where and how: small ones side by side, then large ones one by one."""
    if not isinstance(engine, SortingEngine):
        yield engine, tasks, job.run
        return
    largest = engine.largest_for_one_task(sum(task.size for task in tasks))
    yield engine, [task for task in tasks if task.size <= largest], job.run
    # Here begins only what the cluster then does.
    yield LocalEngine(), [task for task in tasks if task.size > largest], partial(engine.sort, job=job)


def _check_scalable(schema: TableSchema, context: TableContext) -> None:
    if schema.bucket > 0:
        raise UnsupportedFeatureError(
            f"'{context.title}' is a queue, which gives its rows in the order they were written; sorting would "
            "destroy that order",
            feature="sort-compaction-of-queues",
            hint="`compact` joins its small files and keeps the order. To sort the rows, write them to a table with "
            "'bucket' = '-1'.",
        )


def _check_column(name: str, names: Sequence[str], schema: TableSchema) -> None:
    field = schema.field(name)
    if names.count(name) > 1:
        raise SchemaError(f"column '{name}' is named twice to sort by: {', '.join(names)}")
    if name in schema.partition_keys:
        raise SchemaError(
            f"'{name}' is a partition column, and each partition is sorted by itself",
            hint="leave it out: queries skip whole partitions by it already.",
        )
    if isinstance(field.type, ArrayType | MapType | MultisetType | RowType):
        raise SchemaError(
            f"rows cannot be sorted by column '{name}' of type {field.type}",
            hint="choose columns of numbers, text, bytes, dates or times.",
        )
