"""Draws a trace in Graphviz's DOT language."""

from __future__ import annotations

from collections import defaultdict

from anabranch.lineage.drawing.labels import commits_text, is_asked, printable, snapshots_text
from anabranch.lineage.trace import Dataset, Flow, Trace

_SHAPES = {"table": "box", "kafka": "cds", "files": "folder", "unknown": "box"}


def as_dot(trace: Trace) -> str:
    """Draw a directed graph: a node for each dataset, an edge for each pair, labelled with the jobs."""
    numbers = {dataset.id: f"n{number}" for number, dataset in enumerate(trace.datasets)}
    between: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for flow in trace.flows:
        between[flow.source, flow.sink].append(flow)
    title = "\n".join(
        [printable(trace.question), *(f"may be incomplete: {printable(p)}" for p in trace.problems)]
    )
    return "".join(
        f"{line}\n"
        for line in (
            "digraph lineage {",
            f'  graph [rankdir=LR, labelloc=t, fontname="Helvetica", label={_quoted(title)}];',
            '  node [style=rounded, fontname="Helvetica"];',
            '  edge [fontname="Helvetica", fontsize=10];',
            *(_node(numbers[dataset.id], dataset) for dataset in trace.datasets),
            *(_edge(numbers[source], numbers[sink], flows) for (source, sink), flows in between.items()),
            "}",
        )
    )


def _node(number: str, dataset: Dataset) -> str:
    lines = [printable(dataset.name), snapshots_text(dataset)]
    label = _quoted("\n".join(line for line in lines if line))
    asked = ", penwidth=2" if is_asked(dataset) else ""
    return f"  {number} [shape={_SHAPES[dataset.kind]}, label={label}{asked}];"


def _edge(source: str, sink: str, flows: list[Flow]) -> str:
    label = _quoted("\n".join(f"{printable(flow.job)} ({commits_text(flow)})" for flow in flows))
    dashed = ", style=dashed" if all(flow.kind == "merge" for flow in flows) else ""
    return f"  {source} -> {sink} [label={label}{dashed}];"


def _quoted(text: str) -> str:
    r"""Quote a string for Graphviz. A backslash would begin an escape such as ``\N``, an ampersand an HTML entity."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("\n", "\\n")
    return f'"{escaped}"'
