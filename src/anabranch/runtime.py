"""The only source of time, randomness and sleeping.

Everything else takes a `Runtime`, so that tests can run commits against a fixed clock, reproducible
names and sleeps that take no time.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of the time."""

    def now_millis(self) -> int:
        """Return milliseconds since the epoch, UTC; may go backwards when the machine's clock does."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, never going backwards."""
        ...

    def local_offset_millis(self, at_millis: int) -> int:
        """Return the offset of local wall-clock time from UTC at that moment, in milliseconds."""
        ...


class IdGenerator(Protocol):
    """Source of unique names."""

    def uuid(self) -> str:
        """Return a fresh random UUID in its canonical text form."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) to spread retries of competing writers."""
        ...


class Sleeper(Protocol):
    """Blocking and asynchronous sleep."""

    def sleep(self, seconds: float) -> None:
        """Return after about that many seconds."""
        ...

    async def pause(self, seconds: float) -> None:
        """Sleep as `sleep` does, without blocking the event loop."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def local_offset_millis(self, at_millis: int) -> int:
        offset = datetime.fromtimestamp(at_millis / 1000, UTC).astimezone().utcoffset()
        return 0 if offset is None else int(offset.total_seconds() * 1000)


class RandomIds:
    """Unique names from the operating system's randomness."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return random.random()


class ThreadSleeper:
    """Blocks the calling thread, or only the calling task."""

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        import asyncio  # slow to import, and rarely needed

        await asyncio.sleep(max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock, names and sleep as one value to pass around."""

    clock: Clock = field(default_factory=SystemClock)
    ids: IdGenerator = field(default_factory=RandomIds)
    sleeper: Sleeper = field(default_factory=ThreadSleeper)


SYSTEM = Runtime()
