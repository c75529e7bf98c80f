"""Draws a trace as a self-contained SVG: boxes of datasets, and arrows with the jobs on them.

Colours follow the viewer's light or dark scheme, on a background of its own, so that it can be read anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape

from anabranch.lineage.drawing.labels import (
    commits_text,
    is_asked,
    printable,
    shortened,
    snapshots_text,
    width,
)
from anabranch.lineage.drawing.layers import DrawnLayout, Node, NodePlace, layout
from anabranch.lineage.trace import Dataset, Flow, Trace

_COLUMN = 7.3
"""Pixels per character of the font, slightly more than it needs."""
_LINE, _PAD, _MARGIN = 16, 10, 20
_MOST = 44
"""Columns of a text in a box; the full text is a tooltip."""

_STYLE = """
.page { fill: #ffffff } text { fill: #1f2328; font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.title { font-weight: bold } .about { fill: #57606a } .problem { fill: #9a6700 }
.box { fill: #eef6f5; stroke: #1f7a70; stroke-width: 1.2 } .source .box { fill: #f3f0fa; stroke: #6e56a8 }
.asked .box { stroke-width: 3 } .job .box { fill: #ffffff; stroke: #8c959f } .merge .box { stroke-dasharray: 4 3 }
.arrow { fill: none; stroke: #8c959f; stroke-width: 1.4 } .dashed { stroke-dasharray: 5 4 } .head { fill: #8c959f }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .about { fill: #9198a1 } .problem { fill: #d29922 }
.box { fill: #12302d; stroke: #4fb3a5 } .source .box { fill: #2a2440; stroke: #a48fe0 }
.job .box { fill: #0d1117; stroke: #6e7681 } .arrow { stroke: #6e7681 } .head { fill: #6e7681 }
}
""".strip()
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>'
)


def as_svg(trace: Trace) -> str:
    """Draw the trace from left to right.

    A job stands before its sink, as a label through which the arrows from all its sources pass. What is asked about
    has a thick border; what only merged a branch is dashed.
    """
    return _Picture(trace).text()


class _Picture:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._jobs: dict[tuple[str, str, str], list[Flow]] = defaultdict(list)
        """Flows by job, kind and sink: one for each source."""
        for flow in trace.flows:
            self._jobs[flow.job, flow.kind, flow.sink].append(flow)

    def text(self) -> str:
        placed = self._layout()
        titles = [
            printable(self._trace.question),
            *(f"may be incomplete: {printable(p)}" for p in self._trace.problems),
        ]
        head = _LINE * len(titles) + _PAD
        across = max(placed.width, *(_text_width(shortened(title, 120)) for title in titles)) + 2 * _MARGIN
        down = placed.height + head + 2 * _MARGIN
        size = f'width="{across:.0f}" height="{down:.0f}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {across:.0f} {down:.0f}" role="img">',
            f"<title>{escape(titles[0])}</title>",
            f"<style>{_STYLE}</style>",
            _HEAD,
            f'<rect class="page" {size}/>',
            *(
                _line(
                    _MARGIN, _MARGIN + _LINE * number + 10, title, "title" if number == 0 else "problem", 120
                )
                for number, title in enumerate(titles)
            ),
            f'<g transform="translate({_MARGIN} {_MARGIN + head})">',
            *self._arrows(placed),
            *(
                self._dataset(dataset, placed.places["dataset", dataset.id])
                for dataset in self._trace.datasets
            ),
            *(self._job(key, flows, placed.places["job", key]) for key, flows in self._jobs.items()),
            "</g>",
            "</svg>",
        ]
        return "".join(f"{line}\n" for line in lines)

    def _layout(self) -> DrawnLayout:
        by_sink: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for key in self._jobs:
            by_sink[key[2]].append(key)
        sizes: dict[Node, tuple[float, float]] = {}
        for dataset in self._trace.datasets:  # jobs right before their sinks: then arrows go forward
            for key in by_sink[dataset.id]:
                sizes["job", key] = _size([_job_label(key), _commits(self._jobs[key])])
            sizes["dataset", dataset.id] = _size(_dataset_lines(dataset))
        arrows: list[tuple[Node, Node]] = []
        for key, flows in self._jobs.items():
            arrows += [(("dataset", flow.source), ("job", key)) for flow in flows]
            arrows.append((("job", key), ("dataset", key[2])))
        return layout(sizes, arrows, column_gap=46, row_gap=18)

    def _arrows(self, placed: DrawnLayout) -> list[str]:
        drawn = []
        for (start, end), points in placed.ways.items():
            assert isinstance(start, tuple) and isinstance(end, tuple), "nodes are pairs"  # noqa: PT018
            key = start[1] if start[0] == "job" else end[1]
            dashed = " dashed" if key[1] == "merge" else ""
            marker = ' marker-end="url(#head)"'
            drawn.append(f'<path class="arrow{dashed}" d="{_curve(points)}"{marker}/>')
        return drawn

    def _dataset(self, dataset: Dataset, place: NodePlace) -> str:
        kinds = [
            "dataset",
            *(["asked"] if is_asked(dataset) else []),
            *(["source"] if dataset.kind != "table" else []),
        ]
        whole = "\n".join(
            line for line in (printable(dataset.name), snapshots_text(dataset, most=None)) if line
        )
        return _box(place, _dataset_lines(dataset), " ".join(kinds), whole, rounding=4)

    def _job(self, key: tuple[str, str, str], flows: list[Flow], place: NodePlace) -> str:
        lines = [_job_label(key), _commits(flows)]
        return _box(place, lines, f"job {key[1]}", printable(key[0]), rounding=place.height / 2)


def _dataset_lines(dataset: Dataset) -> list[str]:
    lines = [printable(dataset.name), snapshots_text(dataset)]
    return [shortened(line, _MOST) for line in lines if line]


def _job_label(key: tuple[str, str, str]) -> str:
    return shortened(printable(key[0]), _MOST)


def _commits(flows: list[Flow]) -> str:
    return commits_text(max(flows, key=lambda flow: flow.commits))


def _size(lines: list[str]) -> tuple[float, float]:
    return max(_text_width(line) for line in lines) + 2 * _PAD + 4, len(lines) * _LINE + _PAD


def _text_width(text: str) -> float:
    return width(text) * _COLUMN


def _box(place: NodePlace, lines: list[str], kinds: str, whole: str, *, rounding: float) -> str:
    top = place.y - place.height / 2
    texts = "".join(
        _line(
            place.x + place.width / 2,
            top + _PAD / 2 + 12 + _LINE * number,
            line,
            "" if number == 0 else "about",
            _MOST,
            middle=True,
        )
        for number, line in enumerate(lines)
    )
    return (
        f'<g class="{kinds}"><title>{escape(whole)}</title><rect class="box" x="{place.x:.1f}" y="{top:.1f}" '
        f'width="{place.width:.1f}" height="{place.height:.1f}" rx="{rounding:.1f}"/>{texts}</g>'
    )


def _line(x: float, y: float, text: str, kind: str, most: int, *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(shortened(text, most))}</text>'


def _curve(points: tuple[tuple[float, float], ...]) -> str:
    """Return an SVG path: straight through columns, curved between them."""
    (x, y), *others = points
    d = f"M{x:.1f} {y:.1f}"
    for number, (to_x, to_y) in enumerate(others):
        if number % 2:
            half = (x + to_x) / 2
            d += f"C{half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        else:
            d += f"L{to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    return d
