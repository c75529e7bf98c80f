"""How many calls of some work wait for each other: what a store far away makes of it."""

import time
from typing import NamedTuple

from tests.kernel.expiring import through
from tests.support.faults import run

_SECONDS = 0.004
_CALLS = (
    *("get", "get_range", "list", "list_folders", "exists", "info"),
    *("put_if_absent", "put", "put_many", "open_output", "delete", "delete_many"),
)


class Cost(NamedTuple):
    calls: int
    depth: int
    """The most calls of which each began after the one before had ended: as many rounds as the work takes."""


def cost_of(table, work, *, is_far=None, seconds=_SECONDS):
    """The cost of `work(table)` through a store that takes its time."""
    timing = Timing(seconds)
    work(through(table, *timing.faults, is_far=is_far))
    return timing.cost()


class Timing:
    """Faults that let each call take its time, and what came of it."""

    def __init__(self, seconds=_SECONDS):
        self._seconds = seconds
        self._taken = []
        self.faults = [run("before", call, self._wait, times=10**9) for call in _CALLS]

    def _wait(self, _):
        begun = time.monotonic()
        time.sleep(self._seconds)
        self._taken.append((begun, time.monotonic()))

    def cost(self):
        """The cost since the last time that this was asked."""
        taken, self._taken = self._taken, []
        return Cost(len(taken), depth_of(taken))


def depth_of(taken):
    """The most of these calls, given by when they began and ended, of which each began after the one before had ended."""
    depth, until = 0, 0.0
    for begun, ended in sorted(taken, key=lambda call: call[1]):
        if begun >= until:
            depth, until = depth + 1, ended
    return depth
