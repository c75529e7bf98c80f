"""Time and names that follow from a seed, so that a history is the same whenever it is told."""

import random
import threading
import uuid

from anabranch.runtime import Runtime


class Chance:
    """A clock that goes on a little whenever it is looked at, names in an order of their own, and no waiting.

    `ticks` are the milliseconds it may go on by.
    """

    def __init__(self, seed, ticks=(1,)):
        self._rng = random.Random(seed)
        self._ticks = ticks
        self._now = 1_700_000_000_000
        self._lock = threading.Lock()

    def now_millis(self):
        with self._lock:
            self._now += self._ticks[0] if len(self._ticks) == 1 else self._rng.choice(self._ticks)
            return self._now

    def monotonic(self):
        return self._now / 1000

    def local_offset_millis(self, at_millis):
        return 0

    def uuid(self):
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def jitter(self):
        return 0.5

    def sleep(self, seconds):
        pass

    @property
    def runtime(self):
        return Runtime(clock=self, ids=self, sleeper=self)
