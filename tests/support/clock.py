"""Time that passes when a test says so."""

from copy import copy
from dataclasses import dataclass, replace

from anabranch.storage.memory import MemoryStorage
from anabranch.table import Table

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 1_700_000_000_000
"""Epoch milliseconds."""


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: int = START

    def now_millis(self):
        return self.now

    def monotonic(self):
        return self.now / 1000

    def local_offset_millis(self, at_millis):
        return 0


def at_time(table, clock):
    """The table, in memory, as a machine sees it whose clock, like the store's, is this one."""
    context = table.context
    runtime = replace(context.runtime, clock=clock)
    return Table(replace(context, runtime=runtime, storage=_with_runtime(context.storage, runtime)))


def _with_runtime(storage, runtime):
    """The same objects; what is put from now on has the times of this runtime."""
    if isinstance(storage, MemoryStorage):
        made = MemoryStorage()
        made.__dict__.update(storage.__dict__ | {"_runtime": runtime})
    else:
        made = copy(storage)
        made.inner = _with_runtime(storage.inner, runtime)
    return made
