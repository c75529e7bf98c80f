"""Draws a trace as a graph: in Graphviz's DOT language, or as a Mermaid flowchart, which Markdown pages can show."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from anabranch.lineage.drawing.labels import commits_text, is_asked, printable, snapshots_text
from anabranch.lineage.trace import Dataset, Flow, Trace

_DOT_SHAPES = {"table": "box", "kafka": "cds", "files": "folder", "unknown": "box"}
_MERMAID_SHAPES = {"table": ("[", "]"), "kafka": (">", "]"), "files": ("[(", ")]"), "unknown": ("{{", "}}")}
_MEANINGFUL = re.compile(r"[^\w .,:/=+@()~$-]|(?<=\$)\$|^[-+]|(?<=\d)[.)](?=\s)")
"""Characters with a meaning in Mermaid, HTML or Markdown: ``$$`` begins a formula, ``1. `` a list."""

_Node = Callable[[str, Dataset], str]
_Edge = Callable[[str, str, list[Flow]], str]


def as_dot(trace: Trace) -> str:
    """Draw a directed graph: a node for each dataset, an edge for each pair, labelled with the jobs."""
    title = "\n".join(
        [printable(trace.question), *(f"may be incomplete: {printable(p)}" for p in trace.problems)]
    )
    lines = (
        "digraph lineage {",
        f'  graph [rankdir=LR, labelloc=t, fontname="Helvetica", label={_quoted(title)}];',
        '  node [style=rounded, fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
        *_graph(trace, _dot_node, _dot_edge),
        "}",
    )
    return "".join(f"{line}\n" for line in lines)


def as_mermaid(trace: Trace) -> str:
    """Draw a flowchart from left to right: a node for each dataset, an arrow for each pair, labelled with the jobs."""
    asked = [number for number, dataset in enumerate(trace.datasets) if is_asked(dataset)]
    lines = (
        "---",
        f"title: {json.dumps(printable(trace.question))}",  # front matter is YAML, of which JSON is a subset
        "---",
        "flowchart LR",
        *(f"  %% may be incomplete: {_comment(problem)}" for problem in trace.problems),
        *_graph(trace, _mermaid_node, _mermaid_edge),
        *(f"  style n{number} stroke-width:3px" for number in asked),
    )
    return "".join(f"{line}\n" for line in lines)


def _graph(trace: Trace, node: _Node, edge: _Edge) -> Iterator[str]:
    """Yield a line for each dataset, and then for each pair of which one flows into the other."""
    numbers = {dataset.id: f"n{number}" for number, dataset in enumerate(trace.datasets)}
    between: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for flow in trace.flows:
        between[flow.source, flow.sink].append(flow)
    yield from (node(numbers[dataset.id], dataset) for dataset in trace.datasets)
    yield from (edge(numbers[source], numbers[sink], flows) for (source, sink), flows in between.items())


def _dot_node(number: str, dataset: Dataset) -> str:
    lines = [printable(dataset.name), snapshots_text(dataset)]
    label = _quoted("\n".join(line for line in lines if line))
    asked = ", penwidth=2" if is_asked(dataset) else ""
    return f"  {number} [shape={_DOT_SHAPES[dataset.kind]}, label={label}{asked}];"


def _dot_edge(source: str, sink: str, flows: list[Flow]) -> str:
    label = _quoted("\n".join(f"{printable(flow.job)} ({commits_text(flow)})" for flow in flows))
    dashed = ", style=dashed" if all(flow.kind == "merge" for flow in flows) else ""
    return f"  {source} -> {sink} [label={label}{dashed}];"


def _quoted(text: str) -> str:
    r"""Quote a string for Graphviz. A backslash would begin an escape such as ``\N``, an ampersand an HTML entity."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("\n", "\\n")
    return f'"{escaped}"'


def _mermaid_node(number: str, dataset: Dataset) -> str:
    opening, closing = _MERMAID_SHAPES[dataset.kind]
    lines = [_escaped(line) for line in (dataset.name, snapshots_text(dataset)) if line]
    return f'  {number}{opening}"{"<br/>".join(lines)}"{closing}'


def _mermaid_edge(source: str, sink: str, flows: list[Flow]) -> str:
    label = "<br/>".join(_escaped(f"{flow.job} ({commits_text(flow)})") for flow in flows)
    arrow = "-.->" if all(flow.kind == "merge" for flow in flows) else "-->"
    return f'  {source} {arrow}|"{label}"| {sink}'


def _escaped(text: str) -> str:
    return _MEANINGFUL.sub(lambda found: f"#{ord(found[0])};", printable(text))


def _comment(text: str) -> str:
    return re.sub(r"[^\w .,:/='-]", "?", printable(text))
