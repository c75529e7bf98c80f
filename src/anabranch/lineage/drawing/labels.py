"""Text shared by all drawings: printable names, ranges of snapshots, and the width of a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from anabranch.lineage.trace import Dataset, Flow, Range

_FEW = 4
"""Ranges shown one by one; of more, only the first and last ones."""


def printable(text: str) -> str:
    """Return a text on one line: line ends, control characters and invisible marks as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def ranges_text(ranges: Sequence[Range], *, most: int | None = _FEW) -> str:
    """Format ranges as ``5..9, 12``; of many, only the outer ones and the count, unless `most` is None."""
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in ranges]
    if most is None or len(shown) <= most:
        return ", ".join(shown)
    return f"{', '.join(shown[: most - 1])}, ..., {shown[-1]} ({len(shown)} ranges)"


def is_asked(dataset: Dataset) -> bool:
    """Whether the question was about this dataset; never in an answer about whole tables."""
    return dataset.depth == 0 and bool(dataset.snapshots)


def snapshots_text(dataset: Dataset, *, most: int | None = _FEW) -> str:
    """Return ``snapshots 5..9, 12``, or the kind of source if it has no snapshots; empty for a whole table."""
    if dataset.kind != "table":
        return {"kafka": "topic of Kafka", "files": "files"}.get(dataset.kind, "unknown source")
    if not dataset.snapshots:
        return ""
    one = len(dataset.snapshots) == 1 and dataset.snapshots[0][0] == dataset.snapshots[0][1]
    return f"snapshot{'' if one else 's'} {ranges_text(dataset.snapshots, most=most)}"


def commits_text(flow: Flow) -> str:
    """Return ``1 commit``, ``12 commits``."""
    return f"{flow.commits:,} commit{'' if flow.commits == 1 else 's'}"


def width(text: str) -> int:
    """Return the width of a text in columns: two for East Asian wide characters, none for combining marks."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shortened(text: str, columns: int) -> str:
    """Shorten a text to that width; the middle is left out, because names differ at their ends."""
    if width(text) <= columns:
        return text
    head, tail = (columns - 1) // 2, columns - 1 - (columns - 1) // 2
    return f"{_prefix(text, head)}…{_prefix(text[::-1], tail)[::-1]}"


def _prefix(text: str, columns: int) -> str:
    used = 0
    for place, c in enumerate(text):
        used += width(c)
        if used > columns:
            return text[:place]
    return text
