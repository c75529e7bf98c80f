"""What is longer than the terminal goes through a pager, as with git: the one that PAGER names, else ``less``."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.cells import cell_len

from anabranch.cli.streams import is_typed

_NONE = ("", "cat")
"""Values of PAGER that mean none."""
_OPTIONS_OF_LESS = "FRX"
"""Show colours, leave the text on the screen, and end by itself where all fits."""


class PagerClosedError(Exception):
    """The person has seen enough."""


class Paged(io.TextIOBase):
    """Standard output that holds back a screen of text, and hands it to a pager if there is more."""

    def __init__(self, to: TextIO, command: str) -> None:
        size = shutil.get_terminal_size()
        self._to = to
        self._command = command
        self._width, self._left = size.columns, size.lines - 1
        self._held: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._to.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._to.fileno()

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # by this, others tell streams of text from streams of bytes
            raise TypeError(f"text is written to a pager, found {type(text).__name__}")
        if self._process is None:
            self._held.append(text)
            self._left -= sum(1 + max(0, cell_len(line) - 1) // self._width for line in text.splitlines())
            if self._left < 0:
                self._open()
        else:
            self._hand_on(text)
        return len(text)

    def finish(self) -> None:
        """Write what is held back, or wait until the pager is left."""
        if self._process is None:
            self._to.write("".join(self._held))
            self._to.flush()
            return
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        while True:
            try:
                self._process.wait()
                return
            except KeyboardInterrupt:
                continue  # in a pager that stops a search; it is left by its own key

    def _open(self) -> None:
        environment = {"LESS": _OPTIONS_OF_LESS, **os.environ}
        self._process = subprocess.Popen(  # noqa: S602 - PAGER is a command line, and the user's own
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            text=True,
            encoding=self._to.encoding,
            errors="backslashreplace",
            env=environment,
        )
        held, self._held = "".join(self._held), []
        self._hand_on(held)

    def _hand_on(self, text: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except OSError:
            raise PagerClosedError from None


def pager() -> str | None:
    """Return the pager's command line, None if there is none or it is not wanted."""
    wanted = os.environ.get("PAGER")
    if wanted is not None:
        return None if wanted.strip() in _NONE else wanted
    return "less" if shutil.which("less") else None


@contextmanager
def paged(*, wanted: bool) -> Iterator[None]:
    """Send what is printed in the block through a pager, if a person looks at it and it is more than a screen."""
    command = pager() if wanted and sys.stdout.isatty() and is_typed() else None
    if command is None:
        yield
        return
    before, out = sys.stdout, Paged(sys.stdout, command)
    sys.stdout = out
    try:
        yield
    except PagerClosedError:
        pass
    finally:
        sys.stdout = before
        out.finish()
