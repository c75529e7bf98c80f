"""Lost commits: manifest lists without a snapshot, and the order in which they were committed.

A commit leaves two lists: its base and its delta. An attempt that lost the race for its number writes the
first again, and keeps the second if it can, so the two need not be of one attempt. Leftovers of killed attempts look
the same, and the table may have returned to an earlier state. So commits are chained into a complete path: each
base equals the state that the one before left, file by file, it was stored later, no delta comes twice (what it added may have been
compacted since, so it would fit again), and the length matches the gap.

Lists do not tell their branch. What was stored before a branch was begun is none of it, though: a deleted branch of its
name may have begun with the same state, and a late writer of that one may have left the hint.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import polars as pl

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.fork import FORK_FILE
from anabranch.format.records.layout import LIST_PREFIX, MANIFEST_FOLDER
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import block_path, reserved_blocks
from anabranch.kernel.log.removals import removed_lists
from anabranch.kernel.repair.found import RefState


@dataclass(frozen=True, slots=True)
class LostList:
    """A manifest list that no ref names."""

    name: str
    stem: str
    """Common name prefix of the lists of one commit attempt."""
    place: int
    """Its position among them: the delta comes after the base."""
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class LostCommit:
    """A possible commit: the state it was based on, and the one it left."""

    before: str
    after: str
    stored: int
    """When its attempt began to be stored, by the store's clock: each commit began after the one before."""
    base: LostList | None
    """Its base list; None if a snapshot names it."""
    delta: LostList | None = None
    snapshot: Snapshot | None = None
    """The snapshot itself, if a ref holds it."""
    source: str = ""
    """Name of that ref."""


@dataclass(frozen=True, slots=True)
class _Node:
    """The end of a path."""

    commit: LostCommit
    previous: _Node | None

    def has(self, commit: LostCommit) -> bool:
        """Whether a commit is on the path, or its delta; nodes stored before either need not be searched."""
        delta = commit.delta
        since = commit.stored if delta is None else min(commit.stored, delta.modified)
        node: _Node | None = self
        while node is not None and node.commit.stored >= since:
            if node.commit is commit or (delta is not None and node.commit.delta == delta):
                return True
            node = node.previous
        return False


def path_from(
    context: TableContext,
    head: Snapshot | None,
    until: int,
    commits: Sequence[LostCommit],
    held: Mapping[int, LostCommit],
) -> list[LostCommit]:
    """Return the commits that follow a snapshot, up to a number or as far as they lead; the latest stored path wins.

    Args:
        context: the branch.
        head: the snapshot they follow; None for the first of a table.
        until: the number of the last.
        commits: those known from lists, in the order in which they were stored.
        held: snapshots held by refs, by number: where one fits, it is preferred.
    """
    state = state_of_files(context, () if head is None else context.manifests.of_snapshot(head))
    ends = [_Node(LostCommit(state, state, 0, None), None)]
    number = 1 if head is None else head.id + 1
    while number <= until:
        following = list(_following(ends, [held[number]] if number in held else [])) or list(
            _following(ends, commits)
        )
        if not following:
            break
        ends, number = following, number + 1
    path = []
    node: _Node | None = max(ends, key=lambda end: end.commit.stored)
    while node is not None and node.previous is not None:
        path.append(node.commit)
        node = node.previous
    return path[::-1]


def _following(ends: Sequence[_Node], commits: Sequence[LostCommit]) -> Iterator[_Node]:
    """Yield paths extended by one commit. A commit that may extend several extends the latest stored one."""
    by_state: dict[str, list[_Node]] = {}
    for end in sorted(ends, key=lambda end: -end.commit.stored):
        by_state.setdefault(end.commit.after, []).append(end)
    for commit in commits:
        for end in by_state.get(commit.before, ()):
            if end.commit.stored <= commit.stored and not end.has(commit):
                yield _Node(commit, end)
                break


def held_commit(context: TableContext, snapshot: Snapshot, source: str) -> LostCommit | None:
    """Build a commit from a snapshot that a ref holds; None if its base cannot be read."""
    try:
        before = state_of_files(context, context.manifests.read_list(snapshot.base_manifest_list))
        after = state_of_files(context, context.manifests.of_snapshot(snapshot))
        stored = context.storage.info(context.layout.manifest_path(snapshot.base_manifest_list))
    except AnabranchError:
        return None
    return LostCommit(before, after, stored.modified_millis, None, snapshot=snapshot, source=source)


def lost_commits(context: TableContext, states: Sequence[RefState]) -> list[LostCommit]:
    """Return all possible commits without a snapshot, in the order in which they were stored."""
    lists = _lists(context, states)
    stems = Counter(one.stem for one in lists)
    return [
        LostCommit(_state(before), _state(after), base.modified, base, delta)
        for base in lists
        if (before := _live_of(context, base)) is not None
        for delta, after in _changes_of(context, base, before, lists, stems)
    ]


def _lists(context: TableContext, states: Sequence[RefState]) -> list[LostList]:
    named = {name for s in states for name in (s.snapshot.base_manifest_list, s.snapshot.delta_manifest_list)}
    named |= removed_lists(context.storage)
    begun, until = _begun(context), context.snapshots.hint_time()
    found = []
    for info in context.storage.list(MANIFEST_FOLDER):
        name = info.path.rpartition("/")[2]
        stem, _, place = name.rpartition("-")
        if not name.startswith(LIST_PREFIX) or name in named or not (place.isascii() and place.isdigit()):
            continue
        # What was stored after the hint is of a later attempt, which did not come to its end.
        if begun <= info.modified_millis <= until:
            found.append(LostList(name, stem, int(place), info.size, info.modified_millis))
    return sorted(found, key=lambda one: (one.modified, one.name))


def _changes_of(
    context: TableContext,
    base: LostList,
    before: pl.DataFrame,
    lists: Sequence[LostList],
    stems: Mapping[str, int],
) -> Iterator[tuple[LostList, pl.DataFrame]]:
    """Yield possible delta lists for the state `before`, with the live files after each.

    They are of the same attempt, or else of an earlier one.
    """
    later = [one for one in lists if one.place > base.place]
    own = sorted((one for one in later if one.stem == base.stem), key=lambda one: one.place)
    for one in own:
        after = _after(context, before, one)
        if after is not None:
            yield one, after
            return
    if stems[base.stem] > 1:
        return
    for one in later:
        if one.modified <= base.modified and stems[one.stem] == 1:
            after = _after(context, before, one)
            if after is not None:
                yield one, after


def _after(context: TableContext, before: pl.DataFrame, delta: LostList) -> pl.DataFrame | None:
    """Apply a delta to live files; None if it removes a missing file, or adds an existing one."""
    try:
        metas = context.manifests.read_list(delta.name)
        entries = context.manifests.entries(metas, only=("kind", *IDENTITY)).df
    except AnabranchError:
        return None
    adds, deletes = (entries.filter(pl.col("kind") == kind).select(IDENTITY) for kind in (0, 1))
    left = before.join(deletes, on=IDENTITY, how="anti")
    if before.height - left.height != deletes.height or adds.join(left, on=IDENTITY, how="semi").height:
        return None
    return pl.concat([left, adds])


def _live_of(context: TableContext, base: LostList) -> pl.DataFrame | None:
    try:
        return _live(context, context.manifests.read_list(base.name))
    except AnabranchError:
        return None


def _live(context: TableContext, metas: Sequence[ManifestFileMeta]) -> pl.DataFrame:
    return context.manifests.entries(list(metas), only=("kind", *IDENTITY)).live().df.select(IDENTITY)


def state_of_files(context: TableContext, metas: Sequence[ManifestFileMeta]) -> str:
    """Return a fingerprint of the files that are live after these manifests. Raises `CorruptTableError`."""
    return _state(_live(context, metas))


def _state(live: pl.DataFrame) -> str:
    partition = pl.col("partition").bin.encode("hex")
    lines = live.select(
        line=pl.concat_str(partition, "bucket", "level", "file_name", separator=" ")
    ).to_series()
    return hashlib.sha256("\n".join(lines.sort().to_list()).encode()).hexdigest()


def _begun(context: TableContext) -> int:
    """Return when the branch was begun, by the store's clock; 0 for the table's own folder, and where nothing tells.

    Its block of field ids is reserved right before its record is put, and names it. A repair may have put one of them again.
    """
    if context.branch is None or context.fork is None:
        return 0
    layout = context.layout
    paths = [layout.branch_file_path(FORK_FILE)]
    paths += (block_path(block) for block in reserved_blocks(context, context.fork.branch_uuid))
    times = []
    for path in paths:
        with suppress(NotFoundError):
            times.append(context.storage.info(path).modified_millis)
    return min(times, default=0)
