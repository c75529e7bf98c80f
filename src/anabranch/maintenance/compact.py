"""Compaction: small files of the newest snapshot are rewritten as larger ones with the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.engine import Engine
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.diff import has_other_form
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.kernel.compaction.planning import plan_full, plan_minor, plan_renewal
from anabranch.kernel.compaction.selection import Partitions, live_files, select_idle, select_partitions
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_writable
from anabranch.maintenance.rewrites import RewriteOutcome, carry_out, writable_schema

_ROUNDS: Final = 6
"""Most planning rounds of one compaction. Each leaves several times fewer files than the one before."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of a compaction. With nothing to do, nothing was committed."""

    snapshot: Snapshot | None = None
    """The last one it made."""
    files_before: int = 0
    """Files that were rewritten."""
    files_after: int = 0
    """Files that hold their rows now."""
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    """Rows that were rewritten."""
    partitions: int = 0
    """Partitions in which files were rewritten."""
    tasks: int = 0
    """Tasks that were carried out and committed."""
    given_up: int = 0
    """Tasks dropped because others compacted or overwrote their files meanwhile."""

    @classmethod
    def of(cls, outcome: RewriteOutcome) -> CompactionResult:
        """Return the totals of an outcome."""
        tasks = [one.task for one in outcome.committed]
        new_files = [file for one in outcome.committed for file in one.new_files]
        return cls(
            snapshot=outcome.snapshot,
            files_before=sum(len(task.files) for task in tasks),
            files_after=len(new_files),
            bytes_before=sum(task.size for task in tasks),
            bytes_after=sum(file.file_size for file in new_files),
            rows=sum(task.row_count for task in tasks),
            partitions=len({task.partition for task in tasks}),
            tasks=len(tasks),
            given_up=len(outcome.given_up),
        )


def compact(
    context: TableContext,
    options: Mapping[str, str],
    *,
    engine: Engine,
    full: bool = False,
    partitions: Partitions | None = None,
    idle_millis: int | None = None,
) -> CompactionResult:
    """Rewrite small files as larger ones until no rewrite is worth it. See `Table.compact`.

    Raises also `UnsupportedFeatureError` where the table must not be written to.
    """
    live, schema = newest_files(context)
    live = select_idle(select_partitions(live, partitions, schema), idle_millis, context.runtime.clock)
    outcome = RewriteOutcome()
    for _ in range(_ROUNDS):
        asked = {**schema.options, **options}
        tasks = _plan_full(context, live, schema, asked) if full else plan_minor(live, schema, asked)
        if not tasks:
            break
        description = {"compaction": "full" if full else "minor"}
        done = carry_out(context, options, tasks, engine=engine, description=description)
        outcome += done
        if not done.committed:
            break
        # Only there something can be left over; concurrent writes are not waited for.
        touched = pl.Series([*{task.partition for task in tasks}], dtype=pl.Binary)
        live, schema = newest_files(context)
        live = live.filter(pl.col("partition").is_in(touched.implode()))
    return CompactionResult.of(outcome)


def _plan_full(
    context: TableContext, live: EntryFrame, schema: TableSchema, options: Mapping[str, str]
) -> list[CompactionTask]:
    """Plan to join small files, and to rewrite those with other names or types of columns than today's."""
    tasks = plan_full(live, schema, options)
    versions = live.df["schema_id"].unique(maintain_order=True).to_list()
    outdated = [i for i in versions if i != schema.id and has_other_form(context.schemas.get(i), schema)]
    return tasks + plan_renewal(live, outdated, tasks) if outdated else tasks


def newest_files(context: TableContext) -> tuple[EntryFrame, TableSchema]:
    """Return the live files and the schema to plan with. Raises `UnsupportedFeatureError`, `NotFoundError`."""
    schema = writable_schema(context)
    head = context.snapshots.head()
    if head is not None:
        check_snapshot_writable(context, head)
    return live_files(context, head), schema
