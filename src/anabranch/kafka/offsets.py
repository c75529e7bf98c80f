"""Positions in topics, and their JSON as Spark's own Kafka source writes it.

An offset of a partition names the next record to read. As JSON: ``{"topic": {"0": 17, "1": 4}}``. In what users
write, -2 stands for the earliest record there is and -1 for the end.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as JSON values, always in the same order, because Spark compares offsets as text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: Any) -> Offsets:
    """Offsets from JSON values. Raises `InvalidInputError` if they are none."""
    if not isinstance(value, Mapping):
        raise _no_offsets(value)
    offsets = {}
    for topic, partitions in value.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise _no_offsets(value)
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                raise _no_offsets(value)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _no_offsets(value: Any) -> InvalidInputError:
    text = repr(value)
    return InvalidInputError(
        f"{text if len(text) <= 120 else text[:117] + '...'} are no offsets of Kafka topics",
        hint='they look like {"topic": {"0": 17, "1": 4}}. If they come from a checkpoint, it belongs to a query with '
        "another source: use a new checkpoint location.",
    )
