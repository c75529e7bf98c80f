"""Births of a branch's rows: when they were first appended, tracked across rewrites of their files.

A merge adds the files whose rows are younger than what main already has. File names do not tell: compaction replaces
files by new ones. So the history of the branch is followed, and the output of a compaction inherits
from what it read in the same bucket. A file that mixes rows from both sides of a point has no age there; the fence
(`anabranch.kernel.provenance.fence`) sees to it that our compactions make none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of, fork_snapshot
from anabranch.kernel.log.merge_pins import MERGE_PIN_PREFIX
from anabranch.kernel.log.tag_log import find_tags, tag_names
from anabranch.kernel.provenance.past import Past, past_since, rolled_back_to

MIXED: Final = -1
"""Marks a file with rows from both sides of a point, in place of an age."""
_COLUMNS: Final = ("kind", "partition", "bucket", "level", "file_name")

Place = tuple[bytes, int]
"""Partition row and bucket."""


class Numbered(Protocol):
    """A snapshot, or a reference to one."""

    @property
    def id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Birth:
    """Range of branch snapshots in which the rows of a file were first appended, by id, both included."""

    first: int
    last: int

    def age(self, points: Sequence[Numbered]) -> int:
        """Return the number of points that all rows are younger than, or `MIXED`."""
        youngest = sum(point.id < self.first for point in points)
        return youngest if all(not self.first <= point.id < self.last for point in points) else MIXED

    def is_after(self, point: int) -> bool:
        """Whether all rows are younger than the snapshot of that id."""
        return self.first > point

    def is_until(self, point: int) -> bool:
        """Whether the snapshot of that id already had all rows."""
        return self.last <= point

    def __or__(self, other: Birth) -> Birth:
        return Birth(min(self.first, other.first), max(self.last, other.last))


Recorded = Callable[[], Mapping[str, Birth]]
"""Reads the births of files, by name, that were recorded when snapshots expired."""


@dataclass(frozen=True, slots=True)
class Births:
    """The births of files of one branch."""

    otherwise: Birth
    """Birth of all files not in `known`: the fork snapshot."""
    known: Mapping[str, Birth] = field(default_factory=dict)
    """By file name, including files that are no longer live."""

    def of(self, file_name: str) -> Birth:
        return self.known.get(file_name, self.otherwise)


def births(
    branch: TableContext,
    head: Snapshot,
    carried: Recorded | None = None,
    *,
    past: Past | None = None,
    noted: Mapping[str, Birth] | None = None,
    followed: int = 0,
) -> Births:
    """Compute when the rows of a branch's files were first appended, up to its snapshot `head`.

    Args:
        branch: a branch made from a tag of main.
        head: the newest snapshot to take into account.
        carried: called, if older snapshots have expired, for the births that were recorded before. Files without
            a record whose rows are not from the fork snapshot may have any age up to then.
        past: history of `head` since the fork, if already known.
        noted: births as of a snapshot of that history.
        followed: number of snapshots of that history, from its beginning, which they are the result of.

    Raises `InvalidInputError` for a branch that another engine made.
    """
    fork = fork_of(branch)
    begun = Birth(fork.snapshot.id, fork.snapshot.id)
    past = past or past_since(branch, head, fork.snapshot)
    known: dict[str, Birth] = {}
    older = begun
    snapshots = past.snapshots
    if past.reaches_base and noted is not None and followed:
        known, snapshots = dict(noted), snapshots[followed:]
    if not past.reaches_base:
        oldest = snapshots[0] if snapshots else head
        older = Birth(begun.first, oldest.id)
        known = _of_oldest(branch, oldest, begun, {} if carried is None else carried())
        snapshots = snapshots[1:]
    deltas = branch.manifests.deltas(snapshots, only=_COLUMNS)
    for snapshot, delta in zip(snapshots, deltas, strict=True):
        _follow(known, snapshot, delta, older)
    return Births(begun, known)


def ages(
    branch: TableContext,
    head: Snapshot,
    points: Sequence[Numbered],
    carried: Recorded | None = None,
) -> dict[str, int]:
    """Return for every live file of `head` the number of points that its rows are younger than, or `MIXED`.

    Args:
        branch: a branch made from a tag of main.
        head: a snapshot of it.
        points: snapshots of the branch, oldest first: the fork, then the merged heads.
        carried: see `births`.
    """
    found = births(branch, head, carried)
    manifests = branch.manifests
    live = manifests.entries(manifests.of_snapshot(head), only=_COLUMNS).live().df
    return {name: found.of(name).age(points) for name in live["file_name"]}


def delta_of(context: TableContext, snapshot: Snapshot, only: tuple[str, ...] | None = None) -> EntryFrame:
    """Return the delta entries of a snapshot, in order. Raises `CorruptTableError` if it expired meanwhile."""
    manifests = context.manifests
    return manifests.entries(manifests.read_list(snapshot.delta_manifest_list), only=only)


def _of_oldest(
    branch: TableContext, oldest: Snapshot, begun: Birth, carried: Mapping[str, Birth]
) -> dict[str, Birth]:
    """Return births of the live files of the oldest retained snapshot, and of those that may come back."""
    begun_with = fork_snapshot(branch)
    old = set() if begun_with is None else live_names(branch, begun_with)
    unknown = live_names(branch, oldest) - old - carried.keys()
    bounds = _bounds(branch, oldest, begun, begun_with) if unknown else {}
    return {**carried, **{name: bounds[name] for name in unknown}, **dict.fromkeys(old, begun)}


def _bounds(
    branch: TableContext, oldest: Snapshot, begun: Birth, begun_with: Snapshot | None
) -> dict[str, Birth]:
    """Bound the births of files by the snapshots that are still pinned.

    If all files of a pinned snapshot are still live, none of its rows is in any other file of the bucket.
    """
    names = [name for name in tag_names(branch) if name.startswith(MERGE_PIN_PREFIX)]
    held = [tag.snapshot for tag in find_tags(branch, names) if begun.first < tag.snapshot.id <= oldest.id]
    held += [] if begun_with is None else [begun_with]
    moments = [(moment.id, _by_place(branch, moment)) for moment in sorted(held, key=lambda held: held.id)]
    found: dict[str, Birth] = {}
    for place, live in _by_place(branch, oldest).items():
        for name in live:
            first, last = begun.first, oldest.id
            for moment, files in moments:
                there = files.get(place, frozenset())
                if name in there:
                    last = min(last, moment)
                elif there <= live:
                    first = moment + 1
            found[name] = Birth(min(first, last), last)
    return found


def _by_place(branch: TableContext, snapshot: Snapshot) -> dict[Place, frozenset[str]]:
    """Return the live file names per bucket of each partition."""
    manifests = branch.manifests
    live = manifests.entries(manifests.of_snapshot(snapshot), only=_COLUMNS).live().df
    grouped = live.group_by("partition", "bucket").agg("file_name")
    return {(row, bucket): frozenset(names) for row, bucket, names in grouped.iter_rows()}


def live_names(branch: TableContext, snapshot: Snapshot) -> set[str]:
    """Return the names of the live files of a snapshot."""
    manifests = branch.manifests
    return set(manifests.entries(manifests.of_snapshot(snapshot), only=_COLUMNS).live().df["file_name"])


def live_partitions(branch: TableContext, snapshot: Snapshot) -> set[bytes]:
    """Return the rows of partitions with live files in a snapshot."""
    manifests = branch.manifests
    live = manifests.entries(manifests.of_snapshot(snapshot), only=_COLUMNS).live().df
    return set(live["partition"].unique())


def _follow(known: dict[str, Birth], snapshot: Snapshot, delta: EntryFrame, older: Birth) -> None:
    """Apply one more snapshot. Files that are added again keep their births.

    Args:
        known: births by file name, changed in place.
        older: birth of files older than all known ones.
    """
    now = Birth(snapshot.id, snapshot.id)
    is_compaction = snapshot.commit_kind == CommitKind.COMPACT
    inputs: dict[Place, Birth] = {}
    everything: Birth | None = None
    for partition, bucket, name in _rows(delta.deletes()):
        birth = known.setdefault(name, older)
        if is_compaction:
            place = partition, bucket
            inputs[place] = inputs[place] | birth if place in inputs else birth
            everything = birth if everything is None else everything | birth
    first = older if rolled_back_to(snapshot) is not None else now
    for partition, bucket, name in _rows(delta.adds()):
        known.setdefault(name, inputs.get((partition, bucket), everything or first))


def _rows(entries: EntryFrame) -> Iterator[tuple[bytes, int, str]]:
    return entries.df.select("partition", "bucket", "file_name").iter_rows()
