"""Progress of long work: what is done, how much of it, how fast, and how long the rest takes.

Work reports its steps with `step`; who wants to see them says so with `progress`. Nobody is told anything otherwise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from anabranch.runtime import SYSTEM, Clock

_FIRST_AFTER = 0.5
"""Seconds of work before it is shown at all."""
_EVERY = 0.2
_SHOWN: ContextVar[_Display | None] = ContextVar("anabranch_progress", default=None)

Show = Callable[[str], None]
"""Shows a line in place of the one before; an empty one takes it away."""


@dataclass
class Step:
    """A part of the work, as far as it has come."""

    title: str
    unit: str
    total: int | None
    begun: float
    done: int = 0

    def text(self, now: float) -> str:
        """Return what is shown, such as ``compact db.t: 12 of 40 files (30%), 2.1/s, 13 s left``."""
        seconds = now - self.begun
        rate = self.done / seconds if seconds > 0 else 0.0
        if self.total is None:
            parts = [f"{self.title}: {self.done:,} {self.unit}"]
        else:
            share = 100 * self.done // self.total if self.total else 100
            parts = [f"{self.title}: {self.done:,} of {self.total:,} {self.unit} ({share}%)"]
        if rate:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        if rate and self.total is not None and self.done < self.total:
            parts.append(f"{_duration((self.total - self.done) / rate)} left")
        return ", ".join(parts)


@dataclass
class _Display:
    """Where steps are shown, the outer before those inside of it."""

    show: Show
    clock: Clock = SYSTEM.clock
    steps: list[Step] = field(default_factory=list)
    shown_at: float | None = None

    def update(self) -> None:
        now = self.clock.monotonic()
        if not self.steps or now - self.steps[0].begun < _FIRST_AFTER:
            return
        if self.shown_at is None or now - self.shown_at >= _EVERY:
            self.shown_at = now
            self.show("; ".join(step.text(now) for step in self.steps))

    def end(self) -> None:
        if self.shown_at is not None:
            self.show("")


@contextmanager
def step(title: str, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Report a step of the work: call the result with how many more are done.

    Args:
        title: what is done.
        unit: what is counted.
        total: how many there are, if that is known.
    """
    display = _SHOWN.get()
    if display is None:
        yield _nothing
        return
    found = Step(title, unit, total, display.clock.monotonic())
    display.steps.append(found)

    def advance(count: int) -> None:
        found.done += count
        display.update()

    try:
        yield advance
    finally:
        if found in display.steps:  # a generator may be closed late
            display.steps.remove(found)


def is_shown() -> bool:
    """Whether anybody looks, so that finding out a total is worth it."""
    return _SHOWN.get() is not None


@contextmanager
def progress(show: Show | None = None, *, clock: Clock = SYSTEM.clock) -> Iterator[None]:
    """Show the progress of everything long that is done in the block, by this thread.

        with anabranch.progress():
            table.append(reader)
            table.compact()

    In a notebook it is shown below the cell, else on one line of standard error if that is a terminal.

    Args:
        show: takes each line instead, such as ``print``; the last is empty.
        clock: tells how long things take.

    Example:
        >>> with anabranch.progress():
        ...     rows = table.scan().to_arrow()
    """
    display = show or _place()
    if display is None:
        yield
        return
    made = _Display(display, clock)
    token = _SHOWN.set(made)
    try:
        yield
    finally:
        _SHOWN.reset(token)
        made.end()


def _nothing(_count: int) -> None:
    pass


def _place() -> Show | None:
    if _in_notebook():
        return _Notebook().show
    return _on_terminal if sys.stderr.isatty() else None


def _on_terminal(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text[: _columns()]}")
    sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1 or 79
    except (OSError, ValueError):
        return 79


def _in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this: the terminal of IPython is a terminal."""
    shell = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    return get is not None and type(get()).__name__ == "ZMQInteractiveShell"


class _Notebook:
    """One line below a cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        line = {"text/plain": text}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 90:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 5_400 else f"{whole / 3600:.1f} h"
