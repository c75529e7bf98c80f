"""How far event times reach into the state of a query, from its plan.

Spark keeps a row in state until the watermark has passed it by the time bound of the operator: the size of a window, the
delay within which doubles are dropped, the range of a join. All bounds of a query together say how much older than the
watermark a row may be that is still in any state. A plan that is not understood has no such bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.jobs.state.operators import Node, below, nodes_of, stateful

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE = re.compile(r"StreamingRelationV2 .*?\(([0-9a-f]{8}-[0-9a-f-]{27}),.*\[([^\[\]]*#\d+[^\[\]]*)\]")
_COLUMN = re.compile(r"([^,\s\[\]]+)#(\d+)L?\b")
_WATERMARK = re.compile(r"EventTimeWatermark (?:[0-9a-f-]{36}, )?.+?#(\d+)\b[^,]*, (.+)$")
_MARKED = re.compile(r"#(\d+)-T\d+ms")
_INNERMOST = re.compile(r"\([^()]*\)")
_PLAIN = re.compile(r"[^#\s(),]+#(\d+)-T\d+ms")
_EDGE = re.compile(
    r"(?:cast\()?[^#\s(),]+#(\d+)-T\d+ms(?: [+-] INTERVAL '[^']+' \w+(?: TO \w+)?)?(?: as timestamp(?:_ntz|_ltz)?)?"
)
"""A side of a comparison that says where a range ends: event times as they are, or moved by an interval."""
_WINDOW_END = re.compile(r"\+ (\d+)\), LongType, TimestampType\)")
_COMPARED = re.compile(r" (>=|<=|>|<|=) ")
_INTERVAL = re.compile(r"INTERVAL '([^']+)' (\w+)(?: TO (\w+))?")
_DELAY = re.compile(r"(-?\d+(?:\.\d+)?) (day|hour|minute|second|millisecond)s?\b")
_UNITS: Final = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
_PARTS: Final = ("day", "hour", "minute", "second")


@dataclass(frozen=True, slots=True)
class Reach:
    """How far event times reach into the state of a query."""

    bound_millis: int
    """How much older than the watermark rows in the state may be."""
    columns: Mapping[str, str]
    """By the identity of each branch that is read, its column of event times."""


def reach_of(rows: DataFrame) -> Reach | None:
    """Return how far event times reach into the state of a streaming query; None if there is no bound, or none is seen."""
    frame: Any = getattr(rows, "_jdf", None)
    if frame is None:
        return None  # Spark Connect does not show the plan
    plan = frame.queryExecution().analyzed()
    return reach_in(str(plan.treeString(False, False, 2**31 - 1, False, False)))


def reach_in(tree: str) -> Reach | None:
    """Return the same for the text of an analysed plan."""
    nodes = nodes_of(tree)
    delays = [_WATERMARK.match(node.text) for node in nodes if node.kind == "EventTimeWatermark"]
    if not delays or any(match is None for match in delays):
        return None
    columns = _event_times(nodes)
    known_delays = {match[1]: _delay(match[2]) for match in delays if match}
    bounds = [_bound(nodes, place, known_delays) for place in stateful(nodes)]
    if columns is None or not bounds:
        return None
    known = [bound for bound in bounds if bound is not None]
    return Reach(sum(known), columns) if len(known) == len(bounds) else None


def _event_times(nodes: Sequence[Node]) -> dict[str, str] | None:
    """Return the column of event times of each table; None if a stream is no table, or has none as it is stored."""
    found: dict[str, str] = {}
    for place, node in enumerate(nodes):
        if not node.is_stream or len(below(nodes, place)) > 1:
            continue
        match = _TABLE.match(node.text)
        if match is None:
            return None
        names = {number: name for name, number in _COLUMN.findall(match[2])}
        marked = {
            other[1] for above in _above(nodes, place) if (other := _WATERMARK.match(above.text)) is not None
        }
        own = {names[number] for number in marked if number in names}
        if len(own) != 1 or found.setdefault(match[1], *own) not in own:
            return None
    return found


def _above(nodes: Sequence[Node], place: int) -> list[Node]:
    """Return the nodes that a node is below of."""
    found, depth = [], nodes[place].depth
    for node in reversed(nodes[:place]):
        if node.depth < depth:
            found.append(node)
            depth = node.depth
    return found


def _bound(nodes: Sequence[Node], place: int, delays: Mapping[str, int | None]) -> int | None:
    """Return how much older than the watermark rows in the state of an operator may be; None if that is not known.

    `delays` are those of watermarks, by the number of the column of event times. What is computed of such a column, like a
    window, bears its mark too, and rows in state may be older than it says.
    """
    node = nodes[place]
    match node.kind:
        case "DeduplicateWithinWatermark":
            known = [delay for delay in delays.values() if delay is not None]
            return max(known) if len(known) == len(delays) else None
        case "Deduplicate":
            return 0 if _has_event_times(node.text.partition("[")[2].rpartition("]")[0], delays) else None
        case "Aggregate":
            keys = node.text.partition("], [")[0].partition("[")[2]
            if "session_window" in keys or not _MARKED.search(keys):
                return None
            if "window#" not in keys:
                return 0 if _has_event_times(keys, delays) else None
            ends = [int(end) for one in below(nodes, place)[1:] for end in _WINDOW_END.findall(one.text)]
            return max(ends) // 1000 if ends else None
        case "Join":
            return _bound_of_join(node.text, delays)
        case _:
            return None


def _has_event_times(keys: str, delays: Mapping[str, int | None]) -> bool:
    """Whether one of the keys is a column of event times as it is."""
    while (outer := _INNERMOST.sub("", keys)) != keys:
        keys = outer  # without the arguments of functions
    plain = (_PLAIN.fullmatch(key.strip()) for key in keys.split(","))
    return any(match is not None and match[1] in delays for match in plain)


def _bound_of_join(text: str, delays: Mapping[str, int | None]) -> int | None:
    """Return twice the width of a join's range of event times; None unless it is bounded on both sides."""
    if " OR " in text or " NOT " in text:
        return None
    sides: set[str] = set()
    for part in text.partition(", ")[2].split(" AND "):
        if not _MARKED.search(part):
            continue
        compared = _COMPARED.split(part)
        if len(compared) != 3:
            return None
        left, right = (_EDGE.fullmatch(side.strip("() ")) for side in (compared[0], compared[2]))
        if left is None or right is None or left[1] == right[1] or not {left[1], right[1]} <= delays.keys():
            return None  # of what is computed it is not known how far it is from the event times
        sign = compared[1]
        is_turned = int(left[1]) > int(right[1])
        sides |= {"<", ">"} if sign == "=" else {("<" if (sign[0] == "<") != is_turned else ">")}
    widths = [_interval(*match) for match in _INTERVAL.findall(text)]
    if sides != {"<", ">"} or text.count("INTERVAL") + text.count("interval") != len(widths):
        return None
    known = [width for width in widths if width is not None]
    return 2 * sum(known) if len(known) == len(widths) else None


def _interval(value: str, first: str, last: str) -> int | None:
    """Return the milliseconds of an interval of SQL, without its sign; None for months and years."""
    units = _PARTS
    if first.lower() not in units or (last and last.lower() not in units):
        return None
    begin, end = units.index(first.lower()), units.index((last or first).lower())
    numbers = [part for part in re.split(r"[ :]", value.lstrip("-")) if part]
    if len(numbers) != end - begin + 1:
        return None
    try:
        millis = [
            float(number) * _UNITS[unit] for number, unit in zip(numbers, units[begin : end + 1], strict=True)
        ]
    except ValueError:
        return None
    return round(sum(millis))


def _delay(text: str) -> int | None:
    """Return the milliseconds of a watermark's delay; None if it is not understood."""
    parts = _DELAY.findall(text)
    if not parts or _DELAY.sub("", text).strip():
        return None
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
