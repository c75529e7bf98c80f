"""Lines over time as SVG, without anything but text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 880, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 110, 34, 40
COLOURS = ("#00796b", "#c2185b", "#5d4037")


@dataclass(frozen=True)
class Panel:
    """Lines by name; all axes begin at 0."""

    title: str
    unit: str
    """What runs along the horizontal axis."""
    lines: Mapping[str, Sequence[tuple[float, float]]]


def write_plot(path: Path, panels: Sequence[Panel]) -> None:
    """Write the panels one below the other."""
    body = "\n".join(_panel(panel, HEIGHT * number) for number, panel in enumerate(panels))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(panels)}" '
        f'font-family="system-ui, sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT * len(panels)}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _panel(panel: Panel, top: int) -> str:
    points = [point for line in panel.lines.values() for point in line]
    x_step, x_end = _scale(max(x for x, _ in points))
    y_step, y_end = _scale(max(y for _, y in points))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + width * x / x_end, TOP + height * (1 - y / y_end)

    parts = [f'<text x="{LEFT}" y="20" font-size="14" fill="#222">{panel.title}</text>']
    for i in range(round(y_end / y_step) + 1):
        _, y = place(0, i * y_step)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{LEFT + width}" stroke="#e0e0e0"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{i * y_step:g}</text>'
        )
    for i in range(round(x_end / x_step) + 1):
        x, _ = place(i * x_step, 0)
        label = f"{i * x_step:g}" + (f" {panel.unit}" if i == 0 else "")
        parts.append(
            f'<text x="{x:.1f}" y="{TOP + height + 18}" text-anchor="middle" fill="#555">{label}</text>'
        )
    for (name, line), colour in zip(panel.lines.items(), COLOURS, strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        x, y = place(*line[-1])
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    return f'<g transform="translate(0 {top})">\n' + "\n".join(parts) + "\n</g>"


def _scale(most: float) -> tuple[float, float]:
    """A round step, and the end of an axis that some of them reach."""
    power = 10 ** math.floor(math.log10(most or 1))
    step = next(s * power for s in (0.2, 0.5, 1.0, 2.0) if most <= 6 * s * power)
    return step, step * math.ceil(most / step)
