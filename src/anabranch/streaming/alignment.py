"""Alignment of sources in event time: how far the next step of one may go.

A source takes the next snapshot only if that one's watermark is at most the maximal drift ahead of the slowest
source of its group. How far a source is, is the watermark of what its reader has been through, that is, of what came
before the batch that is asked for. So no source is ever ahead of another one by more than the drift, except that:

* the slowest may always take one more snapshot, however much event time that spans, or none would go on;
* so may a source that has not come to a watermark yet: its first step;
* a source is not waited for while it is idle, that is, when it has had nothing to read for the group's timeout. A
  short time without new snapshots is no reason for the others to run ahead; a table that nobody writes to any more
  holds nobody back. When something is added to it again, it may be far behind, and the others wait for it from then on;
* nor is one that gives no sign of life for the timeout (`anabranch.streaming.group`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch.format.records.snapshot import Snapshot
from anabranch.runtime import Clock
from anabranch.streaming.group import AlignmentMember
from anabranch.streaming.offsets import Position


class Alignment:
    """Alignment of one source: holds it back while it is ahead of its group."""

    def __init__(self, member: AlignmentMember, find: Callable[[int], Snapshot | None], clock: Clock) -> None:
        """Create it without reading or writing anything.

        Args:
            find: the snapshot of an id, of the branch that is read; None if there is none (yet).
        """
        self.member = member
        self._find = find
        self._clock = clock
        self._ahead: deque[tuple[int, int | None]] = deque()
        """Id and watermark of the inspected but undelivered snapshots, without a gap."""
        self._next_id = 0
        """Id of the first snapshot not inspected yet."""
        self._begun_with: int | None = None
        """Watermark of the source's first snapshot, used until the source has reached one itself."""
        self._waiting_since: float | None = None
        """Time since which there has been nothing to read; None if there is."""

    def until(self, start: Position) -> int | None:
        """Return the last snapshot that a step from `start` may touch, the one of `start` itself if it must wait.

        None if there is none after `start`: then there is nothing to take, nor to hold back.
        """
        self._forget_delivered(start)
        is_there = self._look(0) is not None or start.files is not None
        own = self._reached(start)
        self.member.tell(own, idle=self._is_idle(is_there=is_there))
        if not is_there:
            return None
        last = self._last(start, own, self.member.slowest_other())
        if own is None:
            # The first batch may take long, and the others must know of the source before it is through.
            given = (watermark for snapshot, watermark in self._ahead if snapshot <= last)
            self._begun_with = next((watermark for watermark in given if watermark is not None), None)
            self.member.tell(self._begun_with)
        return last

    def ended(self) -> None:
        """Leave the group: the source is at its end."""
        self.member.leave()

    def _reached(self, start: Position) -> int | None:
        """Return the watermark that the source has reached; None before its first step."""
        if start.watermark is None and self._begun_with is None and start.files is not None:
            begun = self._find(start.snapshot)
            self._begun_with = None if begun is None else begun.watermark
        return self._begun_with if start.watermark is None else start.watermark

    def _last(self, start: Position, own: int | None, slowest_other: int | None) -> int:
        known = [w for w in (own, slowest_other) if w is not None]
        ceiling = min(known) + self.member.terms.max_drift if known else None
        last, place = start.snapshot, 0
        while (following := self._look(place)) is not None:
            snapshot, watermark = following
            if watermark is not None and (ceiling is None or watermark > ceiling):
                is_slowest = own is None or slowest_other is None or own <= slowest_other
                takes_nothing = place == 0 and start.files is None
                return snapshot if is_slowest and takes_nothing else last
            last, place = snapshot, place + 1
        return last

    def _look(self, place: int) -> tuple[int, int | None] | None:
        """Return id and watermark of the snapshot `place` places after the next one, if it exists."""
        while len(self._ahead) <= place:
            following = self._find(self._next_id)
            if following is None:
                return None
            self._next_id += 1
            self._ahead.append((following.id, following.watermark))
        return self._ahead[place]

    def _forget_delivered(self, start: Position) -> None:
        while self._ahead and self._ahead[0][0] <= start.snapshot:
            self._ahead.popleft()
        if not self._ahead or self._ahead[0][0] != start.snapshot + 1:
            self._ahead.clear()
            self._next_id = start.snapshot + 1

    def _is_idle(self, *, is_there: bool) -> bool:
        if is_there:
            self._waiting_since = None
            return False
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (now - self._waiting_since) * 1000 >= self.member.terms.timeout
