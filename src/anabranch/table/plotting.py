"""Charts of a table: how large its partitions are, what was committed when, how far its watermark lags.

Bars as SVG, which notebooks show, and as text elsewhere; nothing has to be installed for them.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.kernel.repair.health import size_text

if TYPE_CHECKING:
    from anabranch.table.reading import ReadMethods

_MOST_BARS = 30
_WIDTH, _ROW, _TEXT = 760, 20, 250
_TEXT_BARS = 30


@dataclass(frozen=True)
class Chart:
    """Bars with names and values. Notebooks show it as a picture, terminals as text."""

    title: str
    bars: tuple[tuple[str, float, str], ...]
    """Name, value, and the value as it is shown."""

    def __repr__(self) -> str:
        most = max((value for _, value, _ in self.bars), default=0)
        names = [_printable(name) for name, _, _ in self.bars]
        width = max(map(len, names), default=0)
        lines = [
            f"{name:<{width}}  {'█' * _scaled(value, most, _TEXT_BARS):<{_TEXT_BARS}}  {shown}".rstrip()
            for name, (_, value, shown) in zip(names, self.bars, strict=True)
        ]
        return "\n".join([self.title, *(lines or ["(nothing yet)"])])

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return the picture: as wide as its place, in the colour of the text around it, with values as tooltips."""
        most = max((value for _, value, _ in self.bars), default=0)
        height = _ROW * (len(self.bars) + 2)
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" '
            f'style="max-width:{_WIDTH}px" font-family="sans-serif" font-size="12" fill="currentColor" role="img" '
            f'aria-label="{_escaped(self.title)}">'
        )
        parts = [begin, f'<text x="0" y="14" font-weight="bold">{_escaped(self.title)}</text>']
        for number, (name, value, shown) in enumerate(self.bars):
            top = _ROW * (number + 1) + 6
            length = _scaled(value, most, _WIDTH - _TEXT - 110)
            label = name if len(name) <= 38 else f"{name[:18]}…{name[-18:]}"
            parts += [
                f"<g><title>{_escaped(f'{name}: {shown}')}</title>",
                f'<text x="{_TEXT - 8}" y="{top + 12}" text-anchor="end">{_escaped(label)}</text>',
                f'<rect x="{_TEXT}" y="{top}" width="{max(length, 1)}" height="{_ROW - 5}" fill="#4c78a8" rx="2"/>',
                f'<text x="{_TEXT + max(length, 1) + 6}" y="{top + 12}">{_escaped(shown)}</text></g>',
            ]
        return "".join([*parts, "</svg>"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, such as ``sizes.svg``."""
        Path(path).write_text(self.svg(), encoding="utf-8")


def plot(table: ReadMethods, what: str) -> Chart:
    """Return a chart of a table. Raises `InvalidInputError` for one that there is not."""
    made = _CHARTS.get(what)
    if made is None:
        raise InvalidInputError(
            f"there is no chart '{what}'", hint=f"charts there are: {', '.join(_CHARTS)}."
        )
    return made(table)


def _sizes(table: ReadMethods) -> Chart:
    rows = table.system("partitions").select(["partition", "file_size_in_bytes"]).to_pylist()
    sizes = sorted(((r["file_size_in_bytes"], r["partition"] or "(all rows)") for r in rows), reverse=True)
    shown = sizes[: _MOST_BARS if len(sizes) <= _MOST_BARS else _MOST_BARS - 1]
    rest = sizes[len(shown) :]
    if rest:
        shown.append((sum(size for size, _ in rest), f"({len(rest):,} smaller)"))
    return Chart(f"Size of {table.name}", tuple((name, float(size), size_text(size)) for size, name in shown))


def _commits(table: ReadMethods) -> Chart:
    rows = table.system("snapshots").select(["commit_time", "delta_record_count", "commit_kind"]).to_pylist()
    added = [
        (row["commit_time"], max(0, row["delta_record_count"] or 0))
        for row in reversed(rows)
        if row["commit_kind"] in ("APPEND", "OVERWRITE")
    ]
    title = f"Rows added to {table.name}"
    if not added:
        return Chart(title, ())
    first, last = min(time for time, _ in added), max(time for time, _ in added)
    step = _step((last - first) / _MOST_BARS)
    begin = int(first.timestamp() // step)
    found: dict[int, list[int]] = {}
    for time, count in added:
        found.setdefault(int(time.timestamp() // step), []).append(count)
    pattern = "%Y-%m-%d" if step >= 86_400 else "%Y-%m-%d %H:%M:%S"
    bars = []
    for number in range(begin, int(last.timestamp() // step) + 1):
        counts = found.get(number, [])
        name = dt.datetime.fromtimestamp(number * step, dt.UTC).strftime(pattern)
        bars.append(
            (name, float(sum(counts)), f"{_number(sum(counts), 'row')}, {_number(len(counts), 'commit')}")
        )
    return Chart(title, tuple(bars))


def _number(count: int, of: str) -> str:
    return f"{count:,} {of}" if count == 1 else f"{count:,} {of}s"


def _lag(table: ReadMethods) -> Chart:
    rows = table.system("snapshots").select(["snapshot_id", "commit_time", "watermark"]).to_pylist()
    lags = [
        (row["snapshot_id"], row["commit_time"].timestamp() - row["watermark"] / 1000)
        for row in reversed(rows)
        if row["watermark"] is not None
    ][-_MOST_BARS:]
    return Chart(
        f"How far the watermark of {table.name} was behind",
        tuple((f"snapshot {number}", max(0.0, lag), _duration(lag)) for number, lag in lags),
    )


_CHARTS: dict[str, Callable[[ReadMethods], Chart]] = {"sizes": _sizes, "commits": _commits, "lag": _lag}
_STEPS: Sequence[int] = (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000)


def _step(wanted: dt.timedelta) -> int:
    """Return the seconds of a bar, so that there are not too many."""
    return next((step for step in _STEPS if step >= wanted.total_seconds()), 315_360_000)


def _escaped(text: str) -> str:
    """Return text for XML, which has no signs for terminals."""
    return html.escape(_printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _scaled(value: float, most: float, width: int) -> int:
    return round(width * value / most) if most > 0 else 0


def _duration(seconds: float) -> str:
    if seconds < 0:
        return f"{-seconds:,.0f} s ahead"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"
