"""What SIGINT, SIGTERM and SIGHUP do while jobs run or are about to.

Python carries out a handler between two steps of its own, so not while its main thread waits in a library, as for an
object store that accepts a request and never answers. A thread sees the signals then, and ends the process some seconds
after the second one: as when it is killed, nothing is lost or written twice.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from anabranch.jobs.task import Stop

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_SECONDS: Final = 15.0
"""How long what a second signal ends may take."""
_CODE: Final = 130
_TOLD: Final[set[int]] = set()
"""The descriptor that tells of signals, while there is one."""
_SAID: Final = b"anabranch: ended without an answer from what it waited for; nothing is lost, and jobs can be run again at once\n"


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP break off the block, so that what it has begun is undone. Main thread only."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # A shell lets what it starts in the background ignore SIGINT, and then Python does not handle it by itself.
    with _handling(interrupt):
        yield


@contextmanager
def stopping() -> Iterator[Stop]:
    """Open a `Stop` that SIGINT, SIGTERM and SIGHUP trigger; a second one makes it urgent. Main thread only."""
    stop = Stop()
    with _handling(lambda *_: stop.ask()):
        yield stop


@contextmanager
def _handling(handler: Callable[..., None]) -> Iterator[None]:
    """Handle signals, as far as there are such, while the block runs; in a thread that is not the main one there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _numbers() if not _is_for_nohup(number)}
    try:
        with _ended_by_the_second():
            yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def _ended_by_the_second() -> Iterator[None]:
    """End the process where a second signal does not end the block. Within another such block that one counts."""
    seen, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    if before == -1:
        _TOLD.add(told.fileno())
    else:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    is_over = threading.Event()
    threading.Thread(target=_watch, args=(seen, is_over), name="anabranch-signals", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        if before == -1:
            signal.set_wakeup_fd(-1)
            _TOLD.discard(told.fileno())
        told.close()  # the thread ends


def _watch(seen: socket.socket, is_over: threading.Event) -> None:
    ours, count = {*_numbers()}, 0
    with seen:
        while count < 2:
            received = seen.recv(16)
            if not received:
                return
            count += sum(number in ours for number in received)
        if not is_over.wait(_SECONDS):
            with suppress(OSError):
                os.write(2, _SAID)
            os._exit(_CODE)


def _forget() -> None:
    """Let signals of a forked process, as of a pool that is ended, not count as those of its parent."""
    with suppress(ValueError):  # in an interpreter of its own
        if (told := signal.set_wakeup_fd(-1)) not in (-1, *_TOLD):
            signal.set_wakeup_fd(told)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _is_for_nohup(number: int) -> bool:
    """Whether the signal is a hang-up that `nohup` has asked to ignore: the process is to outlive its terminal."""
    return number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) is signal.SIG_IGN


def _numbers() -> list[int]:
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
