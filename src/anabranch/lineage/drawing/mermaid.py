"""Draws a trace as a Mermaid flowchart, which Markdown pages can show."""

from __future__ import annotations

import json
import re
from collections import defaultdict

from anabranch.lineage.drawing.labels import commits_text, is_asked, printable, snapshots_text
from anabranch.lineage.trace import Dataset, Flow, Trace

_SHAPES = {"table": ("[", "]"), "kafka": (">", "]"), "files": ("[(", ")]"), "unknown": ("{{", "}}")}
_MEANINGFUL = re.compile(r"[^\w .,:/=+@()~$-]|(?<=\$)\$|^[-+]|(?<=\d)[.)](?=\s)")
"""Characters with a meaning in Mermaid, HTML or Markdown: ``$$`` begins a formula, ``1. `` a list."""


def as_mermaid(trace: Trace) -> str:
    """Draw a flowchart from left to right: a node for each dataset, an arrow for each pair, labelled with the jobs."""
    numbers = {dataset.id: f"n{number}" for number, dataset in enumerate(trace.datasets)}
    between: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for flow in trace.flows:
        between[flow.source, flow.sink].append(flow)
    asked = [numbers[dataset.id] for dataset in trace.datasets if is_asked(dataset)]
    return "".join(
        f"{line}\n"
        for line in (
            "---",
            f"title: {json.dumps(printable(trace.question))}",  # front matter is YAML, of which JSON is a subset
            "---",
            "flowchart LR",
            *(f"  %% may be incomplete: {_comment(problem)}" for problem in trace.problems),
            *(_node(numbers[dataset.id], dataset) for dataset in trace.datasets),
            *(_edge(numbers[source], numbers[sink], flows) for (source, sink), flows in between.items()),
            *([f"  style {number} stroke-width:3px" for number in asked]),
        )
    )


def _node(number: str, dataset: Dataset) -> str:
    opening, closing = _SHAPES[dataset.kind]
    lines = [_escaped(line) for line in (dataset.name, snapshots_text(dataset)) if line]
    return f'  {number}{opening}"{"<br/>".join(lines)}"{closing}'


def _edge(source: str, sink: str, flows: list[Flow]) -> str:
    label = "<br/>".join(_escaped(f"{flow.job} ({commits_text(flow)})") for flow in flows)
    arrow = "-.->" if all(flow.kind == "merge" for flow in flows) else "-->"
    return f'  {source} {arrow}|"{label}"| {sink}'


def _escaped(text: str) -> str:
    return _MEANINGFUL.sub(lambda found: f"#{ord(found[0])};", printable(text))


def _comment(text: str) -> str:
    return re.sub(r"[^\w .,:/='-]", "?", printable(text))
