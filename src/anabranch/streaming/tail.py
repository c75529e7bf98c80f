"""Following a branch without Spark: its rows, and then what is added to it.

A tail goes from position to position like a Spark stream (`anabranch.streaming.feed`). Its consumer, if it
has one, is moved on when the caller comes back for more after the last batch of a step: what was handed out
but not worked through when a process died is handed out again, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.kernel.context import TableContext
from anabranch.kernel.refs.consumers import find_consumer, record_consumer
from anabranch.kernel.scan.split import Split
from anabranch.spec.refs import Consumer
from anabranch.streaming.feed import UNLIMITED, Feed, Limits
from anabranch.streaming.offsets import Offset, Position, check_same_history
from anabranch.streaming.scan_modes import first_position

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.05
LONGEST_WAIT_SECONDS: Final = 2.0


@dataclass
class Follower:
    """Steps along a branch, one call at a time; remembers where it is."""

    feed: Feed
    options: Mapping[str, str] = field(default_factory=dict)
    """Where to begin if there is no consumer, or a new one: the options ``scan.*``."""
    consumer: str | None = None
    limits: Limits = UNLIMITED

    def __post_init__(self) -> None:
        self._position: Position | None = None

    @property
    def position(self) -> Position:
        """What has been delivered; where it begins, before the first step."""
        if self._position is None:
            self._position = self._begin()
            if self.consumer is not None:
                self.acknowledge()  # from here on nothing it has yet to read expires
        return self._position

    def step(self, until: int | None = None) -> list[Split]:
        """What comes next, if there is anything, in units of work; raises as `Feed.advance` does."""
        start = self.position
        end = self.feed.advance(start, self.limits, until=until)
        self._position = end
        return self.feed.splits(start, end) if end != start else []

    def acknowledge(self) -> None:
        """Everything delivered so far has been worked through: the consumer need not see it again."""
        if self.consumer is not None:
            record_consumer(self._context, self.consumer, consumer_at(self._context, self.position))

    @property
    def _context(self) -> TableContext:
        return self.feed.context

    def _begin(self) -> Position:
        known = None if self.consumer is None else find_consumer(self._context, self.consumer)
        if known is None:
            return first_position(self._context, self.options)
        return position_of(self._context, known)


def consumer_at(context: TableContext, position: Position) -> Consumer:
    """A consumer that has read up to `position`."""
    next_snapshot = position.snapshot if position.files is not None else position.snapshot + 1
    offset = Offset(context.table_uuid, context.branch_uuid, context.title, position)
    return Consumer(max(1, next_snapshot), offset.to_dict())


def position_of(context: TableContext, consumer: Consumer) -> Position:
    """Where a consumer stands. Another engine may have moved it on since we stored the exact position.

    Raises `InvalidInputError` if it belongs to another table or branch.
    """
    if consumer.offset is not None:
        offset = Offset.from_dict(consumer.offset)
        check_same_history(
            offset, table_uuid=context.table_uuid, branch_uuid=context.branch_uuid, name=context.title
        )
        if consumer_at(context, offset.position).next_snapshot == consumer.next_snapshot:
            return offset.position
    last = consumer.next_snapshot - 1
    found = context.snapshots.find(last) if last > 0 else None
    return Position(max(0, last), None if found is None else found.stamp)


@dataclass(frozen=True)
class Tail(Generic[T]):
    """Follows a branch and hands out what `read` makes of each split, for ever or until nothing is new."""

    follower: Follower
    read: Callable[[Split], Iterator[T]]
    idle_seconds: float | None = None
    """End when nothing was added for so long; never if None, at once at the end of what there is if 0."""

    def __iter__(self) -> Iterator[T]:
        runtime = self.follower.feed.context.runtime
        idle_since = runtime.clock.monotonic()
        wait = FIRST_WAIT_SECONDS
        while True:
            before = self.follower.position
            for split in self.follower.step():
                yield from self.read(split)
            if self.follower.position != before:
                self.follower.acknowledge()
                idle_since, wait = runtime.clock.monotonic(), FIRST_WAIT_SECONDS
                continue
            idle = runtime.clock.monotonic() - idle_since
            if self.idle_seconds is not None and idle >= self.idle_seconds:
                return
            left = wait if self.idle_seconds is None else min(wait, self.idle_seconds - idle)
            runtime.sleeper.sleep(left)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)


def check_range(start: int, end: int | None, newest: int) -> int:
    """The last snapshot of a range of changes. Raises `InvalidInputError` if it has no sense."""
    last = newest if end is None else end
    if start < 0 or last > newest or last < start:
        raise InvalidInputError(
            f"changes from snapshot {start} to {last} were asked for, but snapshots go up to {newest}",
            hint="give the last snapshot that is known already, and the last one wanted.",
        )
    return last
