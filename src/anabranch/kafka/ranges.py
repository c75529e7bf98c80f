"""Ranges of offsets: division into tasks, and limits of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from anabranch.kafka.offsets import Offsets, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition. Some of them may have no record."""

    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the ranges between two positions; partitions that are not in both have nothing to read."""
    found = (OffsetRange(where, start[where], end[where]) for where in sorted(end) if where in start)
    return [piece for piece in found if piece.size > 0]


def cut(
    ranges: Iterable[OffsetRange], *, at_least: int | None = None, most: int | None = None
) -> list[OffsetRange]:
    """Divide ranges into more: at least about `at_least`, each of at most `most` offsets.

    Each range is divided into as many as its share of all offsets asks for.
    """
    whole = list(ranges)
    total = sum(piece.size for piece in whole)
    pieces = []
    for piece in whole:
        parts = 1
        if at_least is not None and at_least > len(whole):
            parts = max(1, round(piece.size * at_least / total))
        if most is not None:
            parts = max(parts, -(-piece.size // most))
        parts = min(parts, piece.size)
        edges = [piece.start + piece.size * i // parts for i in range(parts + 1)]
        pieces += [replace(piece, start=low, end=high) for low, high in pairwise(edges)]
    return pieces


def admitted(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Return the end of a batch of at most `limit` offsets from `start` towards `end`.

    In proportion to what waits in each partition. Every partition in which something waits goes on by at least one
    offset, so that none holds the watermark back; only if there are more of those than `limit` may the batch
    have more.
    """
    waiting = {where: end[where] - start[where] for where in end if end[where] > start[where]}
    if sum(waiting.values()) <= limit:
        return dict(end)
    left = max(0, limit - len(waiting))
    rest = sum(waiting.values()) - len(waiting)
    shares = {where: 1 + left * (size - 1) // max(rest, 1) for where, size in waiting.items()}
    return {
        where: start[where] + shares[where] if where in shares else offset for where, offset in end.items()
    }
