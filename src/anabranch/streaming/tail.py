"""Following of a branch without Spark: its current rows, and then what is added.

A tail goes from position to position like a Spark stream (`anabranch.streaming.feed`). Its consumer, if it
has one, is moved on when the caller comes back for more after the last batch of a step: what was handed out
but not worked through when a process died is handed out again, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.consumers import record_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.options import (
    SCAN_BOUNDED_WATERMARK,
    SCAN_MODE,
    SCAN_SAVEPOINT_ID,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_VERSION,
)
from anabranch.streaming.consumers import consumed_position, consumer_at, leave_former_mains
from anabranch.streaming.course import Course, Place
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import UNLIMITED, Limits
from anabranch.streaming.offsets import FeedSplit, Position
from anabranch.streaming.scan_modes import first_position

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.05
LONGEST_WAIT_SECONDS: Final = 2.0
SNAPSHOTS_A_STEP: Final = 64
"""Limit of snapshots per step, so that the first rows of a long backlog come before all of it is planned."""


@dataclass
class Follower:
    """Stepwise reader of a branch, which remembers the steps that the caller has acknowledged."""

    feed: Feed
    """Feed of its current branch; another one after main was replaced."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options ``scan.*`` for the start if there is no consumer, or a new one."""
    consumer: str | None = None
    limits: Limits = UNLIMITED

    def __post_init__(self) -> None:
        """Validate the settings. Raises `OptionError`."""
        self._course = Course(self.feed, self.options)
        self._position: Position | None = None
        self._reached: Place | None = None

    @property
    def position(self) -> Position:
        """Acknowledged position; the start, before the first step."""
        if self._position is None:
            self._position = self._begin()
            self._record(self._position)
        return self._position

    def step(self, until: int | None = None) -> list[FeedSplit] | None:
        """Return the splits of the next step, or None if nothing is new. Raises as `Feed.advance` does.

        A step may be without rows. Until it is acknowledged, the next one begins where it began.
        """
        position = self.position  # a consumer may stand on another branch than the one that was opened
        start = Place(self.feed, position)
        end = self._course.ahead(start)
        if end is None:
            reached = self.feed.advance(position, self.limits, until=until, most=SNAPSHOTS_A_STEP)
            end = Place(self.feed, reached)
            if end.position == position:
                end = self._course.next(start) or start
        self._reached = end
        is_same = end.feed is start.feed and end.position == position
        return None if is_same else self._course.splits(start, end)

    def acknowledge(self) -> None:
        """Acknowledge the last step: it is not repeated, and the consumer moves on."""
        if self._reached is None:
            return self._record(self.position)
        has_crossed = self.feed is not self._reached.feed
        self.feed, self._position = self._reached
        self._record(self._position)
        if has_crossed and self.consumer is not None:
            leave_former_mains(self._context, self.consumer)
        return None

    @property
    def handed_out(self) -> tuple[Place, Place] | None:
        """Start and end of the last step, until it is acknowledged; None if there is none."""
        return None if self._reached is None else (Place(self.feed, self.position), self._reached)

    @property
    def is_ended(self) -> bool:
        """Whether the stream is bounded and at its end."""
        return self.feed.is_ended(self.position)

    @property
    def _context(self) -> TableContext:
        return self.feed.context

    def _record(self, position: Position) -> None:
        if self.consumer is not None:
            keep = self.feed.on_overwrite == "changes"
            record_consumer(
                self._context, self.consumer, consumer_at(self._context, position, keep_previous=keep)
            )

    def _begin(self) -> Position:
        options, bound = dict(self.options), self.feed.bounded_watermark
        if bound is not None:  # it may be one of the table's own
            options[SCAN_BOUNDED_WATERMARK.key] = str(bound)
        if self.consumer is None:
            return first_position(self._context, options)
        keep = self.feed.on_overwrite == "changes"
        place, position = consumed_position(self._context, self.consumer, options, keep_previous=keep)
        self.feed = self._course.feed_of(place.branch_uuid) or self.feed
        return position


class _Wait(NamedTuple):
    """Marker: nothing is new, so look again after a while."""

    seconds: float


class _End(NamedTuple):
    """Marker: the stream is at its end."""


@dataclass(frozen=True)
class Tail(Generic[T]):
    """Iterator over a branch's splits as transformed by `read`, endless or until nothing is new.

    Iterate over it with ``for`` or, in a coroutine, with ``async for``: there storage is read in a thread of its own,
    and neither reading nor waiting holds up the event loop. A task that is cancelled has not worked through what it
    was given last. Iterated over again, it goes on with what was not worked through.
    """

    follower: Follower
    read: Callable[[FeedSplit], Iterator[T]]
    idle_seconds: float | None = None
    """Seconds without new data after which it ends; never if None, at the current end if 0."""
    delivering: Callable[[Place, Place], Callable[[], None]] | None = None
    """Callback with start and end of each step before it is delivered; its result is called when that was worked
    through."""

    def __iter__(self) -> Iterator[T]:
        sleeper = self.follower.feed.context.runtime.sleeper
        with closing(self._events()) as events:
            for event in events:
                if isinstance(event, _Wait):
                    sleeper.sleep(event.seconds)
                else:
                    yield event

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # takes long to import, and few need it

        sleeper = self.follower.feed.context.runtime.sleeper
        loop = asyncio.get_running_loop()
        events = self._events()
        worker = ThreadPoolExecutor(1, "anabranch-tail")

        def following() -> T | _Wait | _End:
            return next(events, _End())

        try:
            while True:
                # The thread runs in this task's context.
                event = await loop.run_in_executor(worker, copy_context().run, following)
                if isinstance(event, _End):
                    return
                if isinstance(event, _Wait):
                    await sleeper.pause(event.seconds)
                else:
                    yield event
        finally:
            # In the same thread, so that it runs after any work in progress without our waiting for that.
            worker.submit(events.close)
            worker.shutdown(wait=False)

    def _events(self) -> Generator[T | _Wait]:
        follower = self.follower
        clock = follower.feed.context.runtime.clock
        idle_since, wait = clock.monotonic(), FIRST_WAIT_SECONDS
        while True:
            splits = follower.step()
            if splits is not None:
                done = self._announced()
                for split in splits:
                    yield from self.read(split)
                follower.acknowledge()
                done()
                idle_since, wait = clock.monotonic(), FIRST_WAIT_SECONDS
                continue
            idle = clock.monotonic() - idle_since
            if follower.is_ended or (self.idle_seconds is not None and idle >= self.idle_seconds):
                return
            yield _Wait(wait if self.idle_seconds is None else min(wait, self.idle_seconds - idle))
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    def _announced(self) -> Callable[[], None]:
        """Announce the step that is about to be delivered."""
        step = self.follower.handed_out
        return _nothing if self.delivering is None or step is None else self.delivering(*step)


def _nothing() -> None:
    """Do nothing, because nobody wants notice of the step."""


def start_options(
    start: str | int, options: Mapping[str, str], moment: Moment | None = None
) -> dict[str, str]:
    """Return the options of a reader that begins at `start`.

    Args:
        start: a ``scan.mode``, or a moment to begin with what was added in it.
        moment: what the view is pinned to: all of that is what ``latest-full`` begins with.
    """
    elsewhere = {option.key for option in MOMENT_OPTIONS} | {SCAN_MODE.key}
    others = {key: value for key, value in options.items() if key not in elsewhere}
    mode = str(start)
    if not _is_mode(mode):
        return {**others, SCAN_VERSION.key: mode}
    if moment is None or mode == "from-timestamp":
        return {**options, SCAN_MODE.key: mode}
    if mode == "latest":
        return {**others, SCAN_MODE.key: mode}
    if mode != "from-snapshot":
        mode = "from-snapshot-full"
    return {**others, SCAN_MODE.key: mode, **_named(moment)}


def _named(moment: Moment) -> dict[str, str]:
    """Return the single option that names a moment."""
    match moment.found_by:
        case "tag":
            return {SCAN_TAG_NAME.key: moment.name}
        case "savepoint":
            return {SCAN_SAVEPOINT_ID.key: moment.name.removeprefix("savepoint.")}
        case "snapshot":
            return {SCAN_SNAPSHOT_ID.key: str(moment.snapshot.id)}


def _is_mode(text: str) -> bool:
    try:
        SCAN_MODE.parse(text)
    except ValueError:
        return False
    return True


def check_range(start: int, end: int | None, newest: int) -> int:
    """Return the last snapshot of a range of changes. Raises `InvalidInputError` for an invalid range."""
    last = newest if end is None else end
    if start < 0 or last > newest or last < start:
        raise InvalidInputError(
            f"changes from snapshot {start} to {last} were asked for, but snapshots go up to {newest}",
            hint="give the last snapshot that is known already, and the last one wanted.",
        )
    return last
