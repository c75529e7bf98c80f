"""Work on hostile input in processes of its own: whether one dies, hangs, or takes too much memory is seen."""

import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import AnabranchError
from tests.support.processes import forking

SECONDS = 30
MOST_BYTES = 1_500_000_000
MOST_TEXT = 5_000
"""Characters that an error message may have."""


@dataclass(frozen=True)
class Outcome:
    """What came of one input."""

    item: object
    kind: str
    """``done``, ``refused`` (a clear error), ``raised`` (any other), ``died``, ``hung``, ``memory``."""
    value: object = None
    """What the work gave; of errors, their type, path and text."""

    @property
    def is_good(self):
        return self.kind in {"done", "refused"}


def survive(work, items, *, seconds=SECONDS, most_bytes=MOST_BYTES):
    """``work(item)`` for each item, in order, in another process; a new one follows one that ended.

    The work is a function of a module, items are small values. Processes are forked before Arrow or Polars started
    threads, and one serves many items, so that each costs little.
    """
    items = list(items)
    outcomes = []
    while len(outcomes) < len(items):
        outcomes += _one_process(work, items[len(outcomes) :], seconds, most_bytes)
    return outcomes


def bad(outcomes):
    """Those that are neither done nor refused."""
    return [outcome for outcome in outcomes if not outcome.is_good]


def _one_process(work, items, seconds, most_bytes):
    context = forking("tests.support.hostile")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(work, items, theirs), daemon=True)
    process.start()
    theirs.close()
    outcomes = []
    try:
        for item in items:
            if not _answers(mine, process.pid, seconds):
                outcomes.append(Outcome(item, "hung", f"more than {seconds} s"))
                break
            try:
                kind, value, peak = mine.recv()
            except EOFError:
                process.join(seconds)
                outcomes.append(Outcome(item, "died", f"exit code {process.exitcode}"))
                break
            if peak > most_bytes:
                outcomes.append(Outcome(item, "memory", f"{peak:,} bytes"))
                break
            outcomes.append(Outcome(item, kind, value))
    finally:
        process.kill()
        process.join()
        mine.close()
    return outcomes


def _answers(pipe, pid, seconds):
    """Whether an answer comes within so many seconds of processor time: other work on the machine does not count.

    Or within ten times as many by the clock: whoever waits takes no processor time.
    """
    used, deadline = _processor_seconds(pid), time.monotonic() + 10 * seconds
    while not pipe.poll(1):
        if time.monotonic() > deadline or _processor_seconds(pid) - used > seconds:
            return False
    return True


def _processor_seconds(pid):
    """What a process has used so far; as Linux tells, elsewhere the time by the clock."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _serve(work, items, pipe):
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno())
    for item in items:
        try:
            kind, value = "done", work(item)
        except AnabranchError as error:
            text = str(error)
            kind = "refused" if len(text) <= MOST_TEXT else "raised"
            value = (type(error).__name__, getattr(error, "path", None), text[: 2 * MOST_TEXT])
        except BaseException:
            kind, value = "raised", (None, None, traceback.format_exc()[-3000:])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send((kind, value, peak))
