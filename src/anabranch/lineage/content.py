"""The content of a table at a commit, and the commits that a read took in, as ranges of commits.

Content is a chain: a commit's own rows, and the content of its base. Most commits build on the one before, so a
chain is few ranges however long it is. It continues elsewhere at a rollback, at a fork, and where all
content was replaced by a branch's; it ends at a whole overwrite.

A read took in

* ``state``: what the source contained at that moment;
* ``changes``: what each commit of a range added, one after the other: also what was removed again within the range,
  and at a rollback the content that it brought back, all of it if files were rewritten in between. What a stream passed over with ``scan.on-overwrite=skip`` is not
  told from what it delivered;
* ``full``: a state, and the changes after it;
* ``merge``: what a branch contained and main lacked. Rows that the branch had removed are not in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.lineage.commit import CommitRef, Line
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import Break, CommitStore, Read


class Segment(NamedTuple):
    """Own commits of a branch, from the first to the last."""

    branch: str
    first: int
    last: int


Segments = tuple[Segment, ...]


class Contents:
    """The chains of all branches of a store. Caches its look-ups: make one for each question."""

    def __init__(self, store: CommitStore) -> None:
        self._store = store
        self._lines: dict[str, Line | None] = {}
        self._tables: dict[str, Sequence[Line]] = {}
        self._histories: dict[str, _History] = {}
        self._tails: dict[tuple[str, int], Segments] = {}
        self._changes: dict[tuple[str, int, int], Segments] = {}

    def line(self, branch: str) -> Line | None:
        """A branch; see `CommitStore.line`."""
        if branch not in self._lines:
            self._lines[branch] = self._store.line(branch)
        return self._lines[branch]

    def own(self, ref: CommitRef) -> CommitRef:
        """Return the commit behind an id of a branch, by the branch it was made on: up to its fork, another one."""
        while (fork := self._history(ref.branch_uuid).fork) is not None and ref.snapshot <= fork.snapshot:
            ref = CommitRef(fork.branch_uuid, ref.snapshot)
        return ref

    def history(self, branch: str, first: int, last: int) -> Segments:
        """Return the commits under a range of a branch's ids, newest first, whether it still contains them or not."""
        found: list[Segment] = []
        while True:
            fork = self._history(branch).fork
            lowest = 1 if fork is None else fork.snapshot + 1
            if last >= lowest and last >= first:
                found.append(Segment(branch, max(first, lowest), last))
            if fork is None or first > fork.snapshot:
                return tuple(found)
            branch, last = fork.branch_uuid, min(last, fork.snapshot)

    def content(self, ref: CommitRef) -> Segments:
        """Return the commits that make up the table's content at a commit, newest first; empty at 0."""
        own = self.own(ref)
        if own.snapshot <= 0:
            return ()
        history = self._history(own.branch_uuid)
        at = history.break_at(own.snapshot)
        head = Segment(own.branch_uuid, history.begin_of(at), own.snapshot)
        return (head, *self._tail(own.branch_uuid, at))

    def taken(self, read: Read) -> Segments:
        """Return the commits that a read took in."""
        if read.kind == "changes":
            return self._added(read.source, read.after, read.through)
        until = CommitRef(read.source, read.through)
        if read.kind == "state":
            return self.content(until)
        if read.kind == "merge":
            return without(self.content(until), self.content(CommitRef(read.source, read.after)))
        state = self.content(CommitRef(read.source, read.whole))
        return union((*state, *self._added(read.source, read.whole, read.through)))

    def restores(self, branch: str) -> bool:
        """Whether any commit of the branch restored the content of another one."""
        return bool(self._history(branch).restores)

    def reach(self, branch: str) -> frozenset[str]:
        """Return the branches whose commits a read of this branch may take in."""
        known, todo = set[str](), [branch]
        while todo:
            found = todo.pop()
            if found in known:
                continue
            known.add(found)
            history = self._history(found)
            todo += [] if history.fork is None else [history.fork.branch_uuid]
            todo += [base.branch_uuid for one in history.restores if (base := one.base) is not None]
        return frozenset(known)

    def images(self, branch: str, first: int, last: int) -> dict[str, Ids]:
        """Return the ids, by branch, that a read must reach to take in some of a branch's own commits.

        These are the commits themselves, the same ids on branches forked after them, and the commits that
        restored a content they belong to.
        """
        line = self.line(branch)
        lines = [] if line is None else self._of_table(line.table_uuid)
        found: dict[str, Ids] = {}
        self._have(lines, branch, first, last, found)
        for other in lines:
            for restored in self._history(other.branch_uuid).restores:
                content = () if restored.base is None else self.content(restored.base)
                if any(s.branch == branch and s.first <= last and s.last >= first for s in content):
                    self._have(lines, other.branch_uuid, restored.snapshot, restored.snapshot, found)
        return found

    def _of_table(self, table_uuid: str) -> Sequence[Line]:
        if table_uuid not in self._tables:
            self._tables[table_uuid] = self._store.lines(table_uuid)
        return self._tables[table_uuid]

    def _have(self, lines: Sequence[Line], branch: str, first: int, last: int, found: dict[str, Ids]) -> None:
        """Add the ids under which other branches know a branch's own commits."""
        found.setdefault(branch, Ids()).add(first, last)
        for line in lines:
            if line.branch_uuid == branch:
                continue
            for segment in self.history(line.branch_uuid, first, last):
                if segment.branch == branch:
                    found.setdefault(line.branch_uuid, Ids()).add(segment.first, segment.last)

    def _added(self, branch: str, after: int, through: int) -> Segments:
        """Return the commits added by each commit of a range."""
        history = self._history(branch)
        if after >= history.begin - 1 and not (history.restores and history.is_restored(after + 1, through)):
            return (Segment(branch, after + 1, through),) if through > after else ()
        key = (branch, after, through)
        known = self._changes.get(key)
        if known is None:
            pieces = self.history(branch, after + 1, through)
            known = self._changes[key] = union((*pieces, *self._brought_back(pieces)))
        return known

    def _brought_back(self, pieces: Iterable[Segment]) -> Iterator[Segment]:
        for piece in pieces:
            for found in self._history(piece.branch).restores:
                if piece.first <= found.snapshot <= piece.last and found.base is not None:
                    yield from self._restored(found.base, CommitRef(piece.branch, found.snapshot - 1))

    def _restored(self, base: CommitRef, before: CommitRef) -> Segments:
        """Return the commits that a restoring commit added in place of the content before it.

        Additions are counted in files: if some were rewritten in between, rows that never left may come again.
        """
        back, had = self.content(base), self.content(before)
        missing = without(back, had)
        is_rewritten = any(map(self._has_rewritten, (*missing, *without(had, back))))
        return back if is_rewritten else missing

    def _has_rewritten(self, segment: Segment) -> bool:
        restored = self._history(segment.branch).restored
        return any(number not in restored for number in self._store.rowless(*segment))

    def _tail(self, branch: str, at: int) -> Segments:
        """Return the segments that follow the range beginning at a break."""
        known = self._tails.get((branch, at))
        if known is not None:
            return known
        found: list[Segment] = []
        seen = {(branch, at)}
        base = self._history(branch).base_of(at)
        while base is not None and base.snapshot > 0:
            own = self.own(base)
            history = self._history(own.branch_uuid)
            place = history.break_at(own.snapshot)
            if own.snapshot <= 0 or (own.branch_uuid, place) in seen:
                break
            seen.add((own.branch_uuid, place))
            found.append(Segment(own.branch_uuid, history.begin_of(place), own.snapshot))
            base = history.base_of(place)
        self._tails[branch, at] = tuple(found)
        return tuple(found)

    def _history(self, branch: str) -> _History:
        known = self._histories.get(branch)
        if known is None:
            line = self.line(branch)
            breaks = self._store.breaks(branch)
            known = self._histories[branch] = _History(
                None if line is None else line.fork,
                breaks,
                [one.snapshot for one in breaks],
                [one for one in breaks if one.restores],
                [one.snapshot for one in breaks if one.restores],
            )
        return known


@dataclass(frozen=True, slots=True)
class _History:
    """The points where the chain of a branch's own commits breaks."""

    fork: CommitRef | None
    breaks: Sequence[Break]
    ids: Sequence[int]
    restores: Sequence[Break]
    restored: Sequence[int]
    """Ids of the restoring commits."""

    @property
    def begin(self) -> int:
        """Id of the first of its own commits."""
        return 1 if self.fork is None else self.fork.snapshot + 1

    def break_at(self, snapshot: int) -> int:
        """Return the index of the last break at or before an id; -1 if there is none."""
        return bisect_right(self.ids, snapshot) - 1

    def begin_of(self, at: int) -> int:
        """Return the first commit of the range that a break begins."""
        return self.begin if at < 0 else self.ids[at]

    def base_of(self, at: int) -> CommitRef | None:
        """Return the commit that the range beginning at a break builds on."""
        return self.fork if at < 0 else self.breaks[at].base

    def is_restored(self, first: int, last: int) -> bool:
        """Whether a commit in the range restores content from elsewhere."""
        return bisect_right(self.restored, last) > bisect_left(self.restored, first)


def union(segments: Iterable[Segment]) -> Segments:
    """Return the same commits, each once."""
    return tuple(Segment(branch, *found) for branch, ids in _by_branch(segments).items() for found in ids)


def without(segments: Iterable[Segment], others: Iterable[Segment]) -> Segments:
    """Return the commits that are only in the first."""
    taken = _by_branch(others)
    return tuple(
        Segment(branch, *found)
        for branch, ids in _by_branch(segments).items()
        for found in ids.without(taken.get(branch, Ids()))
    )


def _by_branch(segments: Iterable[Segment]) -> dict[str, Ids]:
    found: dict[str, Ids] = {}
    for segment in segments:
        found.setdefault(segment.branch, Ids()).add(segment.first, segment.last)
    return found
