"""Continuation over expired snapshots: rows added between a held snapshot and the oldest one left.

A tag or savepoint keeps the files of its snapshot. If those that followed it have expired, a stream that stands there cannot
see what each of them did; but it can see which files are live before and after. That gives exactly the rows that were added,
each once, where

* the archive of history knows all snapshots between the two, and none took rows away: ours that append, and compactions
  that left the number of rows as it was;
* no file has rows from both sides. In a bucket in which files of the held snapshot are gone, compaction has rewritten them:
  there, what commits appended and no compaction has touched must account for all rows that came. Compaction keeps the number
  of rows, so the files that it wrote then hold old rows only, and are left out.

Everything else is refused, with the snapshot that stands against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.errors import NotFoundError
from anabranch.format.records.data_file import FileSource
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import PARENT_PROPERTY, WRITER_PROPERTY

_COLUMNS: Final = ("kind", "partition", "bucket", "level", "file_name", "row_count", "file_source")
_PLACE: Final = ("partition", "bucket")
FileId = tuple[bytes, int, str]
"""Partition row, bucket and file name."""


def oldest_left(context: TableContext, after: int) -> Snapshot | None:
    """Return the first snapshot above an id with no gap from it to the newest; None if there is none."""
    head = context.snapshots.head()
    if head is None or head.id <= after:
        return None
    oldest = head
    for snapshot in context.snapshots.down_to(head, after):
        if snapshot.id <= after:
            break
        oldest = snapshot
    return oldest


def check_only_added(context: TableContext, held: Snapshot, left: Snapshot) -> None:
    """Raise `NotFoundError` unless it is certain that no snapshot between two others removed rows.

    Args:
        held: the earlier one.
        left: the later one, which is part of the branch's history.
    """
    expected, parent = left.id, ""
    total = 0
    for snapshot in back_from(context, left, above=held.id):
        if snapshot.id != expected:
            break
        problem = _problem(snapshot)
        if problem is not None:
            raise _refused(context, held, left, f"snapshot {snapshot.id} {problem}")
        total += snapshot.delta_record_count or 0
        expected, parent = snapshot.id - 1, snapshot.properties.get(PARENT_PROPERTY, "")
    if expected != held.id:
        raise _refused(context, held, left, f"nothing is known of snapshot {expected}")
    if parent not in ("", held.stamp):
        raise _refused(
            context,
            held,
            left,
            f"snapshot {held.id + 1} was built on another one: the branch was rolled back",
        )
    if (held.total_record_count or 0) + total != (left.total_record_count or 0):
        raise _refused(context, held, left, "the numbers of rows do not add up")


def _problem(snapshot: Snapshot | PastSnapshot) -> str | None:
    """Return why a snapshot may have removed rows; None if it certainly did not."""
    match snapshot.commit_kind:
        case CommitKind.ANALYZE:
            return None
        case CommitKind.COMPACT:
            return (
                None
                if snapshot.delta_record_count == 0
                else "is a compaction that changed the number of rows"
            )
        case CommitKind.APPEND if WRITER_PROPERTY in snapshot.properties:
            return None if snapshot.delta_record_count is not None else "does not say how many rows it added"
        case CommitKind.APPEND:
            return "was written by another engine, whose appends may take rows away"
        case _:
            return f"({snapshot.commit_kind}) may have taken rows away"


def added_files(context: TableContext, held: Snapshot, left: Snapshot) -> frozenset[FileId]:
    """Return the live files of `left` with rows added after `held`, if only additions and compactions lie between.

    Raises `NotFoundError` if compaction has put rows from both sides into one file.
    """
    before, after = _live(context, held), _live(context, left)
    key = [*_PLACE, "level", "file_name"]
    new = after.join(before, on=key, how="anti", maintain_order="left")
    gone = before.join(after, on=key, how="anti").select(_PLACE).unique()
    rewritten = new.join(gone, on=_PLACE, how="semi", maintain_order="left")
    appended = rewritten.filter((pl.col("file_source") == int(FileSource.APPEND)).fill_null(value=False))
    came = (
        _rows(after, "after").join(_rows(before, "before"), on=_PLACE, how="full", coalesce=True).fill_null(0)
    )
    checked = gone.join(came, on=_PLACE, how="left").join(_rows(appended, "appended"), on=_PLACE, how="left")
    mixed = checked.fill_null(0).filter(pl.col("after") - pl.col("before") != pl.col("appended"))
    if len(mixed):
        many = f"in {len(mixed)} bucket{'' if len(mixed) == 1 else 's'}"
        raise _refused(
            context, held, left, f"{many}, compaction has put earlier and later rows into the same files"
        )
    untouched = new.join(gone, on=_PLACE, how="anti", maintain_order="left")
    names = pl.concat([untouched, appended]).select(*_PLACE, "file_name")
    return frozenset(names.iter_rows())


def _live(context: TableContext, snapshot: Snapshot) -> pl.DataFrame:
    manifests = context.manifests
    return manifests.entries(manifests.of_snapshot(snapshot), only=_COLUMNS).live().df


def _rows(files: pl.DataFrame, name: str) -> pl.DataFrame:
    return files.group_by(_PLACE).agg(pl.col("row_count").sum().cast(pl.Int64).alias(name))


def _refused(context: TableContext, held: Snapshot, left: Snapshot, why: str) -> NotFoundError:
    return NotFoundError(
        f"the stream needs snapshot {held.id + 1} of '{context.title}', which has expired. What was added from there up to "
        f"snapshot {left.id}, the earliest, cannot be told from the files: {why}",
        hint="what expired is lost to this stream. Start with a new checkpoint location and scan.mode=latest-full "
        f"(everything again), or scan.mode=from-snapshot, scan.snapshot-id={left.id}; a consumer, or a longer "
        "snapshot.time-retained, keeps it from happening.",
    )


@dataclass(frozen=True)
class Crossing:
    """A jump over expired snapshots."""

    held: Snapshot
    """Snapshot that a stream has read."""
    left: Snapshot
    """Snapshot at which it continues."""
    added: frozenset[FileId]
    """Live files of `left` with rows added after `held`."""


def crossing(context: TableContext, held: Snapshot) -> Crossing | None:
    """Return the jump for a stream at the end of `held`; None if nothing has been committed since.

    Raises `NotFoundError` as `check_only_added` and `added_files` do.
    """
    left = oldest_left(context, held.id)
    if left is None:
        return None
    check_only_added(context, held, left)
    return Crossing(held, left, added_files(context, held, left))
