"""Positions in topics and ranges of them, and their JSON in the format of Spark's own Kafka source.

An offset of a partition names the next record to read. As JSON: ``{"topic": {"0": 17, "1": 4}}``. In what users
write, -2 stands for the earliest record there is and -1 for the end. Where the brokers tell the id of a topic it stands
beside the partitions, ``{"topic": {"0": 17, "id": "AaIG9-Axd8GQfv8L6okm4A"}}``: a topic that was deleted and made anew has the
same name and another id. Ranges are divided into tasks, and cut by the limits of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from anabranch.errors import InvalidInputError

EARLIEST = -2
LATEST = -1


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]
TopicIds = Mapping[str, str]
"""Topic ids by name, as far as the brokers give them."""
_ID = "id"


def to_json(offsets: Mapping[TopicPartition, int], ids: TopicIds | None = None) -> dict[str, dict[str, Any]]:
    """Return the offsets as JSON values, in a fixed order, because Spark compares offsets as text."""
    found: dict[str, dict[str, Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    for topic, partitions in found.items():
        if topic in (ids or {}):
            partitions[_ID] = (ids or {})[topic]
    return found


def from_json(value: Any) -> Offsets:
    """Parse offsets from JSON values. Raises `InvalidInputError` if they are invalid."""
    if not isinstance(value, Mapping):
        raise _no_offsets(value)
    offsets = {}
    for topic, partitions in value.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise _no_offsets(value)
        for partition, offset in partitions.items():
            if partition == _ID and isinstance(offset, str):
                continue
            if not str(partition).isdecimal() or type(offset) is not int:
                raise _no_offsets(value)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def ids_from_json(value: Any) -> dict[str, str]:
    """Return the topic ids in JSON values that `from_json` reads."""
    return {topic: partitions[_ID] for topic, partitions in value.items() if _ID in partitions}


def _no_offsets(value: Any) -> InvalidInputError:
    text = repr(value)
    return InvalidInputError(
        f"{text if len(text) <= 120 else text[:117] + '...'} are no offsets of Kafka topics",
        hint='they look like {"topic": {"0": 17, "1": 4}}. If they come from a checkpoint, it belongs to a query with '
        "another source: use a new checkpoint location.",
    )


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
