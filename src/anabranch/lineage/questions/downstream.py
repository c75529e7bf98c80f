"""Downstream lineage: the commits that took in what is asked about, those that took in these, and so on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from anabranch.lineage.commit import CommitRef, Line
from anabranch.lineage.content import Contents, Segment
from anabranch.lineage.questions.asked import AskedCommits
from anabranch.lineage.questions.order import Network
from anabranch.lineage.questions.walk import BEYOND, Walk, asked_for, check_depth
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore, Read
from anabranch.lineage.trace import Trace, Unknown


def downstream(
    store: CommitStore, asked: AskedCommits, *, depth: int | None = None, verb: str = "downstream"
) -> Trace:
    """Return everything derived from commits, over any number of steps.

    Args:
        depth: at most so many steps, 1 or more; all if None.
        verb: name of the question in the answer.
    """
    check_depth(depth)
    walk = _Downstream(store)
    begun = walk.begin(asked)
    if depth is None:
        walk.everything(begun)
    else:
        walk.steps(depth)
    unknown = tuple(may_belong(store, walk.contents, asked.segments, list(walk.commits.items())))
    problems = [*walk.doubts(asked), *map(str, unknown)]
    return replace(walk.trace(f"{verb} of {asked.text}", begun, problems), unknown=unknown)


def impact(store: CommitStore, asked: AskedCommits, *, depth: int | None = None) -> Trace:
    """Return what bad commits have spoilt: the exact snapshots of which tables, and by which jobs. See `downstream`."""
    return downstream(store, asked, depth=depth, verb="impact")


class _Downstream(Walk):
    def everything(self, begun: list[str]) -> None:
        """Follow all flows to their end: branch by branch, each when everything that flows into it is known."""
        network = Network(self.all_flows, self.contents)
        for group in network.downstream(begun):
            if network.has_cycle(group):
                self._around(group)
            else:
                self._through(group[0], self.commits.get(group[0], Ids()))

    def _through(self, branch: str, ids: Ids) -> None:
        """Go from own commits of a branch, which is on no cycle, to those that took them in."""
        found: dict[str, list[int]] = {}
        for read in self._readers(branch, ids):
            self.flow(branch, read)
            found.setdefault(read.sink, []).append(read.snapshot)
        for sink, snapshots in found.items():
            self.commits[sink] = Ids([*self.commits.get(sink, ()), *((i, i) for i in snapshots)])

    def steps(self, depth: int) -> None:
        """Go this many steps."""
        newest = {branch: Ids(ids) for branch, ids in self.commits.items()}
        for _ in range(depth):
            found: dict[str, Ids] = {}
            for branch, ids in newest.items():
                for read in self._readers(branch, ids):
                    if self._take(branch, read):
                        found.setdefault(read.sink, Ids()).add(read.snapshot, read.snapshot)
            newest = found

    def _around(self, group: list[str]) -> None:
        """Go through branches that flow into each other.

        A reader reads before it commits, so one pass in the order of the commits finds all; if clocks differ
        another is needed. It ends when a pass finds nothing new.
        """
        waiting = [
            (branch, read)
            for branch in group
            for read in self._readers(branch, self._possible(group, branch))
        ]
        single = len(group) == 1
        waiting.sort(key=lambda one: (0 if single else one[1].time_millis, one[1].snapshot))
        found = True
        while found:
            found, left = False, []
            for branch, read in waiting:
                if self._meets(branch, self.commits.get(branch), read):
                    found = self._take(branch, read) or found
                else:
                    left.append((branch, read))
            waiting = left

    def _possible(self, group: list[str], branch: str) -> Ids:
        """Return the commits of a branch on a cycle that may turn out to be downstream."""
        begun = self.commits.get(branch, Ids())
        if len(group) > 1:
            return Ids([(1, BEYOND)])
        return Ids([(begun.hull[0], BEYOND)]) if begun else begun

    def _readers(self, branch: str, ids: Ids) -> Iterator[Read]:
        """Return the reads that took in any of a branch's own commits; one that meets two ranges may come twice."""
        reached: dict[str, Ids] = {}
        for first, last in asked_for(ids):
            for other, images in self.contents.images(branch, first, last).items():
                reached.setdefault(other, Ids()).update(images)
        for other, images in reached.items():
            for first, last in asked_for(images):
                for read in self.store.readers(other, first, last):
                    if self._meets(branch, ids, read):
                        yield read

    def _meets(self, branch: str, ids: Ids | None, read: Read) -> bool:
        if not ids:
            return False
        for segment in self.contents.taken(read):
            if segment.branch == branch and ids.meets(segment.first, segment.last):
                return True
        return False

    def _take(self, branch: str, read: Read) -> bool:
        """Record that a commit took in some of a branch; return whether it was not yet known to be downstream."""
        self.flow(branch, read)
        known = self.commits.setdefault(read.sink, Ids())
        if read.snapshot in known:
            return False
        known.add(read.snapshot, read.snapshot)
        return True


# Commits of other tables that may belong to an answer, because the origin of their rows is unknown.
#
# A reader commits after the rows it read. So only commits count that are not older than what is
# asked about, allowing for clock differences between two machines.

_CLOCKS_APART_MILLIS: Final = 60_000
_NOT_SAID: Final = "not said where the rows come from"


def may_belong(
    store: CommitStore, contents: Contents, asked: Collection[Segment], found: Sequence[tuple[str, Ids]]
) -> Iterator[Unknown]:
    """Return commits of every table's main whose rows may come from what is asked about, without a record of it.

    Args:
        contents: of the store.
        asked: what is asked about; other commits of these branches are not listed.
        found: the commits, by branch, that are in the answer already.
    """
    since = min((time for one in asked if (time := _time_from(store, one)) is not None), default=None)
    if since is None:
        return
    known = dict(found)
    own = {one.branch for one in asked}
    tables = {line.table_uuid for branch in own if (line := store.line(branch)) is not None}
    for line in sorted(store.lines(), key=lambda line: (line.title, line.branch_uuid)):
        if line.is_main and line.table_uuid not in tables:
            yield from _of_table(store, contents, line, since - _CLOCKS_APART_MILLIS, known)


def _of_table(
    store: CommitStore, contents: Contents, line: Line, since: int, known: dict[str, Ids]
) -> Iterator[Unknown]:
    reasons: dict[str, Ids] = {}
    newest = store.newest(line.branch_uuid) or (0 if line.fork is None else line.fork.snapshot)
    for branch, first, last in contents.history(line.branch_uuid, 1, newest):
        begin = _first_since(store, branch, first, last, since)
        taken = known.get(branch, Ids())
        for number in store.unsaid(branch, begin, last):
            reasons.setdefault(_NOT_SAID, Ids()).add(number, number)
        rowless = Ids.of(store.rowless(branch, begin, last))
        for number, problem in store.problems(branch, begin, last):
            if number not in taken and number not in rowless:
                reasons.setdefault(problem, Ids()).add(number, number)
    for reason, ids in reasons.items():
        yield Unknown(line.title, tuple(ids), reason)


def _time_from(store: CommitStore, segment: Segment) -> int | None:
    """Return the time of the first known commit of a range."""
    first = next(store.commits(segment.branch, segment.first), None)
    return None if first is None or first.snapshot > segment.last else first.time_millis


def _first_since(store: CommitStore, branch: str, first: int, last: int, since: int) -> int:
    """Return the first id of a range from which on commits are not older than a time; unknown commits count."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        commit = store.commit(CommitRef(branch, middle))
        if commit is not None and commit.time_millis < since:
            low = middle + 1
        else:
            high = middle
    return low
