"""Time that passes when a test says so."""

from dataclasses import dataclass

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
