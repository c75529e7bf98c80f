"""A layered layout: nodes in columns from left to right, arrows between neighbouring columns, few crossings.

The usual three steps: each node goes into the first column after all it comes from; an arrow that spans columns gets a
bend in each of them, so that it runs between the boxes and not behind them; then the order within the columns is improved
by medians, sweeping to and fro, and every node moves as near to its neighbours as the others let it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Node = Hashable
_SWEEPS = 8
_SETTLING = 12


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Position of a node: the middle of its left edge, and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class DrawnLayout:
    """Positions of all nodes, and paths of all arrows."""

    places: dict[Node, NodePlace]
    ways: dict[tuple[Node, Node], tuple[tuple[float, float], ...]]
    """Points of each arrow, two for each column: it goes straight through columns, and curves between them."""
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Bend:
    """The point where an arrow passes through a column."""

    arrow: tuple[Node, Node]
    column: int


def layout(
    sizes: Mapping[Node, tuple[float, float]],
    arrows: Sequence[tuple[Node, Node]],
    *,
    column_gap: float,
    row_gap: float,
) -> DrawnLayout:
    """Lay out nodes and arrows.

    Args:
        sizes: width and height of each node, in the order used where nothing else decides.
        arrows: pairs of nodes. In a cycle one arrow points back; one from a node to itself is left out.
        row_gap: between nodes of a column.
    """
    nodes = _in_order(list(sizes), arrows)
    order = {node: place for place, node in enumerate(nodes)}
    forward = [(a, b) if order[a] < order[b] else (b, a) for a, b in arrows if a != b]
    columns, chains = _columns(nodes, list(dict.fromkeys(forward)))
    neighbours = _neighbours(chains)
    _untangle(columns, neighbours)
    heights = {node: sizes[node][1] if node in sizes else 0.0 for column in columns for node in column}
    ys = _settle(columns, neighbours, heights, row_gap)
    xs, total = _across(columns, sizes, column_gap)
    widths = [max((sizes[n][0] for n in column if n in sizes), default=0.0) for column in columns]
    places = {
        node: NodePlace(xs[at] + (widths[at] - sizes[node][0]) / 2, ys[node], *sizes[node])
        for at, column in enumerate(columns)
        for node in column
        if node in sizes
    }
    column_of = {node: at for at, column in enumerate(columns) for node in column}
    ways = {}
    for (a, b), chain in chains.items():
        edges = [(xs[column_of[n]], xs[column_of[n]] + widths[column_of[n]], ys[n]) for n in chain]
        edges[0] = (places[a].right, *edges[0][1:])
        edges[-1] = (edges[-1][0], places[b].x, ys[b])
        ways[a, b] = tuple(point for left, right, y in edges for point in ((left, y), (right, y)))
    drawn = {(a, b): ways[a, b] if order[a] < order[b] else ways[b, a][::-1] for a, b in arrows if a != b}
    bottom = max((ys[n] + heights[n] / 2 for column in columns for n in column), default=0.0)
    return DrawnLayout(places, drawn, total, bottom)


def _in_order(nodes: Sequence[Node], arrows: Sequence[tuple[Node, Node]]) -> list[Node]:
    """Return nodes after those that lead to them; a cycle begins with its first node."""
    number = {node: place for place, node in enumerate(nodes)}
    waiting = dict.fromkeys(nodes, 0)
    out: dict[Node, list[Node]] = defaultdict(list)
    for a, b in arrows:
        if a != b:
            out[a].append(b)
            waiting[b] += 1
    ready = [number[node] for node in nodes if not waiting[node]]  # ascending, so it is a heap
    found: list[Node] = []
    while waiting:
        node = nodes[heapq.heappop(ready)] if ready else next(iter(waiting))
        if waiting.pop(node, None) is None:
            continue
        found.append(node)
        for after in out[node]:
            if after in waiting:
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(ready, number[after])
    return found


def _columns(
    nodes: Sequence[Node], forward: Sequence[tuple[Node, Node]]
) -> tuple[list[list[Node]], dict[tuple[Node, Node], list[Node]]]:
    """Return nodes and bends by column, and for each arrow all that it passes."""
    into: dict[Node, list[Node]] = defaultdict(list)
    out: dict[Node, list[Node]] = defaultdict(list)
    for a, b in forward:
        into[b].append(a)
        out[a].append(b)
    at: dict[Node, int] = {}
    for node in nodes:
        at[node] = max((at[a] + 1 for a in into[node]), default=0)
    for node in reversed(nodes):  # a node without predecessors stands right before its first reader
        if not into[node] and out[node]:
            at[node] = min(at[b] for b in out[node]) - 1
    columns: list[list[Node]] = [[] for _ in range(max(at.values(), default=-1) + 1)]
    for node in nodes:
        columns[at[node]].append(node)
    chains: dict[tuple[Node, Node], list[Node]] = {}
    for a, b in forward:
        bends = [_Bend((a, b), column) for column in range(at[a] + 1, at[b])]
        for bend in bends:
            columns[bend.column].append(bend)
        chains[a, b] = [a, *bends, b]
    return columns, chains


def _neighbours(
    chains: Mapping[tuple[Node, Node], list[Node]],
) -> tuple[dict[Node, list[Node]], dict[Node, list[Node]]]:
    """Return, for each node, its neighbours in the column before and in the one after."""
    before: dict[Node, list[Node]] = defaultdict(list)
    after: dict[Node, list[Node]] = defaultdict(list)
    for chain in chains.values():
        for a, b in pairwise(chain):
            after[a].append(b)
            before[b].append(a)
    return before, after


def _untangle(
    columns: list[list[Node]], neighbours: tuple[dict[Node, list[Node]], dict[Node, list[Node]]]
) -> None:
    """Order each column by the positions of its neighbours; keep the order with the fewest crossings."""
    before, after = neighbours
    best, fewest = [list(column) for column in columns], _crossings(columns, after)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        rightwards = sweep % 2 == 0
        ways = range(1, len(columns)) if rightwards else range(len(columns) - 2, -1, -1)
        for at in ways:
            beside = {n: place for place, n in enumerate(columns[at - 1 if rightwards else at + 1])}
            own = {n: place for place, n in enumerate(columns[at])}
            joined = before if rightwards else after
            columns[at].sort(key=lambda n: _mean([beside[m] for m in joined[n]], own[n]))
        found = _crossings(columns, after)
        if found < fewest:
            best, fewest = [list(column) for column in columns], found
    columns[:] = best


def _crossings(columns: list[list[Node]], after: Mapping[Node, list[Node]]) -> int:
    crossed = 0
    for left, right in pairwise(columns):
        place = {node: at for at, node in enumerate(right)}
        above: list[int] = []
        """Ends of the arrows that begin above, ascending."""
        for a in left:
            ends = [place[b] for b in after[a]]
            crossed += sum(len(above) - bisect_right(above, end) for end in ends)
            for end in ends:
                insort(above, end)
    return crossed


def _settle(
    columns: list[list[Node]],
    neighbours: tuple[dict[Node, list[Node]], dict[Node, list[Node]]],
    heights: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    """Return vertical middles: as near to the neighbours' as order and gaps allow; none above 0."""
    before, after = neighbours
    ys: dict[Node, float] = {}
    for column in columns:
        _stack(column, [0.0] * len(column), heights, gap, ys)
    for turn in range(_SETTLING):
        ways = columns if turn % 2 == 0 else columns[::-1]
        for column in ways:
            joined = [[*before[n], *after[n]] for n in column]
            wanted = [_mean([ys[m] for m in beside], ys[n]) for n, beside in zip(column, joined, strict=True)]
            _stack(column, wanted, heights, gap, ys)
    top = min((ys[n] - heights[n] / 2 for n in ys), default=0.0)
    return {node: y - top for node, y in ys.items()}


def _stack(
    column: list[Node],
    wanted: Sequence[float],
    heights: Mapping[Node, float],
    gap: float,
    ys: dict[Node, float],
) -> None:
    """Place a column's nodes at their wanted positions; overlapping ones form a block around their common mean."""
    blocks: list[
        tuple[float, float, list[tuple[Node, float]]]
    ] = []  # sum of wishes of the top, length, members
    for node, wish in zip(column, wanted, strict=True):
        size = heights[node] + gap
        total, length, members = wish - size / 2, size, [(node, 0.0)]
        while blocks and blocks[-1][0] / len(blocks[-1][2]) + blocks[-1][1] > total / len(members):
            above_total, above_length, above = blocks.pop()
            total = above_total + total - above_length * len(members)
            members = above + [(n, offset + above_length) for n, offset in members]
            length += above_length
        blocks.append((total, length, members))
    for total, _, members in blocks:
        for node, offset in members:
            ys[node] = total / len(members) + offset + (heights[node] + gap) / 2


def _across(
    columns: list[list[Node]], sizes: Mapping[Node, tuple[float, float]], gap: float
) -> tuple[list[float], float]:
    xs, x = [], 0.0
    for column in columns:
        xs.append(x)
        x += max((sizes[n][0] for n in column if n in sizes), default=0.0) + gap
    return xs, max(0.0, x - gap)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
