"""Commits by which branches took rows away that they had in common with the main they replaced.

Most corrections leave rows behind by parting before them. A branch that parts later can be corrected in place: by an
overwrite, of some partitions or of all there is, or by a rollback. Then the wrong rows are in the history of
the new main, but not in its content.

An overwrite of some partitions leaves content from before, and lineage does not know which. For what a correction took
out it therefore counts as a new beginning: all that was there before was taken out, and what was read after it is right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import polars as pl

from anabranch.cascade.writers import EMPTYING
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.main_pointer import Replaced
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_by_uuid, main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.provenance.past import rolled_back_to
from anabranch.lineage.commit import Commit
from anabranch.lineage.content import Contents, Segments
from anabranch.lineage.store import Break, CommitStore

_ENTRY_COLUMNS = ("kind", "partition", "bucket", "file_name")


@dataclass(frozen=True, slots=True)
class Taking:
    """A commit on a branch, before it became main, that took away rows that main had then."""

    branch: str
    """Identity of the branch that the commit was made on."""
    snapshot: int
    is_partial: bool
    """Whether content from before may be left."""
    is_by_hand: bool
    """Whether no job made it: then jobs that overwrite, such as those of output mode ``complete``, are not meant."""


def takings(main: TableContext, store: CommitStore) -> tuple[Taking, ...]:
    """Return such commits of all replacements of a table's main, in the order of the replacements."""
    main, found = main_of(main), list[Taking]()
    contents = Contents(store)
    for pointer in replacements(main):
        if pointer.replaced is not None:
            found += _of_replacement(main, store, contents, pointer.main.uuid, pointer.replaced)
    return tuple(dict.fromkeys(found))


def begun_anew(store: CommitStore, takings: Sequence[Taking]) -> CommitStore:
    """Return a store for which content begins anew at the commits that took away part of it."""
    found: dict[str, list[int]] = {}
    for one in takings:
        if one.is_partial:
            found.setdefault(one.branch, []).append(one.snapshot)
    return cast(CommitStore, _BegunAnew(store, found)) if found else store


@dataclass(frozen=True)
class _BegunAnew:
    store: CommitStore
    begins: Mapping[str, list[int]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        more = [Break(snapshot, None, False) for snapshot in self.begins.get(branch_uuid, ())]
        return sorted((*self.store.breaks(branch_uuid), *more), key=lambda one: one.snapshot)


def _of_replacement(
    main: TableContext, store: CommitStore, contents: Contents, branch: str, replaced: Replaced
) -> Iterator[Taking]:
    first, last = replaced.fork.id + 1, replaced.taken.id
    overwrites = sorted(
        _overwrites(store, contents.history(branch, first, last)), key=lambda commit: commit.snapshot
    )
    lost: Mapping[int, set[str]] | None = {}
    if any(_is_partial(commit) for commit in overwrites):
        lost = _lost(main_by_uuid(main, branch), first, last)
        before = _lost(main_by_uuid(main, replaced.old.uuid), first, replaced.head.id) or {}
        gone = {name for names in before.values() for name in names}
        lost = None if lost is None else {number: names - gone for number, names in lost.items()}
    for commit in overwrites:
        if not _is_partial(commit) or lost is None or lost.get(commit.snapshot):
            by_hand = commit.entry is None or commit.entry.is_of_no_job or _empties(commit)
            yield Taking(commit.branch_uuid, commit.snapshot, _is_partial(commit), by_hand)


def _overwrites(store: CommitStore, segments: Segments) -> Iterator[Commit]:
    for segment in segments:
        for commit in store.commits(segment.branch, segment.first):
            if commit.snapshot > segment.last:
                break
            if commit.kind == CommitKind.OVERWRITE:
                yield commit


def _is_partial(commit: Commit) -> bool:
    return commit.base is not None and not commit.restores


def _empties(commit: Commit) -> bool:
    return commit.entry is not None and commit.entry.engine.query == EMPTYING.query


def _lost(context: TableContext | None, first: int, last: int) -> dict[int, set[str]] | None:
    """Return the data files from before a range of snapshots whose rows its overwrites took away, by overwrite.

    A file made by compaction stands for those that it was made from. None if a snapshot is not there any more.
    """
    if context is None:
        return None
    snapshots = [context.snapshots.find(number) for number in range(first, last + 1)]
    there = [snapshot for snapshot in snapshots if snapshot is not None]
    if len(there) < len(snapshots):
        return None
    lost: dict[int, set[str]] = {}
    stands_for: dict[str, frozenset[str]] = {}
    deltas = context.manifests.deltas(there, only=_ENTRY_COLUMNS)
    for snapshot, entries in zip(there, deltas, strict=True):
        if rolled_back_to(snapshot) is not None:
            continue
        for removed, added in _by_bucket(entries.df):
            from_before = frozenset[str]().union(*(stands_for.get(name, {name}) for name in removed))
            if snapshot.commit_kind is CommitKind.OVERWRITE:
                lost.setdefault(snapshot.id, set()).update(from_before)
            stands_for.update(dict.fromkeys(added, from_before))
    return lost


def _by_bucket(entries: pl.DataFrame) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names of the files that a commit removed and added in each bucket."""
    for bucket in entries.partition_by("partition", "bucket", maintain_order=True):
        names, is_removed = bucket["file_name"], bucket["kind"] == FileKind.DELETE.value
        yield names.filter(is_removed).to_list(), names.filter(~is_removed).to_list()


def restored_by(snapshot: Snapshot) -> int | None:
    """Return the id of the snapshot whose content a rollback restored; None if it is no rollback."""
    target = rolled_back_to(snapshot)
    return None if target is None else target.id


def newest_beyond(takings: Sequence[Taking], position: int, end: int | None) -> int | None:
    """Return the id of the last of these commits after a position, up to a snapshot if one is given; None if there is none."""
    ids = sorted(one.snapshot for one in takings)
    at = len(ids) if end is None else bisect_right(ids, end)
    return ids[at - 1] if at and ids[at - 1] > position else None
