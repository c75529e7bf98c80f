"""Processes as others can find out whether they are alive."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as others can find out whether it is alive."""

    host: str
    pid: int
    born: str | None
    """Which of the processes that have had this number; None where that cannot be told."""
    space: str | None
    """Where the number counts: the machine since its last start, and the container. None if unknown."""

    @classmethod
    def own(cls) -> Self:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), _born(os.getpid()), _space())

    def is_dead(self) -> bool | None:
        """Whether it is gone; None if that cannot be told from here."""
        if self.space is None or self.space != _space():
            return None
        return self.born is None or _born(self.pid) != self.born

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Read what `asdict` gives. Raises `KeyError` or `TypeError` if it is something else."""
        host, pid = of_kind(str, values["host"]), of_kind(int, values["pid"])
        born, space = (
            None if values[name] is None else of_kind(str, values[name]) for name in ("born", "space")
        )
        return cls(host, pid, born, space)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "an unknown process"


_MOST: Final = 253_402_300_799_999
"""Milliseconds until the end of the year 9999; nothing that is counted here is as large."""
UNKNOWN: Final = Process("?", 0, None, None)
"""The process of a record that cannot be read."""


def of_kind(kind: type[T], value: object) -> T:
    """Return a value that was read from JSON. Raises `TypeError` if it is of another kind, `ValueError` if it is too large."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind}")
    if isinstance(value, int) and abs(value) > _MOST:
        raise ValueError("the number is too large")
    return value


def _born(pid: int) -> str | None:
    """Return when a process was started, as the kernel counts; None if it is gone, or the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if words[0] == "Z" else words[19]


def _space() -> str | None:
    """Return the machine's last start and the container: where the number of a process means the same one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None
