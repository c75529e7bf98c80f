"""Networks of branches and orders of a directed graph: its components, and how an answer lists it. Both handle cycles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from anabranch.lineage.content import Contents
from anabranch.lineage.store import FlowSummary

Node = TypeVar("Node", bound=Hashable)

Edges = Mapping[Node, Collection[Node]]


def components(roots: Iterable[Node], edges: Edges[Node]) -> list[list[Node]]:
    """Return the reachable nodes, in groups of those that reach each other; a group comes before what it reaches."""
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    stack: list[Node] = []
    is_open: set[Node] = set()
    found: list[list[Node]] = []
    for root in roots:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        stack.append(root)
        is_open.add(root)
        path = [(root, iter(edges.get(root, ())))]
        while path:
            node, following = path[-1]
            for other in following:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    is_open.add(other)
                    path.append((other, iter(edges.get(other, ()))))
                    break
                if other in is_open:
                    lowest[node] = min(lowest[node], number[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    is_open -= set(stack[at:])
                    del stack[at:]
    return found[::-1]


def without_ways_back(roots: Iterable[Node], edges: Edges[Node]) -> dict[Node, list[Node]]:
    """Return the edges without those that lead back to a node on the current path, as a depth-first walk meets them."""
    kept: dict[Node, list[Node]] = {}
    for root in roots:
        if root in kept:
            continue
        on_way = {root}
        kept[root] = []
        path = [(root, iter(edges.get(root, ())))]
        while path:
            node, following = path[-1]
            for other in following:
                if other in on_way:
                    continue
                kept[node].append(other)
                if other not in kept:
                    kept[other] = []
                    on_way.add(other)
                    path.append((other, iter(edges.get(other, ()))))
                    break
            else:
                path.pop()
                on_way.discard(node)
    return kept


def topological(edges: Edges[Node], by: Callable[[Node], tuple[str, ...]]) -> list[Node]:
    """Return all nodes of an acyclic graph, each after those that lead to it; ties broken by a key."""
    missing = dict.fromkeys(edges, 0)
    for following in edges.values():
        for other in following:
            missing[other] += 1
    ready: list[tuple[tuple[str, ...], int, Node]] = []
    for i, node in enumerate(edges):
        if not missing[node]:
            heappush(ready, (by(node), i, node))
    found: list[Node] = []
    while ready:
        node = heappop(ready)[2]
        found.append(node)
        for i, other in enumerate(edges[node]):
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (by(other), i, other))
    return found


def longest_ways(order: Iterable[Node], edges: Edges[Node]) -> dict[Node, int]:
    """Return the number of edges on the longest path to each node; `order` is topological."""
    longest: dict[Node, int] = {}
    for node in order:
        longest.setdefault(node, 0)
        for other in edges.get(node, ()):
            longest[other] = max(longest.get(other, 0), longest[node] + 1)
    return longest


class Network:
    """The branches of a store, and the flows that may exist between them."""

    def __init__(self, flows: Iterable[FlowSummary], contents: Contents) -> None:
        self._sinks: dict[str, set[str]] = {}
        self._sources: dict[str, set[str]] = {}
        for flow in flows:
            if flow.source_kind != "table":
                continue
            # Reading a branch is reading those that it left, and merging it only itself.
            is_own = flow.is_merge and not contents.restores(flow.source)
            for source in (flow.source,) if is_own else contents.reach(flow.source):
                self._sinks.setdefault(source, set()).add(flow.sink)
                self._sources.setdefault(flow.sink, set()).add(source)

    def downstream(self, begun: Iterable[str]) -> list[list[str]]:
        """Return the branches that can be reached, in groups: a group comes after all that flows into it."""
        return components(begun, self._sinks)

    def upstream(self, begun: Iterable[str]) -> list[list[str]]:
        """Return the branches that can be reached against the flows: a group comes after all that it flows into."""
        return components(begun, self._sources)

    def has_cycle(self, group: list[str]) -> bool:
        """Whether rows may have flowed from a branch of the group back to it."""
        return len(group) > 1 or group[0] in self._sinks.get(group[0], ())
