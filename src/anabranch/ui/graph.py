"""The branch graph: snapshots as nodes in lanes, as a git graph draws commits; runs of plain ones are folded."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from anabranch import Snapshot
from anabranch.ui.asked import Asked
from anabranch.ui.history import DAMAGED, Line, newest, snapshot_prefix
from anabranch.ui.lanes import Lane, fill, lanes_of
from anabranch.ui.site import Site
from anabranch.verbs.branch_log import BranchOperation, made_by, recorded
from anabranch.verbs.legible import Unread, legible_savepoints, look_at_records, visible_tags

_UNFOLDED: Final = 6
"""Newest snapshots of a lane that stand alone, unless they are compactions."""
_TELLING: Final = ("merge", "replace", "seal", "rollback", "overwrite", DAMAGED)
"""Kinds that stand alone."""


@dataclass
class GraphNode:
    """A snapshot, or a run of them."""

    lane: int
    lines: list[Line]
    """Newest first."""
    labels: list[dict[str, Any]] = field(default_factory=list)
    parent: int | None = None


def graph(site: Site, asked: Asked) -> dict[str, Any]:
    """Return lanes, nodes from the newest to the oldest, edges between them, and the log of operations."""
    main = site.open(asked.text("table"))
    unread = Unread(asked.text("table"))
    newest(main)  # a view of main follows it
    known = recorded(main, unread)
    lanes, ends = lanes_of(main, known, unread)
    is_cut = fill(site, lanes)
    operations = _told_operations([*known, *made_by(_replacing(lanes))])
    places = _Places(lanes)
    labels = dict(_labels(lanes, places, unread))
    look_at_records(main, unread)
    marked = {*labels, *(lane.root for lane in lanes), *(lane.head for lane in lanes)}
    links = list(_links(operations, ends, places))
    marked |= {end for link in links for end in (link["from"], link["to"])}
    nodes = [node for number, lane in enumerate(lanes) for node in _folded(number, lane, marked)]
    at = {line.stamp: node for node in nodes for line in node.lines}
    numbers = {id(node): place for place, node in enumerate(_in_order(nodes, lanes, at))}
    ordered = sorted(nodes, key=lambda node: numbers[id(node)])
    for node in nodes:
        node.labels = [label for line in node.lines for label in labels.get(line.stamp, ())]
    columns = _columns(ordered, lanes, at, numbers)
    return {
        "lanes": [
            {"name": lane.name, "role": lane.role, "column": columns[number], "own": len(lane.lines)}
            for number, lane in enumerate(lanes)
        ],
        "nodes": [_told(node, lanes, at, numbers) for node in ordered],
        "links": [
            {**link, "from": numbers[id(at[link["from"]])], "to": numbers[id(at[link["to"]])]}
            for link in links
        ],
        "operations": operations,
        "cut": is_cut,
        "damaged": unread.found,
    }


def _told_operations(found: Iterable[BranchOperation]) -> list[dict[str, Any]]:
    """Return operations newest first, with those marked that were undone later."""
    ordered = sorted(found, key=lambda one: (one.time_millis, one.branch, one.operation), reverse=True)
    undone = {one.details.get("undoes") for one in ordered if one.operation == "undone"}
    return [
        {
            "millis": one.time_millis,
            "what": one.operation,
            "branch": one.branch,
            "uuid": one.branch_uuid,
            "snapshot": one.snapshot_id,
            "main_snapshot": one.main_snapshot_id,
            "by": one.by,
            "details": dict(one.details),
            "undone": one.operation == "replaced_main" and one.details.get("generation") in undone,
        }
        for one in ordered
    ]


def _replacing(lanes: Iterable[Lane]) -> Iterator[Snapshot]:
    """Yield the commits that gave main the content of a branch."""
    for lane in lanes:
        for line in lane.lines:
            if line.kind == "replace":
                found = lane.table.at(f"{snapshot_prefix(lane.table)}{line.id}").snapshot
                assert found is not None, "a moment has a snapshot"
                yield found


class _Places:
    """Finds snapshots by lane and id."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._own = {(lane.uuid, line.id): line.stamp for lane in lanes for line in lane.lines}
        self._kinds = {(line.id, line.kind): line.stamp for lane in lanes for line in lane.lines}
        self.stamps = {line.stamp for lane in lanes for line in lane.lines}

    def of(self, uuid: str | None, number: int | None) -> str | None:
        """Return the stamp of a branch's snapshot, if it is drawn."""
        if uuid is None or number is None:
            return None
        found = self._own.get((uuid, number))
        if found is not None:
            return found
        lane = next((lane for lane in self._lanes if lane.uuid == uuid), None)
        root = None if lane is None else lane.root
        return root if root is not None and lane is not None and not lane.lines else None

    def of_kind(self, number: int | None, kind: str) -> str | None:
        """Return the stamp of the snapshot of that id and kind, on any lane."""
        return None if number is None else self._kinds.get((number, kind))


def _labels(lanes: list[Lane], places: _Places, unread: Unread) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the names of snapshots: heads of branches, tags, savepoints."""
    found: dict[str, list[dict[str, Any]]] = {}

    def put(stamp: str | None, kind: str, name: str) -> None:
        if stamp in places.stamps:
            assert stamp is not None, "a drawn snapshot has a stamp"
            labels = found.setdefault(stamp, [])
            if {"kind": kind, "name": name} not in labels:
                labels.append({"kind": kind, "name": name})

    for lane in lanes:
        put(lane.head, lane.role, lane.name)
    for lane in lanes:
        for tag in visible_tags(lane.table, unread):
            put(tag.snapshot.stamp, "tag", tag.name)
        for saved in legible_savepoints(lane.table, unread):
            put(places.of(lane.uuid, saved.saved_snapshot_id), "savepoint", f"savepoint.{saved.id}")
    yield from found.items()


def _links(
    operations: Iterable[dict[str, Any]], ends: dict[str, str], places: _Places
) -> Iterator[dict[str, Any]]:
    """Yield merges and replacements, as lines from one lane to another."""
    for made in operations:
        source: str | None
        sink: str | None
        if made["what"] == "merged":
            source, sink = (
                places.of(made["uuid"], made["snapshot"]),
                places.of_kind(made["main_snapshot"], "merge"),
            )
        elif made["what"] in ("replaced_main", "undone") and made["details"].get("mode") == "commit":
            source, sink = (
                places.of(made["uuid"], made["snapshot"]),
                places.of_kind(made["main_snapshot"], "replace"),
            )
        elif made["what"] in ("replaced_main", "undone"):
            source = ends.get(f"main@{made['details'].get('generation')}")
            sink = places.of(made["uuid"], made["snapshot"])
        else:
            continue
        if source in places.stamps and sink in places.stamps and source != sink:
            kind = "merge" if made["what"] == "merged" else made["what"]
            yield {
                "kind": kind,
                "from": source,
                "to": sink,
                "undone": made["undone"],
                "branch": made["branch"],
            }


def _folded(number: int, lane: Lane, marked: set[str | None]) -> Iterator[GraphNode]:
    """Yield the nodes of a lane, newest first: what is marked or telling alone, the rest in runs."""
    run: list[Line] = []
    for place, line in enumerate(lane.lines):
        stands_alone = line.stamp in marked or line.kind in _TELLING
        is_recent = place < _UNFOLDED and line.kind not in ("compact", "fence")
        if stands_alone or is_recent or place == len(lane.lines) - 1:
            if run:
                yield GraphNode(number, run)
                run = []
            yield GraphNode(number, [line])
        else:
            run.append(line)
    if run:
        yield GraphNode(number, run)


def _in_order(nodes: list[GraphNode], lanes: list[Lane], at: dict[str, GraphNode]) -> list[GraphNode]:
    """Return nodes newest first, each before those it is built on, whatever clocks said."""
    below: dict[int, list[GraphNode]] = {}
    above: Counter[int] = Counter()
    for upper, lower in _built_on(nodes, lanes, at):
        below.setdefault(id(upper), []).append(lower)
        above[id(lower)] += 1
    tie = count()
    ready = [(-node.lines[0].millis, next(tie), node) for node in nodes if not above[id(node)]]
    heapq.heapify(ready)
    found = []
    while ready:
        node = heapq.heappop(ready)[2]
        found.append(node)
        for lower in below.get(id(node), ()):
            above[id(lower)] -= 1
            if not above[id(lower)]:
                heapq.heappush(ready, (-lower.lines[0].millis, next(tie), lower))
    return found


def _built_on(
    nodes: list[GraphNode], lanes: list[Lane], at: dict[str, GraphNode]
) -> Iterator[tuple[GraphNode, GraphNode]]:
    """Yield each node with the one below it."""
    last: dict[int, GraphNode] = {}
    for node in nodes:  # of each lane, newest first
        if node.lane in last:
            yield last[node.lane], node
        last[node.lane] = node
    for number, node in last.items():
        root = lanes[number].root
        if root is not None and at[root] is not node:
            yield node, at[root]


def _columns(
    ordered: list[GraphNode], lanes: list[Lane], at: dict[str, GraphNode], numbers: dict[int, int]
) -> list[int]:
    """Return the column of each lane: side by side where they overlap in time, main the first."""
    spans = []
    for number, lane in enumerate(lanes):
        own = [place for place, node in enumerate(ordered) if node.lane == number]
        end = numbers[id(at[lane.root])] if lane.root is not None else max(own, default=0)
        spans.append((min(own, default=end), end))
    free: list[list[tuple[int, int]]] = []
    found = []
    for number, (begin, end) in enumerate(spans):
        if number and not lanes[number].lines:
            found.append(0)
            continue
        place = next(
            (i for i, taken in enumerate(free) if i and all(end < a or begin > b for a, b in taken)),
            len(free),
        )
        if place == len(free):
            free.append([])
        free[place].append((begin, end))
        found.append(place)
    return found


def _told(
    node: GraphNode, lanes: list[Lane], at: dict[str, GraphNode], numbers: dict[int, int]
) -> dict[str, Any]:
    newest, oldest = node.lines[0], node.lines[-1]
    lane = lanes[node.lane]
    parent = lane.root if oldest is lane.lines[-1] else None
    added = [line.added for line in node.lines]
    return {
        "lane": node.lane,
        "from": oldest.id,
        "to": newest.id,
        "kinds": Counter(line.kind for line in node.lines),
        "millis": newest.millis,
        "begun": oldest.millis,
        "rows": newest.rows,
        "added": None if None in added else sum(a for a in added if a is not None),
        "job": newest.job,
        "labels": node.labels,
        "root": None if parent is None else numbers[id(at[parent])],
    }
