"""The words that all drawings share: names made printable, ranges of snapshots, and how wide a text is."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from anabranch.lineage.trace import Dataset, Flow, Range

_FEW = 4
"""Ranges that are shown one by one; of more, the first and the last ones."""


def printable(text: str) -> str:
    """A text of one line: line ends, signs for terminals and invisible marks as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def ranges_text(ranges: Sequence[Range], *, most: int | None = _FEW) -> str:
    """``5..9, 12``; of many ranges the outer ones and how many there are, unless `most` is None."""
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in ranges]
    if most is None or len(shown) <= most:
        return ", ".join(shown)
    return f"{', '.join(shown[: most - 1])}, ..., {shown[-1]} ({len(shown)} ranges)"


def is_asked(dataset: Dataset) -> bool:
    """Whether it is what the question was about; in an answer about whole tables none is."""
    return dataset.depth == 0 and bool(dataset.snapshots)


def snapshots_text(dataset: Dataset, *, most: int | None = _FEW) -> str:
    """``snapshots 5..9, 12``, or what it is that has no snapshots; empty for a whole table."""
    if dataset.kind != "table":
        return {"kafka": "topic of Kafka", "files": "files"}.get(dataset.kind, "unknown source")
    if not dataset.snapshots:
        return ""
    one = len(dataset.snapshots) == 1 and dataset.snapshots[0][0] == dataset.snapshots[0][1]
    return f"snapshot{'' if one else 's'} {ranges_text(dataset.snapshots, most=most)}"


def commits_text(flow: Flow) -> str:
    """``1 commit``, ``12 commits``."""
    return f"{flow.commits:,} commit{'' if flow.commits == 1 else 's'}"


def width(text: str) -> int:
    """Columns of a font of one width: two for the wide characters of East Asia, none for marks that combine."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shortened(text: str, columns: int) -> str:
    """A text that is no wider; what is left out is the middle, because names differ at their ends."""
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
