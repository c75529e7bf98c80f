"""The command that corrects, as a process of its own: started, listened to, and stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch import CommitConflictError

_MOST_LINES: Final = 2_000
_SECONDS_TO_STOP: Final = 20


@dataclass
class Running:
    """One run of the command."""

    what: str
    table: str
    tag: str
    process: subprocess.Popen[str]
    millis: int
    tables: Sequence[str] = ()
    """Those whose main it changes, as the person confirmed them."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    stops: int = 0

    def told(self) -> dict[str, Any]:
        """Return how it stands."""
        return {
            "what": self.what,
            "table": self.table,
            "tag": self.tag,
            "millis": self.millis,
            "tables": list(self.tables),
            "lines": list(self.lines),
            "exit": self.process.poll(),
            "stopped": self.stops > 0,
        }


class Actions:
    """The command that runs, or ran last. There is only one at a time."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._last: Running | None = None
        self._lock = threading.Lock()

    @property
    def process_id(self) -> int | None:
        """Number of the process of the last command."""
        return None if self._last is None else self._last.process.pid

    def told(self) -> dict[str, Any] | None:
        """Return how the last command stands; None if there was none."""
        return None if self._last is None else self._last.told()

    def start(
        self, words: Sequence[str], what: str, table: str, tag: str, *, tables: Sequence[str], millis: int
    ) -> dict[str, Any]:
        """Start a command line that does something with tables. Raises `CommitConflictError` if one is running."""
        with self._lock:
            if self._last is not None and self._last.process.poll() is None:
                raise CommitConflictError(
                    f"a correction of {self._last.table} is running", hint="wait for its end, or stop it."
                )
            process = subprocess.Popen(  # noqa: S603 - our own command, and no shell
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
            self._last = Running(what, table, tag, process, millis, tuple(tables))
            threading.Thread(target=_listen, args=(self._last,), daemon=True).start()
            return self._last.told()

    def stop(self) -> dict[str, Any] | None:
        """Ask the command to stop after what it is at; asked again, kill it."""
        with self._lock:
            last = self._last
            if last is not None and last.process.poll() is None:
                last.stops += 1
                last.process.kill() if last.stops > 1 else last.process.terminate()
        return self.told()

    def close(self) -> None:
        """Stop the command, and wait for it, when the server ends."""
        last = self._last
        if last is None or last.process.poll() is not None:
            return
        last.process.terminate()
        try:
            last.process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            last.process.kill()


def command(
    warehouse: str,
    what: str,
    table: str,
    tag: str,
    *,
    jobs: Sequence[str],
    checks: Sequence[str],
    tables: Sequence[str] = (),
) -> list[str]:
    """Return the command line, for the tables that were confirmed. What comes from the page cannot be taken for an option."""
    given = [*(f"--jobs={file}" for file in jobs), *(f"--checks={file}" for file in checks)]
    given += [f"--only={name}" for name in tables]
    verb = ["correct", f"--from-tag={tag}", f"--{what}", "--yes", *(given if what == "run" else [])]
    return [sys.executable, "-m", "anabranch", f"--warehouse={warehouse}", *verb, "--", table]


def _listen(running: Running) -> None:
    assert running.process.stdout is not None, "it is a pipe"
    with running.process.stdout as said:
        for line in said:
            running.lines.append(line.rstrip("\n"))
    running.process.wait()
