"""Upstream lineage: the commits that went into what is asked about, those that went into these, and so on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.lineage.content import Segment
from anabranch.lineage.questions.asked import AskedCommits
from anabranch.lineage.questions.order import Network
from anabranch.lineage.questions.walk import BEYOND, Walk, asked_for, check_depth
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore, Read
from anabranch.lineage.trace import Range, Trace


def upstream(store: CommitStore, asked: AskedCommits, *, depth: int | None = None) -> Trace:
    """Return everything that commits were derived from, over any number of steps.

    Args:
        depth: at most so many steps, 1 or more; all if None.
    """
    check_depth(depth)
    walk = _Upstream(store)
    begun = walk.begin(asked)
    if depth is None:
        walk.everything(begun)
    else:
        walk.steps(depth)
    problems = [*walk.doubts(asked), *walk.unknown()]
    return walk.trace(f"upstream of {asked.text}", begun, problems, against=True)


class _Upstream(Walk):
    def everything(self, begun: list[str]) -> None:
        """Follow all flows back to their start: branch by branch, each when all that it flowed into is known."""
        network = Network(self.all_flows, self.contents)
        for group in network.upstream(begun):
            if network.has_cycle(group):
                self._around(group)
            else:
                self._through(group[0], self._known(group[0]))
            for branch in group:
                self.commits[branch] = self._known(branch)

    def steps(self, depth: int) -> None:
        """Go this many steps."""
        newest = dict(self.commits)
        for _ in range(depth):
            before = dict(self.commits)
            for branch, ids in newest.items():
                self._through(branch, ids)
            newest = {}
            for branch in self.commits:
                found = self._known(branch)
                self.commits[branch] = found
                newest[branch] = found.without(before.get(branch, Ids()))

    def unknown(self) -> Iterable[str]:
        """Yield what is not known about the commits that were found."""
        for branch in sorted(self.commits, key=self.title):
            ids = self.commits[branch]
            silent: list[int] = []
            said: dict[str, list[int]] = {}
            for first, last in asked_for(ids):
                silent += [number for number in self.store.unsaid(branch, first, last) if number in ids]
                for number, problem in self.store.problems(branch, first, last):
                    if number in ids:
                        said.setdefault(problem, []).append(number)
            if silent:
                yield f"{self.named(branch, Ids.of(silent))}: not said where the rows come from"
            for problem, numbers in said.items():
                yield f"{self.named(branch, Ids.of(numbers))}: {problem}"

    def _through(self, branch: str, ids: Ids) -> None:
        """Go from own commits of a branch to what they took in."""
        found: dict[str, list[Range]] = {}
        for first, last in asked_for(ids):
            for read in self.store.reads(branch, first, last):
                if read.snapshot in ids:
                    for segment in self._taken(read):
                        found.setdefault(segment.branch, []).append((segment.first, segment.last))
        for source, ranges in found.items():
            self.commits[source] = Ids([*self.commits.get(source, ()), *ranges])
        self._others(branch, ids)

    def _around(self, group: list[str]) -> None:
        """Go through branches that flow into each other; see `downstream`. Here the newest commits come first."""
        waiting: list[Read] = []
        for branch in group:
            ids = self.commits.get(branch, Ids())
            last = BEYOND if len(group) > 1 else ids.hull[1] if ids else 0
            waiting += self.store.reads(branch, 1, last)
        single = len(group) == 1
        waiting.sort(key=lambda read: (0 if single else read.time_millis, read.snapshot), reverse=True)
        found = True
        while found:
            found, left = False, []
            for read in waiting:
                if read.snapshot in self.commits.get(read.sink, _NONE):
                    for segment in self._taken(read):
                        self.commits.setdefault(segment.branch, Ids()).add(segment.first, segment.last)
                    found = True
                else:
                    left.append(read)
            waiting = left
        for branch in group:
            self._others(branch, self._known(branch))

    def _others(self, branch: str, ids: Ids) -> None:
        for first, last in asked_for(ids):
            for read in self.store.other_reads(branch, first, last):
                if read.snapshot in ids:
                    self.other_flow(read)

    def _taken(self, read: Read) -> Iterator[Segment]:
        """Yield the commits that a commit took in, recording the flow; rowless ones are dropped later in the walk."""
        for segment in self.contents.taken(read):
            if not self.silent(segment.branch).covers(segment.first, segment.last):
                self.flow(segment.branch, read)
                yield segment

    def _known(self, branch: str) -> Ids:
        """Return the commits of a branch that were found so far and brought rows."""
        return self.commits.get(branch, _NONE).without(self.silent(branch))


_NONE = Ids()
