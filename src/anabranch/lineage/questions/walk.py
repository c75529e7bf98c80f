"""The base of walks along lineage: what they have found, and how an answer is made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal

from anabranch.errors import InvalidInputError
from anabranch.lazy import lazy
from anabranch.lineage.content import Contents
from anabranch.lineage.questions.asked import AskedCommits
from anabranch.lineage.questions.order import longest_ways, topological, without_ways_back
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore, OtherRead, Read, source_id
from anabranch.lineage.trace import Dataset, DatasetKind, Flow, Range, Trace

BEYOND = 2**62
"""An id that no snapshot has."""

_NAMED_AT_MOST = 5
_RANGES_AT_MOST = 16
"""With more ranges, the store is asked for everything between the first and the last."""


class Walk:
    """Commits and flows that a walk has reached."""

    def __init__(self, store: CommitStore) -> None:
        self.store = store
        self.contents = Contents(store)
        self.all_flows = store.flows()
        self.commits: dict[str, Ids] = {}
        """Own commits by branch."""
        self.others: dict[str, tuple[DatasetKind, str]] = {}
        """Sources other than tables: kind and name by identity."""
        self._flows: dict[tuple[str, str, str, bool], _Commits] = {}
        """By source, sink, job, and whether it is a merge."""
        self._silent: dict[str, Ids] = {}

    def begin(self, asked: AskedCommits) -> list[str]:
        """Begin with the commits that are asked about and brought rows. Return the branches they are on."""
        for segment in asked.segments:
            self.commits.setdefault(segment.branch, Ids()).add(segment.first, segment.last)
        for branch, ids in self.commits.items():
            self.commits[branch] = ids.without(self.silent(branch))
        begun = [branch for branch, ids in self.commits.items() if ids] or [asked.branch]
        self.commits.setdefault(asked.branch, Ids())
        return begun

    def silent(self, branch: str) -> Ids:
        """Return ids of a branch with no known rows: commits that brought none, gaps, and ids not used yet.

        For a table that was never seen this is empty: what others say of it is taken as it is.
        """
        found = self._silent.get(branch)
        if found is None:
            found = Ids()
            if self.contents.line(branch) is not None:
                newest = self.store.newest(branch)
                ids = self.store.rowless(branch, 1, newest)
                found = Ids([*((i, i) for i in ids), *self.store.gaps(branch), (newest + 1, BEYOND)])
            self._silent[branch] = found
        return found

    def flow(self, source: str, read: Read) -> None:
        """Record that a commit took in rows of a source."""
        key = (source, read.sink, read.job, read.kind == "merge")
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Commits()
        flow.add(read.snapshot, read.time_millis)

    def other_flow(self, read: OtherRead) -> None:
        """Record that a commit took in rows of a source other than a table."""
        source = source_id(read.kind, read.name)
        self.others[source] = (read.kind, read.name)
        flow = self._flows.setdefault((source, read.sink, read.job, False), _Commits())
        flow.add(read.snapshot, read.time_millis)

    def doubts(self, asked: AskedCommits) -> Iterator[str]:
        """Yield what is not known about the commits that are asked about."""
        if not any(self.commits.values()):
            yield f"{asked.text}: nothing there brought rows of its own"
        for segment in asked.segments:
            for first, last in self.store.gaps(segment.branch):
                gone = Ids([(max(first, segment.first), min(last, segment.last))])
                if gone:
                    yield f"{self.named(segment.branch, gone)} had expired before lineage saw them"

    def named(self, branch: str, ids: Ids) -> str:
        """Return a text for people that names commits of a branch."""
        ranges = list(ids)
        texts = [
            str(first) if first == last else f"{first}..{last}" for first, last in ranges[:_NAMED_AT_MOST]
        ]
        noun = "snapshot" if ids.count == 1 else "snapshots"
        more = f" and {len(ranges) - _NAMED_AT_MOST} more ranges" if len(ranges) > _NAMED_AT_MOST else ""
        return f"{self.title(branch)}, {noun} {', '.join(texts)}{more}"

    def title(self, branch: str) -> str:
        """Return the name of a branch; of one that was never seen, the name by which it was read."""
        line = self.contents.line(branch)
        return self._names.get(branch, branch) if line is None else line.title

    def trace(
        self, question: str, begun: Collection[str], problems: Iterable[str], *, against: bool = False
    ) -> Trace:
        """Return the answer.

        Args:
            begun: identities of the branches that the walk began with.
            against: whether the walk went from sinks to sources.
        """
        nodes = dict.fromkeys(branch for branch, ids in self.commits.items() if ids or branch in begun)
        nodes |= dict.fromkeys(self.others)
        flows = [flow.of(*key) for key, flow in self._flows.items() if key[0] in nodes and key[1] in nodes]
        order, depth = arranged(
            [(flow.source, flow.sink) for flow in flows],
            sorted(begun, key=self._by),
            nodes,
            self._by,
            against=against,
        )
        place = {node: i for i, node in enumerate(order)}
        flows.sort(key=lambda flow: (place[flow.sink], place[flow.source], flow.job, flow.kind))
        return Trace(
            question,
            tuple(self._dataset(node, depth[node]) for node in order),
            tuple(flows),
            tuple(problems),
        )

    def _dataset(self, node: str, depth: int) -> Dataset:
        other = self.others.get(node)
        if other is not None:
            return Dataset(node, *other, depth=depth)
        line = self.contents.line(node)
        ids = self.commits[node].joined_over(self.silent(node))
        return Dataset(node, "table", self.title(node), None if line is None else line.table_uuid, ids, depth)

    def _by(self, node: str) -> tuple[str, ...]:
        other = self.others.get(node)
        return (self.title(node) if other is None else other[1], node)

    @lazy
    def _names(self) -> dict[str, str]:
        return {flow.source: flow.source_name for flow in self.all_flows}


class _Commits:
    """Commits of a sink that took part in a flow, and when."""

    __slots__ = ("first", "last", "snapshots")

    def __init__(self) -> None:
        self.snapshots: list[int] = []
        self.first, self.last = BEYOND, 0

    def add(self, snapshot: int, time_millis: int) -> None:
        self.snapshots.append(snapshot)
        self.first = min(self.first, time_millis)
        self.last = max(self.last, time_millis)

    def of(self, source: str, sink: str, job: str, is_merge: bool) -> Flow:
        kind: Literal["job", "merge"] = "merge" if is_merge else "job"
        return Flow(source, sink, job, kind, len(set(self.snapshots)), self.first, self.last)


def check_depth(depth: int | None) -> None:
    """Raise `InvalidInputError` unless it is None, or 1 or more."""
    if depth is not None and depth < 1:
        raise InvalidInputError(
            f"depth is {depth}: a question goes at least one step", hint="leave it out for all steps."
        )


def asked_for(ids: Ids) -> Iterator[Range]:
    """Return ranges to ask a store for: these, or the span from first to last if there are many."""
    if ids:
        yield from ids if len(ids) <= _RANGES_AT_MOST else (ids.hull,)


def arranged(
    flows: Iterable[tuple[str, str]],
    begun: Iterable[str],
    nodes: Iterable[str],
    by: Callable[[str], tuple[str, ...]],
    *,
    against: bool = False,
) -> tuple[list[str], dict[str, int]]:
    """Return nodes in topological order of their flows, and the distance of each from the beginning.

    Args:
        flows: source and sink.
        begun: where the walk began, or nothing to begin with the nodes that take from no other.
        nodes: all of them.
        by: the key that decides ties.
        against: whether distance is counted from sinks to sources.
    """
    edges: dict[str, set[str]] = {node: set() for node in sorted(nodes, key=by)}
    for source, sink in flows:
        if source != sink:
            edges[sink if against else source].add(source if against else sink)
    ordered = {node: sorted(found, key=by) for node, found in edges.items()}
    sinks = {sink for found in edges.values() for sink in found}
    roots = [*begun, *(node for node in ordered if node not in sinks), *ordered]
    kept = without_ways_back(roots, ordered)
    order = topological(kept, by)
    depth = longest_ways(order, kept)
    if not against:
        return order, depth
    reverse: dict[str, list[str]] = {node: [] for node in kept}
    for node, found in kept.items():
        for other in found:
            reverse[other].append(node)
    return topological(reverse, by), depth
