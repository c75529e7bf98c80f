"""What a verb answers: a value for programs, the same for people, and rows for SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.runtime import SYSTEM


@dataclass(frozen=True)
class Grid:
    """Rows under a header."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    grouped: bool = True
    """Write digits of whole numbers in groups of three."""
    style: Callable[[Sequence[Any]], dict[int, str]] | None = None
    """Returns the styles of the cells of a row, by their place, for a terminal."""
    right: Sequence[int] = ()
    """Columns with numbers, where there is a style."""
    on_terminal: Grid | None = None
    """What is shown on a terminal instead, of 80 columns; a pipe and JSON have all in full."""


@dataclass(frozen=True)
class Pairs:
    """Names and values, one a line."""

    pairs: Iterable[tuple[str, Any]]
    grouped: bool = True


@dataclass(frozen=True)
class Line:
    """A line in a style: ``bold``, ``dim``, ``green``, ``red``."""

    text: str
    style: str = ""
    folded: bool = True
    """Fold it where a terminal ends."""
    mark: tuple[str, str] = ("", "")
    """What stands before it, and the style of that."""


@dataclass(frozen=True)
class Branching:
    """Something with what hangs on it, as a drawing."""

    top: str
    branches: Iterable[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Note:
    """Something that is said beside the output, on standard error."""

    text: str


@dataclass(frozen=True)
class Cut:
    """There are more rows than were shown."""

    shown: Callable[[], int | None]
    """Returns how many were shown, once they were; None if these are all."""


@dataclass(frozen=True)
class Sample:
    """A value as JSON, behind a name."""

    name: str
    value: Any


@dataclass(frozen=True)
class Document:
    """A document for another program, as it is."""

    text: str


@dataclass(frozen=True)
class Rich:
    """Something that the library rich draws."""

    drawn: Any


@dataclass(frozen=True)
class Watched:
    """Answers that come again and again until an interrupt; on a terminal each takes the place of the one before."""

    answers: Iterable[Answer]


Shown = str | Grid | Pairs | Line | Branching | Note | Cut | Sample | Document | Rich | Watched


@dataclass(frozen=True)
class Lines:
    """A value of which programs get each part as an object of its own, as it comes."""

    parts: Iterable[Any]


@dataclass(frozen=True, init=False)
class Answer:
    """Answer of a verb."""

    value: Any
    """What programs get as JSON; None for nothing."""
    shown: tuple[Shown | Iterable[Shown], ...]
    """What people see instead."""
    rows: Iterable[tuple[Any, ...]]
    """Rows of the procedure."""
    code: int
    """Exit code of the command."""
    error: Exception | None
    """What a procedure raises instead."""
    moment: object
    """The moment in the past that was found, which is said beside the output."""

    def __init__(
        self,
        value: Any,
        *shown: Shown | Iterable[Shown],
        rows: Iterable[tuple[Any, ...]] = (),
        code: int = 0,
        error: Exception | None = None,
        moment: object = None,
    ) -> None:
        for name, given in locals().copy().items():
            if name != "self":
                object.__setattr__(self, name, given)


def moment(millis: int | None) -> str:
    """Return epoch milliseconds as UTC text; empty for None."""
    if millis is None:
        return ""
    try:
        moment_utc = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
    except (ValueError, OverflowError):  # event times may lie anywhere
        return f"{millis:,} ms"
    return moment_utc.strftime("%Y-%m-%d %H:%M:%S.") + f"{millis % 1000:03d}Z"


def wall_time(millis: int | None) -> str:
    """Return what a clock on somebody's wall said, as text without a zone; empty for None."""
    return moment(millis).removesuffix("Z")


def ago(millis: int) -> str:
    """Return how long a moment is past, in one unit, such as ``41 s``."""
    return _duration(max(0, SYSTEM.clock.now_millis() - millis) / 1000)


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def late(behind: Mapping[str, LagOfJob]) -> str:
    """Return how far somebody is behind tables, such as ``db.raw: 2 (4 s)``."""
    return ", ".join(
        f"{name}: {f'{one.snapshots:,} ({_duration(one.seconds)})' if one.snapshots else '0'}"
        for name, one in behind.items()
    )


class LagOfJob(Protocol):
    """How far somebody is behind a table."""

    @property
    def snapshots(self) -> int: ...

    @property
    def seconds(self) -> float:
        """Since the first snapshot that has not been read."""
        ...
