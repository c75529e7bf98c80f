"""Draws a trace as a tree for terminals: under each dataset what its rows became, or came from."""

from __future__ import annotations

import io
from collections import defaultdict

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from anabranch.lineage.drawing.labels import commits_text, printable, snapshots_text
from anabranch.lineage.trace import Dataset, Flow, Trace

_WIDEST = 100_000


def as_tree(trace: Trace) -> Tree:
    """Return a tree that a console prints with colours.

    A dataset reached along several paths is unfolded at its first place; the others refer to it.
    """
    return _Drawing(trace).tree()


def as_text(trace: Trace) -> str:
    """Return the tree as text without colours, however long its lines."""
    page = io.StringIO()
    Console(file=page, width=_WIDEST, color_system=None, legacy_windows=False).print(as_tree(trace))
    return "".join(line.rstrip() + "\n" for line in page.getvalue().splitlines())


def is_upstream(trace: Trace) -> bool:
    """Whether the flows lead towards what was asked about, not away from it."""
    depths = {dataset.id: dataset.depth for dataset in trace.datasets}
    towards = sum(depths[flow.sink] < depths[flow.source] for flow in trace.flows)
    return towards > sum(depths[flow.source] < depths[flow.sink] for flow in trace.flows)


class _Drawing:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._upstream = is_upstream(trace)
        self._datasets = {dataset.id: dataset for dataset in trace.datasets}
        self._met: set[str] = set()
        self._flows: dict[str, list[Flow]] = defaultdict(list)
        for flow in trace.flows:
            self._flows[flow.sink if self._upstream else flow.source].append(flow)

    def tree(self) -> Tree:
        top = Tree(Text(printable(self._trace.question), style="bold"), guide_style="dim")
        by_depth = sorted(self._trace.datasets, key=lambda dataset: dataset.depth)  # stable: then as they are
        for dataset in by_depth:
            if dataset.depth == 0 or dataset.id not in self._met:
                self._add(top, dataset)
        for problem in self._trace.problems:
            top.add(Text(f"may be incomplete: {printable(problem)}", style="yellow"))
        return top

    def _add(self, above: Tree, first: Dataset) -> None:
        """Add a dataset and everything below it; without recursion, because chains may be long."""
        waiting: list[tuple[Tree, Dataset, Flow | None]] = [(above, first, None)]
        while waiting:
            node, dataset, flow = waiting.pop()
            again = dataset.id in self._met and bool(self._flows[dataset.id])
            branch = node.add(self._label(dataset, flow, again=again))
            if dataset.id in self._met:
                continue
            self._met.add(dataset.id)
            waiting += [
                (branch, self._datasets[found.source if self._upstream else found.sink], found)
                for found in reversed(self._flows[dataset.id])
            ]

    def _label(self, dataset: Dataset, flow: Flow | None, *, again: bool) -> Text:
        label = Text()
        if flow is not None:
            label.append(f"{'◂' if self._upstream else '▸'} ", style="dim")
            label.append(printable(flow.job), style="magenta" if flow.kind == "merge" else "cyan")
            label.append(f" ({commits_text(flow)}) ", style="dim")
            label.append("◂ " if self._upstream else "▸ ", style="dim")
        label.append(printable(dataset.name), style="bold")
        about = snapshots_text(dataset)
        if about:
            label.append(f"  {about}", style="green")
        if again:
            label.append("  (see above)", style="dim")
        return label
