"""Positions in topics, and their JSON in the format of Spark's own Kafka source.

An offset of a partition names the next record to read. As JSON: ``{"topic": {"0": 17, "1": 4}}``. In what users
write, -2 stands for the earliest record there is and -1 for the end. Where the brokers tell the id of a topic it stands
beside the partitions, ``{"topic": {"0": 17, "id": "AaIG9-Axd8GQfv8L6okm4A"}}``: a topic that was deleted and made anew has the
same name and another id.
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
