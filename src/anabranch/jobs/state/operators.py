"""The operators of a streaming query that keep state, as its plan shows them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL = re.compile(
    r"(Aggregate|Deduplicate\w*|Distinct|FlatMapGroups\w*WithState\w*|ApplyInPandasWithState|TransformWithState\w*"
    r"|(?:Global|Local)Limit|Limit|Tail|Offset|Except|Intersect)\b"
)
_FUNCTIONS_OF_USERS = re.compile(
    r"PythonUDF|PythonUDAF|PythonUDTF|ScalaUDF|ScalaUDAF|ScalaAggregator|InPandas|InArrow|MapElements|WithState"
)
_PROCESSING_TIME = re.compile(r"\bProcessingTime(?:Timeout)?\b|current_timestamp|localtimestamp")
_TIMERS = re.compile(r", (Processing|Event)Time(?:Timeout)?(?=,|$)")
"""How a plan shows the mode of a function's timers; a column of that name has a number."""
_CLOSING = re.compile(r"\w*WithState|DeduplicateWithinWatermark|Aggregate \[[^\]]*session_window#")
"""Operators in which something is closed, or forgotten, before the next row comes."""
_FIRSTS = re.compile(r"Deduplicate|Distinct|GlobalLimit")
"""Operators that keep the first rows: which these are counts where others take them."""
_DEPTH = re.compile(r"^((?:[: ] {2})*(?:[:+]- )?)(~?)(.*)$")
_MOST_FIELDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Operators:
    """The parts of a query that keep state between batches."""

    kinds: tuple[str, ...]
    """Names of the operators, in the order of the plan."""
    fingerprint: str | None
    """Equal for plans whose operators with state, and all below them, are the same; None if that cannot be seen."""
    has_event_time: bool
    """Whether a watermark is defined, by which state is emitted or dropped."""
    has_processing_time: bool
    """Whether state depends on when rows are processed."""
    texts: tuple[str, ...] | None = None
    """The operators as the plan shows them, with ids of expressions; None if that cannot be seen."""

    @property
    def timers(self) -> frozenset[str]:
        """The times by which functions with state set timers: ``Processing`` or ``Event``."""
        own = [text for text in self.texts or () if "WithState" in text.split(" ", 1)[0]]
        return frozenset(mode for text in own for mode in _TIMERS.findall(text))

    @property
    def follows_batches(self) -> bool:
        """Whether its state may be another if rows of several batches come together in one.

        Then no row is late, nothing is closed between two rows, and which of several rows is the first is open.
        """
        texts = self.texts or ()
        below_others = any(_FIRSTS.match(text) for text in texts[1:])
        joins = self.has_event_time and any(text.startswith("Join") for text in texts)
        return joins or below_others or any(_CLOSING.match(text) for text in texts)

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(self.kinds))


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a plan."""

    depth: int
    is_stream: bool
    text: str

    @property
    def kind(self) -> str:
        """Name of the operator."""
        return self.text.split(" ", 1)[0].split("(", 1)[0]


def operators_of(rows: DataFrame, code: str | None) -> Operators | None:
    """The operators with state of a streaming query; None if it has none.

    Args:
        rows: what the query writes.
        code: hash of what the job does, which stands for functions of users, whose content a plan does not show.
    """
    frame: Any = getattr(rows, "_jdf", None)
    if frame is None:
        return _of_text(rows)
    plan = frame.queryExecution().analyzed()
    nodes = nodes_of(str(plan.treeString(False, False, _MOST_FIELDS, False, False)))
    tops = list(stateful(nodes))
    if not tops:
        return None
    parts = [node for top in tops for node in below(nodes, top)]
    classes = " ".join(_classes(json.loads(plan.toJSON())))
    own = code if _FUNCTIONS_OF_USERS.search(classes) else ""
    text = "\n".join(node.text for node in nodes)
    return Operators(
        tuple(nodes[place].kind for place in tops),
        None if own is None else _fingerprint(parts, own),
        "EventTimeWatermark" in text,
        _PROCESSING_TIME.search(text) is not None,
        tuple(nodes[place].text for place in tops),
    )


def check_ends(job: str, sink: str, operators: Operators | None) -> None:
    """Raise `InvalidInputError` if a job that is to read what there is, and then end, would go on for ever.

    Where a function may have timers of processing time, Spark asks for one more batch again and again.
    """
    if operators is None or "Processing" not in operators.timers:
        return
    raise InvalidInputError(
        f"job '{job}' cannot be run again by a correction: its state has timers in processing time ({operators}), and with these "
        "a run that is to end when everything is read never does",
        hint="use event time in the corrected job ('EventTimeTimeout', or the time mode 'EventTime'), or no timers at all; or leave it "
        f"out of the job files that are given, and make its rows by hand on the branch that the plan names: --by-hand {sink}.",
    )


def _of_text(rows: Any) -> Operators | None:
    """Parse Spark Connect's explain text: enough to see that there is state, not that it is the same."""
    text = str(rows._explain_string(extended=True))  # noqa: SLF001 - Connect has no other way to the plan
    analyzed = text.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized")[0]
    nodes = nodes_of(analyzed)
    tops = list(stateful(nodes))
    if not tops:
        return None
    kinds = tuple(nodes[place].kind for place in tops)
    return Operators(kinds, None, "EventTimeWatermark" in analyzed, has_processing_time=False)


def nodes_of(tree: str) -> list[Node]:
    """Return the nodes of a plan, from its text, in their order."""
    matches = [_DEPTH.match(line) for line in tree.splitlines()]
    return [
        Node(len(match[1]) // 3, match[2] == "~", match[3])
        for match in matches
        if match is not None and match[3].strip()
    ]


def stateful(nodes: Sequence[Node]) -> Iterator[int]:
    """Yield the places of the nodes that keep state."""
    for place, node in enumerate(nodes):
        if not node.is_stream:
            continue
        if _STATEFUL.match(node.text) or (node.kind == "Join" and _joins_streams(nodes, place)):
            yield place


def _joins_streams(nodes: Sequence[Node], place: int) -> bool:
    depth = nodes[place].depth
    children = [node for node in below(nodes, place) if node.depth == depth + 1]
    return sum(node.is_stream for node in children) > 1


def below(nodes: Sequence[Node], place: int) -> list[Node]:
    """Return a node and everything below it."""
    found = [nodes[place]]
    for node in nodes[place + 1 :]:
        if node.depth <= nodes[place].depth:
            break
        found.append(node)
    return found


def _fingerprint(nodes: Sequence[Node], code: str) -> str:
    """Hash nodes without what differs between starts: ids of expressions, objects and sources."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return "#" + numbers.setdefault(match[0], str(len(numbers)))

    lines = []
    for node in nodes:
        text = node.text
        if re.match(
            r"StreamingRelation|RelationV2|DataSourceV2Relation|Relation\b|LogicalRDD|StreamingData", text
        ):
            columns = re.findall(r"\[[^\[\]]*#\d+L?[^\[\]]*\]", text)
            text = f"source {columns[-1] if columns else ''}"
        text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "", text)
        text = re.sub(r"@[0-9a-f]+\b", "", text)
        lines.append(f"{node.depth - nodes[0].depth} {re.sub(r'#[0-9]+', number, text)}")
    digest = hashlib.sha256("\n".join([*lines, code]).encode())
    return digest.hexdigest()


def _classes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        name = value.get("class")
        if isinstance(name, str):
            yield name.rpartition(".")[2]
        for inner in value.values():
            yield from _classes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _classes(inner)
