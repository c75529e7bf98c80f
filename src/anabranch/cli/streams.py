"""The standard streams of the process: closed ones lead nowhere, and output that is lost is known at the end."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TextIO, TypeVar

from anabranch.cli import state


class _Output(io.TextIOWrapper):
    """Standard output. Where it can no longer be written, what only prints ends, and what changes something goes on."""

    lost: OSError | None = None
    """Why it could not be written; what comes after that goes nowhere."""

    def write(self, text: str) -> int:
        if self.lost is None:
            try:
                return super().write(text)
            except OSError as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        if self.lost is None:
            try:
                super().flush()
            except OSError as error:
                self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost = error
        lead_nowhere(self.fileno())
        if not state.changes:
            raise error


class _Errors(io.TextIOWrapper):
    """Standard error. Where it cannot be written nobody can be told so, and it is no reason to fail."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


_Stream = TypeVar("_Stream", _Output, _Errors)
_opened: list[_Output] = []
"""Standard output of this process, once it was made ready; typer may put another object in its place."""


def make_ready() -> None:
    """Give the process standard streams that can be used, whatever it was started with.

    ``sys.stdin`` stays None where it was closed: who reads it is told so, in place of reading no rows.
    """
    _fill()
    if _can_be_replaced(sys.stdout):
        _opened[:] = [_over(sys.stdout, _Output)]
        sys.stdout = _opened[0]
    if _can_be_replaced(sys.stderr):
        sys.stderr = _over(sys.stderr, _Errors)


def lost() -> OSError | None:
    """Return why standard output could not be written, None where it could."""
    return _opened[0].lost if _opened else None


def finish() -> None:
    """Write what is held back of the output; what cannot be written is then `lost`."""
    try:
        for output in _opened:
            output.flush()
    except OSError:
        return  # noted


def let_go() -> None:
    """Write what the streams still hold, so that Python does not fail by it at its end with a code of its own."""
    finish()
    if isinstance(sys.stderr, _Errors):
        try:
            sys.stderr.buffer.flush()
        except OSError:
            lead_nowhere(sys.stderr.fileno())


def is_typed() -> bool:
    """Whether a person may type at standard input."""
    return sys.stdin is not None and sys.stdin.isatty()


def _fill() -> None:
    """Open what is closed of the descriptors 0, 1 and 2: else the next file has such a number, and processes that are started print into it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one


def _can_be_replaced(stream: TextIO | None) -> bool:
    """Whether it is one of Python's own, or closed, and not what a program has put in its place."""
    return stream is None or isinstance(stream, io.TextIOWrapper)


def _over(stream: TextIO | None, kind: type[_Stream]) -> _Stream:
    """Return a stream of a kind that writes where another one does; nowhere in place of None."""
    if stream is None:
        return kind(Path(os.devnull).open("wb"), encoding="utf-8", errors="backslashreplace")
    return kind(
        stream.buffer,
        encoding=stream.encoding,
        errors="backslashreplace",  # characters that a terminal's encoding lacks are spelled
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def lead_nowhere(descriptor: int) -> None:
    """Let a descriptor lead nowhere, so that what is still held back for it does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
