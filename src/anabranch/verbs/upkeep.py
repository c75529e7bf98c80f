"""Verbs that keep tables fast and small: compaction, sorting, expiry, clean-up."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.runtime import SYSTEM
from anabranch.verbs.answer import Answer, Grid, Note, Shown
from anabranch.verbs.parameters import DryRun, names
from anabranch.verbs.subject import Each, EachBranchOnSpark, OnBranch, OnSpark, OnTable
from anabranch.verbs.upkeep_results import CleaningInfo, CompactionInfo, ExpiryInfo, UpkeepInfo
from anabranch.verbs.verb import Confirm, Group, option, verb

if TYPE_CHECKING:
    from anabranch.table import Table

UPKEEP: Group = "Upkeep"
_LOG = logging.getLogger(__name__)
_COMPACTED = (
    "snapshot_id BIGINT, files_before BIGINT, files_after BIGINT, bytes_before BIGINT, bytes_after BIGINT, "
    "rows BIGINT, given_up BIGINT"
)

Partition = Annotated[
    list[str] | None,
    option("dt=2026-01-01/hour=3; may be repeated. All if absent.", "--partition", "-p", sql=None),
]
Partitions = Annotated[
    str | None, option("A condition on partition columns; all if left out.", in_command=False)
]


def partition_values(texts: Iterable[str] | None) -> list[dict[str, str]] | None:
    """Parse partitions from ``dt=2026-01-01/hour=3``; None for all. Raises `InvalidInputError`."""
    from anabranch.format.rows.partition_path import parse_partition

    return [parse_partition(text) for text in texts or ()] or None


@verb(
    UPKEEP,
    "Table.maintain",
    columns="files_before BIGINT, files_after BIGINT, snapshots_expired BIGINT, files_expired BIGINT, "
    "orphans_moved BIGINT, orphans_purged BIGINT",
    changes=True,
)
def maintain(tables: Each, dry_run: DryRun = False, *, ask: Confirm) -> Answer:
    """Compact, expire and clean up, as the options of the table say."""
    ask(f"maintain {tables.name}: compact, expire snapshots, remove orphan files?")
    done = tables.each(lambda table: UpkeepInfo.of(table.name, table.maintain(dry_run)))
    rows = [
        (
            *(one.compaction.files_before, one.compaction.files_after, one.expiry.snapshots),
            sum(removed["files"] for removed in one.expiry.removed.values()),
            *(one.cleaning.moved, one.cleaning.purged),
        )
        for one in done
    ]
    return Answer(done, *(one.text for one in done), rows=rows)


@verb(UPKEEP, "Table.compact", columns=_COMPACTED, changes=True)
def compact(
    tables: EachBranchOnSpark,
    full: Annotated[
        bool,
        option(
            "Leave no small files, however few there are, and none with other names or types of columns than today's.",
            "--full",
        ),
    ] = False,
    partition: Partition = None,
    partitions: Partitions = None,
    idle: Annotated[
        str | None,
        option("Only partitions without new files for so long, as '1 h'.", "--partition-idle-time"),
    ] = None,
    every: Annotated[
        str | None, option("Go on for ever, looking again so often, as '30 s'; Ctrl-C ends it.", sql=None)
    ] = None,
) -> Iterator[Answer]:
    """Rewrite small files as fewer large ones, while everybody keeps reading and writing."""
    pause = None if every is None else _seconds(every)
    chosen = partitions or partition_values(partition)
    lake = tables.lake() if pause is not None else None

    def work(table: Table) -> CompactionInfo:
        return CompactionInfo.of(table.name, table.compact(full, chosen, idle))

    yield _compacted(tables.each(work, lake), is_only=pause is None)
    while pause is not None:
        SYSTEM.sleeper.sleep(pause)
        try:
            done = tables.each(work, lake)
        except InvalidInputError:
            raise
        except AnabranchError as error:  # of another kind: the next round tries again
            _LOG.warning("compaction of %s goes on after an error: %s", tables.name, error)
        else:
            yield _compacted(done, is_only=False)


def _compacted(done: list[CompactionInfo], *, is_only: bool) -> Answer:
    columns = ("table", "files", "became", "bytes", "became", "rows", "snapshot")
    rows = [
        (d.table, d.files_before, d.files_after, d.bytes_before, d.bytes_after, d.rows, d.snapshot)
        for d in done
    ]
    shown: list[Shown] = []
    if any(d.files_before or d.given_up for d in done):
        shown = [Grid(columns, rows), *(text for d in done for text in d.losses)]
    elif is_only:
        shown = ["nothing to compact"]
    return Answer(done, *shown, rows=[d.row for d in done])


@verb(UPKEEP, "Table.sort_compact", columns=_COMPACTED, changes=True)
def sort_compact(
    table: OnSpark,
    order_by: Annotated[str, option("Comma-separated columns.", "--order-by")],
    strategy: Annotated[
        str, option("order (by the first column first), zorder or hilbert (by all alike).")
    ] = "zorder",
    partition: Partition = None,
    partitions: Partitions = None,
) -> Answer:
    """Rewrite partitions in the order of some columns, so that queries on them skip files."""
    chosen = partitions or partition_values(partition)
    made = table.sort_compact(names(order_by) or [], strategy=strategy, partitions=chosen)
    done = CompactionInfo.of(table.name, made)
    if not done.files_before and not done.given_up:
        text = f"nothing to sort: {done.table} is empty, or sorted like this already"
        return Answer(done, text, rows=[done.row])
    text = (
        f"sorted {done.rows:,} rows by {order_by} ({strategy}): {done.files_before:,} files became "
        f"{done.files_after:,}" + ("" if done.snapshot is None else f" in snapshot {done.snapshot}")
    )
    return Answer(done, text, *done.losses, rows=[done.row])


@verb(
    UPKEEP,
    "Table.expire_snapshots",
    columns="snapshots BIGINT, snapshots_left BIGINT, data_files BIGINT, metadata_files BIGINT, bytes BIGINT",
    changes=True,
)
def expire_snapshots(
    tables: EachBranchOnSpark,
    retain_max: Annotated[int | None, option("Keep at most so many snapshots.", min=1)] = None,
    retain_min: Annotated[int | None, option("Keep at least so many.", min=1)] = None,
    older_than: Annotated[
        str | None, option("Expire those older than this: '2 d', or a time such as 2026-01-31.")
    ] = None,
    dry_run: DryRun = False,
    *,
    ask: Confirm,
) -> Answer:
    """Let go of old snapshots, and of files that no snapshot, tag, savepoint or branch reaches any more."""
    ask(f"expire snapshots of {tables.name}?")

    def work(table: Table) -> ExpiryInfo:
        done = table.expire_snapshots(
            retain_max=retain_max, retain_min=retain_min, older_than=older_than, dry_run=dry_run
        )
        return ExpiryInfo.of(table.name, done)

    done = tables.each(work)
    expired = "would expire" if dry_run else "expired"
    counts = [(d.snapshots, d.snapshots_left, d.data_files, d.metadata_files, d.bytes) for d in done]
    rows = [(d.table, d.snapshots, d.data_files, d.metadata_files, d.bytes, d.snapshots_left) for d in done]
    grid = Grid(("table", expired, "data files", "metadata files", "bytes", "left"), rows)
    return Answer(done, grid, *(text for d in done for text in d.details), rows=counts)


@verb(
    UPKEEP,
    "Table.expire_partitions",
    columns="partition STRING, time TIMESTAMP(3) WITH LOCAL TIME ZONE, rows BIGINT, files BIGINT, bytes BIGINT, "
    "snapshot_id BIGINT",
    changes=True,
)
def expire_partitions(
    table: OnBranch,
    older_than: Annotated[
        str | None, option("An age such as '90 d', instead of partition.expiration-time.")
    ] = None,
    dry_run: DryRun = False,
    *,
    ask: Confirm,
) -> Answer:
    """Take partitions away that are older than partition.expiration-time says; moments before it keep their rows."""
    ask(f"expire old partitions of {table.name}?")
    done = table.expire_partitions(older_than, dry_run=dry_run)
    number = None if done.snapshot is None else done.snapshot.id
    found = [(p.partition, f"{p.time:%Y-%m-%d %H:%M:%S}Z", p.rows, p.files, p.bytes) for p in done.partitions]
    columns = ("partition", "time", "rows", "files", "bytes")
    shown: list[Shown] = [Grid(columns, found)] if found else []
    shown.append(str(done) + ("" if number is None else f" in snapshot {number}"))
    if done.timeless:
        shown.append(Note(f"{done.timeless:,} partitions stand for no time and never expire"))
    value = {
        "table": table.name,
        "partitions": [dict(zip(columns, row, strict=True)) for row in found],
        "snapshot": number,
        "timeless": done.timeless,
        "dry_run": dry_run,
    }
    rows = [(p.partition, p.time, p.rows, p.files, p.bytes, number) for p in done.partitions]
    return Answer(value, *shown, rows=rows)


@verb(
    UPKEEP,
    "Table.mark_partition_done",
    columns="partition STRING, path STRING, first_marked TIMESTAMP(3) WITH LOCAL TIME ZONE, "
    "marked TIMESTAMP(3) WITH LOCAL TIME ZONE",
    changes=True,
)
def mark_partition_done(
    table: OnTable,
    partition: Annotated[
        list[str] | None, option("dt=2026-01-01/hour=3; may be repeated.", "--partition", "-p", sql=None)
    ] = None,
    partitions: Annotated[str | None, option("A condition on partition columns.", in_command=False)] = None,
) -> Answer:
    """Put a _SUCCESS file into the folders of partitions, which tells schedulers that their rows are complete."""
    done = table.mark_partition_done(partitions or partition_values(partition) or [])
    columns = ("partition", "path", "first_marked", "marked")
    rows = [(d.partition, d.path, d.first_marked, d.marked) for d in done]
    value = [
        dict(zip(columns, (d.partition, d.path, *_times(d.first_marked, d.marked)), strict=True))
        for d in done
    ]
    grid = Grid(("partition", "marked"), [(d.partition, *_times(d.marked)) for d in done])
    return Answer(value, grid, rows=rows)


def _times(*moments: datetime) -> tuple[str, ...]:
    return tuple(f"{moment:%Y-%m-%d %H:%M:%S}Z" for moment in moments)


@verb(
    UPKEEP,
    "Table.remove_orphan_files",
    columns="run BIGINT, moved BIGINT, moved_bytes BIGINT, purged BIGINT, purged_bytes BIGINT",
    changes=True,
)
def remove_orphan_files(
    tables: Each,
    older_than: Annotated[str, option("Spare what is younger: writers may be at it.")] = "1 d",
    dry_run: DryRun = False,
    *,
    ask: Confirm,
) -> Answer:
    """Move files that belong to no snapshot out of the way, and purge those moved long ago."""
    ask(f"remove orphan files of {tables.name} older than {older_than}?")
    done = tables.each(
        lambda table: CleaningInfo.of(table.name, table.remove_orphan_files(older_than, dry_run))
    )
    would = "would " if dry_run else ""
    columns = (
        *("table", f"{would}move" if dry_run else "moved", "bytes"),
        *(f"{would}purge" if dry_run else "purged", "bytes"),
    )
    counts = [(d.moved, d.moved_bytes, d.purged, d.purged_bytes) for d in done]
    grid = Grid(columns, [(d.table, *count) for d, count in zip(done, counts, strict=True)])
    rows = [(d.run, *count) for d, count in zip(done, counts, strict=True)]
    return Answer(done, grid, *(text for d in done for text in d.details), rows=rows)


@verb(UPKEEP, "Table.restore_orphan_files", columns="files BIGINT, bytes BIGINT", changes=True)
def restore_orphan_files(
    table: OnTable, run: Annotated[int, option("Number that remove-orphan-files gave.")]
) -> Answer:
    """Bring back what a run of remove-orphan-files moved away, until a later run purges it."""
    tally = table.restore_orphan_files(run)
    value = {"table": table.name, "run": run, "files": tally.files, "bytes": tally.bytes}
    text = f"brought back {tally.files:,} files, {tally.bytes:,} bytes"
    return Answer(value, text, rows=[(tally.files, tally.bytes)])


def _seconds(text: str) -> float:
    from anabranch.option_kinds import parse_duration

    try:
        return parse_duration(text) / 1000
    except ValueError as error:
        raise InvalidInputError(f"'{text}' is no duration", hint="write 30 s, 10 min or 1 h.") from error
