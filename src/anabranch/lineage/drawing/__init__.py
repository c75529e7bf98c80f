"""Drawings of a `Trace`: for terminals, programs, Graphviz, Mermaid, and as a self-contained SVG.

    drawn(trace, "mermaid")

All are pure functions: the same trace gives the same text. Names may hold any character. One that a format cannot
show, such as a line end in a name, is written as an escape; JSON has it unchanged.
"""

from __future__ import annotations

import json

from anabranch.errors import InvalidInputError, nearest
from anabranch.lineage.trace import Trace

FORMATS = ("tree", "json", "dot", "mermaid", "svg")
"""Names of the formats."""


def drawn(trace: Trace, format: str) -> str:
    """Draw a trace as text of a format, ending with a line end. Raises `InvalidInputError` for an unknown format."""
    match format:
        case "tree":
            from anabranch.lineage.drawing.tree import as_text

            return as_text(trace)
        case "json":
            return json.dumps(trace.to_dict(), ensure_ascii=False, indent=2) + "\n"
        case "dot":
            from anabranch.lineage.drawing.graphs import as_dot

            return as_dot(trace)
        case "mermaid":
            from anabranch.lineage.drawing.graphs import as_mermaid

            return as_mermaid(trace)
        case "svg":
            from anabranch.lineage.drawing.svg import as_svg

            return as_svg(trace)
    near = nearest(format, FORMATS)
    raise InvalidInputError(
        f"there is no drawing of format '{format}'",
        hint=(f"did you mean '{near}'? " if near else "") + f"There are: {', '.join(FORMATS)}.",
    )
