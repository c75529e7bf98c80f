"""Classifies one side's changes in a merge, per partition, since a snapshot that both sides know.

Uses the entries of snapshots, not only their kind: engines write sort compactions as overwrites, and old ones put
DELETEs into appends.

| snapshot                                | its partition is                                          |
|-----------------------------------------|-----------------------------------------------------------|
| APPEND                                  | appended to; overwritten where it deletes files           |
| COMPACT                                 | as before; overwritten where it changes the number of rows|
| OVERWRITE                               | overwritten if it names it, by an entry or in its property|
| OVERWRITE of others without an entry    | overwritten, and so is every other                        |
| merge of another branch                 | overwritten where it replaced; else appended to           |
| rollback of main to a moment between    | as at that moment: see `past`                             |
| any other rollback                      | overwritten where it has entries                          |
| merge of this branch                    | as before: those changes are not main's                   |

A `Span` holds the changes of a stretch of history in a durable form: an expiry writes one for what it removes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.records.snapshot_columns import field_of, property_of, snapshots_at
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import (
    MERGE_PROPERTY,
    MERGE_USER,
    OVERWRITE_PROPERTY,
    PARENT_PROPERTY,
    REWRITE_PROPERTY,
    ROLLBACK_PROPERTY,
    is_marker,
    merge_facts,
)
from anabranch.kernel.provenance.births import delta_of
from anabranch.kernel.provenance.past import counting, rolled_back_to

DELTA_COLUMNS: Final = ("kind", "partition", "bucket", "row_count", "level", "file_name")


MarksKey = tuple[int, str]
"""Id and delta list of a snapshot: what they say it did never changes."""


class ChangeKind(StrEnum):
    """Kind of change in a partition."""

    NOTHING = "nothing"
    """At most its files were rewritten."""
    APPENDED = "appended"
    OVERWRITTEN = "overwritten"
    UNKNOWN = "unknown"
    """The relevant snapshots have expired without a record of their changes."""


@dataclass(frozen=True, slots=True)
class LastChanges:
    """Ids of the newest snapshots that changed a partition; 0 for none."""

    appended: int = 0
    overwritten: int = 0

    def __or__(self, other: LastChanges) -> LastChanges:
        return LastChanges(max(self.appended, other.appended), max(self.overwritten, other.overwritten))


@dataclass(frozen=True, slots=True)
class WideOverwrite:
    """An overwrite that also covers partitions without files."""

    snapshot_id: int
    schema_id: int
    """Schema in which `spec` names its columns."""
    spec: str | None
    """Value of the snapshot's property; None for all partitions."""


@dataclass(frozen=True, slots=True)
class MergeMade:
    """A snapshot of main that merged the branch."""

    number: int
    """Number of the merge within the branch."""
    id: int
    stamp: str


@dataclass(frozen=True)
class Span:
    """Combined changes of contiguous snapshots."""

    first: int
    """Id of the oldest."""
    last: int
    """Id of the newest."""
    before: str | None
    """Stamp of the snapshot before the first, if it is known."""
    end: str
    """Stamp of the last."""
    marks: Mapping[bytes, LastChanges] = field(default_factory=dict)
    """By partition row."""
    wide: tuple[WideOverwrite, ...] = ()
    merges: tuple[MergeMade, ...] = ()
    """Merges of the branch that were not rolled back within the span."""
    rollbacks: tuple[tuple[int, int], ...] = ()
    """Rollbacks to moments before the first: id, and id of the moment. Merges in between are undone."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {
            "first": self.first,
            "last": self.last,
            "before": self.before,
            "end": self.end,
            "marks": [[row.hex(), m.appended, m.overwritten] for row, m in self.marks.items()],
            "wide": [[w.snapshot_id, w.schema_id, w.spec] for w in self.wide],
            "merges": [[m.number, m.id, m.stamp] for m in self.merges],
            "rollbacks": [list(rollback) for rollback in self.rollbacks],
        }

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> Span:
        """Parse the output of `to_dict`. Raises `CorruptTableError` naming `where` if it is invalid."""
        try:
            return cls(
                first=int(value["first"]),
                last=int(value["last"]),
                before=value["before"],
                end=str(value["end"]),
                marks={bytes.fromhex(row): LastChanges(int(a), int(o)) for row, a, o in value["marks"]},
                wide=tuple(WideOverwrite(int(i), int(s), spec) for i, s, spec in value["wide"]),
                merges=tuple(MergeMade(int(k), int(i), str(stamp)) for k, i, stamp in value["merges"]),
                rollbacks=tuple((int(i), int(target)) for i, target in value["rollbacks"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError("does not say what expired snapshots did", path=where) from error


def span_of(
    context: TableContext,
    snapshots: Sequence[Snapshot],
    *,
    besides: str | None = None,
    undoing: bool | None = None,
    marks_by: MarksReader | None = None,
) -> Span:
    """Compute the combined changes of contiguous snapshots.

    Args:
        snapshots: at least one, oldest first.
        besides: for main, uuid of the branch whose merges do not count as changes of main.
        undoing: whether a rollback undoes what lies between it and its moment; by default on main. On a branch a merge
            may have taken what lies between, and then the rollback itself counts.
        marks_by: reader to reuse when asking about the same snapshots again.

    Raises `CorruptTableError` if their changes can no longer be read.
    """
    appended: dict[bytes, int] = {}
    overwritten: dict[bytes, int] = {}
    wide: list[WideOverwrite] = []
    merges: list[MergeMade] = []
    rollbacks: list[tuple[int, int]] = []
    is_undoing = besides is not None if undoing is None else undoing
    counted = counting(snapshots) if is_undoing else snapshots
    own_user = None if besides is None else f"{MERGE_USER}{besides}"
    ids, users = field_of(counted, "id"), field_of(counted, "commit_user")
    back = property_of(counted, ROLLBACK_PROPERTY)
    odd = [row for row, user in enumerate(users) if user == own_user or back[row] is not None]
    for snapshot in snapshots_at(counted, odd):
        target = rolled_back_to(snapshot)
        if target is not None:
            rollbacks.append((snapshot.id, target.id))
            merges = [made for made in merges if made.id <= target.id]
        if snapshot.commit_user == own_user and not is_marker(snapshot):
            merges.append(MergeMade(snapshot.commit_identifier, snapshot.id, snapshot.stamp))
    reader = marks_by or MarksReader(context)
    others = [number for number, user in zip(ids, users, strict=True) if user != own_user]
    for number, done in zip(others, reader.of(counted, besides=own_user), strict=True):
        for row, change in done.partitions.items():
            if change.appended:
                appended[row] = number
            if change.overwritten:
                overwritten[row] = number
        wide += done.wide
    marks = {
        row: LastChanges(appended.get(row, 0), overwritten.get(row, 0)) for row in {**appended, **overwritten}
    }
    first, last = snapshots[0], snapshots[-1]
    return Span(
        first.id,
        last.id,
        first.properties.get(PARENT_PROPERTY),
        last.stamp,
        marks,
        tuple(wide),
        tuple(merges),
        tuple(rollbacks),
    )


class Change(Enum):
    """What one snapshot did to a partition; its value stands before the partition's row in `SnapshotMarks.to_json`."""

    APPENDED = "+"
    OVERWRITTEN = "="
    BOTH = "*"

    def __init__(self, sign: str) -> None:
        self.appended = sign != "="
        self.overwritten = sign != "+"


@dataclass(frozen=True, slots=True)
class SnapshotMarks:
    """Changes of one snapshot."""

    partitions: Mapping[bytes, Change]
    """By partition row."""
    wide: tuple[WideOverwrite, ...] = ()

    def to_json(self) -> Any:
        """Convert to JSON values: one text for all partitions, as thousands of short lists take long to read."""
        rows = " ".join(f"{change.value}{row.hex()}" for row, change in self.partitions.items())
        return [rows, [[wide.schema_id, wide.spec] for wide in self.wide]] if self.wide else rows

    @classmethod
    def from_json(cls, snapshot_id: int, value: Any) -> SnapshotMarks:
        """Parse the output of `to_json` for that snapshot. Raises `ValueError` or `TypeError` if it is invalid."""
        rows, wide = (value, ()) if isinstance(value, str) else value
        return cls(
            {bytes.fromhex(row[1:]): Change(row[0]) for row in str.split(rows)},
            tuple(WideOverwrite(snapshot_id, int(schema_id), spec) for schema_id, spec in wide),
        )


def marks_key(snapshot: Snapshot) -> MarksKey:
    """Return what a snapshot's changes are known by."""
    return snapshot.id, snapshot.delta_manifest_list


def marks_keys(snapshots: Sequence[Snapshot]) -> list[MarksKey]:
    """Return what the changes of each of some snapshots are known by."""
    return [*zip(field_of(snapshots, "id"), field_of(snapshots, "delta_manifest_list"), strict=True)]


class MarksReader:
    """Reads the changes of snapshots, in parallel, each only once; those that are known already not at all."""

    def __init__(self, context: TableContext, known: Mapping[MarksKey, SnapshotMarks] | None = None) -> None:
        self._context = context
        self._known = dict(known or {})

    def of(self, snapshots: Sequence[Snapshot], *, besides: str | None = None) -> Iterator[SnapshotMarks]:
        """Yield the changes of each snapshot, but of those by one user. Raises `CorruptTableError` as `marks_of`."""
        users = field_of(snapshots, "commit_user")
        keys = marks_keys(snapshots)
        wanted = [row for row, user in enumerate(users) if user != besides]
        missing = snapshots_at(snapshots, [row for row in wanted if keys[row] not in self._known])
        read = zip(missing, self._context.manifests.deltas(missing, only=DELTA_COLUMNS), strict=True)
        for row in wanted:
            key = keys[row]
            if key not in self._known:
                self._known[key] = marks_of(self._context, *next(read))
            yield self._known[key]


def marks_of(context: TableContext, snapshot: Snapshot, delta: EntryFrame | None = None) -> SnapshotMarks:
    """Return the changes of one snapshot; `delta` are its entries, if already read.

    Raises `CorruptTableError` if its manifests are gone.
    """
    entries = delta_of(context, snapshot, DELTA_COLUMNS) if delta is None else delta
    partitions = _rows_by_partition(entries.df)
    match snapshot.commit_kind:
        case CommitKind.APPEND | CommitKind.OVERWRITE if MERGE_PROPERTY in snapshot.properties:
            replaced = merge_facts(snapshot).replaced
            added = {row: Change.APPENDED for row in partitions if row not in replaced}
            return SnapshotMarks({**added, **dict.fromkeys(replaced, Change.OVERWRITTEN)})
        case CommitKind.APPEND:
            return SnapshotMarks(
                {
                    row: Change.BOTH if deleted else Change.APPENDED
                    for row, (_, deleted, _) in partitions.items()
                }
            )
        case CommitKind.COMPACT:
            other = snapshot.delta_record_count not in (0, None)
            return SnapshotMarks(
                {row: Change.OVERWRITTEN for row, (_, _, rows) in partitions.items() if other or rows != 0}
            )
        case CommitKind.OVERWRITE if REWRITE_PROPERTY in snapshot.properties:
            return SnapshotMarks(
                {row: Change.OVERWRITTEN for row, (_, _, rows) in partitions.items() if rows != 0}
            )
        case _:
            return SnapshotMarks(
                dict.fromkeys(partitions, Change.OVERWRITTEN), _wide(snapshot, bool(partitions))
            )


def _rows_by_partition(delta: pl.DataFrame) -> dict[bytes, tuple[bool, bool, int]]:
    """Return, by partition row, whether files were added, whether some were deleted, and the change in rows."""
    is_add = pl.col("kind") == int(FileKind.ADD)
    rows = pl.when(is_add).then(pl.col("row_count")).otherwise(-pl.col("row_count"))
    grouped = delta.group_by("partition", maintain_order=True).agg(
        added=is_add.any(), deleted=(~is_add).any(), rows=rows.sum()
    )
    return {row: (added, deleted, grown) for row, added, deleted, grown in grouped.iter_rows()}


def _wide(snapshot: Snapshot, has_entries: bool) -> tuple[WideOverwrite, ...]:
    """Return the partitions that an overwrite replaced, even without files."""
    if snapshot.commit_kind != CommitKind.OVERWRITE or rolled_back_to(snapshot) is not None:
        return ()
    spec = snapshot.properties.get(OVERWRITE_PROPERTY)
    if spec is None:
        return () if has_entries else (WideOverwrite(snapshot.id, snapshot.schema_id, None),)
    try:
        if "dynamic" in json.loads(spec):
            return ()
    except (ValueError, TypeError):
        spec = None
    return (WideOverwrite(snapshot.id, snapshot.schema_id, spec),)


def joined(spans: Iterable[Span]) -> Span | None:
    """Combine consecutive spans; None if there are none."""
    result: Span | None = None
    for span in spans:
        result = span if result is None else _and_then(result, span)
    return result


def _and_then(earlier: Span, later: Span) -> Span:
    marks = dict(earlier.marks)
    for row, made in later.marks.items():
        marks[row] = marks[row] | made if row in marks else made
    lowest = min((target for _, target in later.rollbacks), default=later.last)
    kept = tuple(made for made in earlier.merges if made.id <= lowest)
    return Span(
        earlier.first,
        later.last,
        earlier.before,
        later.end,
        marks,
        earlier.wide + later.wide,
        kept + later.merges,
        earlier.rollbacks + tuple(r for r in later.rollbacks if r[1] < earlier.first),
    )
