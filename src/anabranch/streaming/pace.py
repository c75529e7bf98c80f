"""Limits and pace of a stream's batches: the options ``read.stream.*``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from anabranch.errors import OptionError
from anabranch.options import (
    MAX_BYTES_PER_TRIGGER,
    MAX_FILES_PER_TRIGGER,
    MAX_ROWS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MIN_ROWS_PER_TRIGGER,
)
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.offsets import Position


def limits_of(options: Mapping[str, str]) -> Limits:
    """Return the limits of one batch. Raises `OptionError`."""
    return Limits(
        MAX_FILES_PER_TRIGGER.of(options), MAX_BYTES_PER_TRIGGER.of(options), MAX_ROWS_PER_TRIGGER.of(options)
    )


class Pace:
    """Delay of batches until enough rows wait, or the last batch was long enough ago.

    The first batch after a start is never held back: how long ago the one before it was is not known.
    """

    def __init__(self, feed: Feed, rows: int, delay_millis: int) -> None:
        self.rows = rows
        """Minimum rows of a batch that starts before the delay is over."""
        self._feed = feed
        self._delay_seconds = delay_millis / 1000
        self._last: float | None = None
        self._counted: tuple[Position, Position, int] | None = None
        """Start, end and number of rows of the last count."""

    @classmethod
    def of(cls, feed: Feed, options: Mapping[str, str]) -> Self | None:
        """Create the pace that the options ask for, or None. Raises `OptionError` if one of them lacks the other."""
        rows, delay = MIN_ROWS_PER_TRIGGER.of(options), MAX_TRIGGER_DELAY.of(options)
        if rows is None and delay is None:
            return None
        if rows is None or delay is None:
            there, missing = MIN_ROWS_PER_TRIGGER.key, MAX_TRIGGER_DELAY.key
            if rows is None:
                there, missing = missing, there
            raise OptionError(
                f"{there} is set, but {missing} is not",
                hint="set both: a batch waits for so many rows, but no longer than the delay.",
            )
        return cls(feed, rows, delay)

    def follow(self, feed: Feed) -> None:
        """Switch to the feed of another branch, after main was replaced."""
        if feed is not self._feed:
            self._feed, self._counted = feed, None

    def is_due(self, start: Position) -> bool:
        """Whether a batch from `start` is due. Raises as `Feed.advance`."""
        if self._last is None or self._now() - self._last >= self._delay_seconds:
            return True
        end = self._feed.advance(start)
        return self._feed.is_ended(end) or self._rows_between(start, end) >= self.rows

    def went(self) -> None:
        """Note that a batch was started."""
        self._last = self._now()

    def _rows_between(self, start: Position, end: Position) -> int:
        if self._counted is None or self._counted[:2] != (start, end):
            self._counted = (start, end, self._feed.rows_between(start, end))
        return self._counted[2]

    def _now(self) -> float:
        return self._feed.context.runtime.clock.monotonic()
