"""How many calls of some work wait for each other: what a store far away makes of it."""

import time
from typing import NamedTuple

from tests.kernel.expiring import through
from tests.support.faults import run

_SECONDS = 0.004
_CALLS = ("get", "list", "exists", "put_if_absent", "put", "put_many", "delete", "delete_many")


class Cost(NamedTuple):
    calls: int
    depth: float
    """As many rounds as there would be if all calls took as long: calls at the same time count once."""


def cost_of(table, work):
    """The cost of `work(table)` through a store that takes its time. What lies between calls does not count."""
    taken = []

    def wait(_):
        begun = time.monotonic()
        time.sleep(_SECONDS)
        taken.append((begun, time.monotonic()))

    work(through(table, *(run("before", call, wait, times=10**9) for call in _CALLS)))
    together, until = 0.0, 0.0
    for begun, ended in sorted(taken):
        together += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    mean = sum(ended - begun for begun, ended in taken) / len(taken)
    return Cost(len(taken), together / mean)
