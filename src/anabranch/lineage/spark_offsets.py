"""Inputs of a micro-batch, from the offset log of the query's checkpoint.

Spark writes ``offsets/<batch>`` before it runs the batch: that file, not a progress listener, is the truth
about what the batch reads. A file is a version line, a line of JSON metadata, and one line a source: the
offset as JSON, or ``-``. Version 1 lists the sources by position, version 2 writes ``<id>:<offset>``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.lineage.model import STREAM_SOURCE, Input, SourceInput, TableInput
from anabranch.streaming.course import is_difference
from anabranch.streaming.offsets import BEGINNING, Offset, Position, is_offset

_NO_OFFSET = "-"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """One file of the offset log."""

    metadata: dict[str, Any]
    ends: dict[str, Any]
    """By source (its position in the query, or its id): the end offset as JSON, None if it has none."""

    @property
    def watermark_millis(self) -> int | None:
        """Event-time watermark the batch runs under, epoch milliseconds; None if no column defines one."""
        return self.batch_watermark or None

    @property
    def batch_watermark(self) -> int | None:
        """The same as Spark wrote it: 0 as long as no row had an event time; None if not known."""
        value = self.metadata.get("batchWatermarkMs")
        return value if isinstance(value, int) and value >= 0 else None


def parse_batch_offsets(text: str) -> BatchOffsets:
    """Parse one file of the offset log. Raises `InvalidInputError` if it is not one."""
    lines = text.split("\n")
    version = lines[0].strip() if lines else ""
    try:
        metadata = json.loads(lines[1]) if len(lines) > 1 and lines[1].strip() else {}
        if version == "v1":
            sources = [(str(place), line) for place, line in enumerate(lines[2:])]
        elif version == "v2":
            parts = [line.partition(":") for line in lines[2:]]
            sources = [(source, offset) for source, _, offset in parts]
        else:
            raise InvalidInputError(f"the offset log has version {version!r}; v1 and v2 are known")
        ends = {source: None if line == _NO_OFFSET else json.loads(line) for source, line in sources}
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the offset log cannot be read: {error}") from error
    return BatchOffsets(metadata if isinstance(metadata, dict) else {}, ends)


def topic_partitions(offsets: BatchOffsets) -> frozenset[str]:
    """Return all partitions of Kafka topics that a query reads, such as ``orders-3``, with rows in the batch or not."""
    return frozenset(
        f"{topic}-{partition}"
        for end in offsets.ends.values()
        if _kind(end) == "kafka"
        for topic, partitions in end.items()
        for partition in partitions
        if partition.isdigit()
    )


def inputs_between(
    previous: BatchOffsets | None, batch: BatchOffsets, names: Mapping[str, str] | None = None
) -> tuple[Input, ...]:
    """Return the inputs of a batch.

    Args:
        previous: the offsets of the batch before; None for the first one of the query.
        batch: those of the batch.
        names: names of sources other than tables and topics, if known.
    """
    before = {} if previous is None else previous.ends
    inputs = [
        _input(source, before.get(source), end, (names or {}).get(source))
        for source, end in batch.ends.items()
        if end is not None and end != before.get(source)
    ]
    return tuple(inputs)


def sources_of_kind(kind: str, offsets: BatchOffsets) -> list[str]:
    """Return the sources of a kind: ``files``, ``kafka`` or ``unknown``."""
    return [
        source
        for source, end in offsets.ends.items()
        if end is not None and not is_offset(end) and _kind(end) == kind
    ]


def _input(source: str, start: Any, end: Any, name: str | None) -> Input:
    if is_offset(end):
        return _table_input(Offset.from_dict(end), None if start is None else Offset.from_dict(start))
    kind = _kind(end)
    return SourceInput(kind, f"{STREAM_SOURCE}{source}", start, end, None if kind == "kafka" else name)


def began_at(offset: Offset) -> Position:
    """Return where on its branch the stream of an offset began; the branch's beginning if it began on another."""
    if offset.origin is None:
        return offset.position
    return offset.origin if offset.origin_branch in (None, offset.branch_uuid) else BEGINNING


def _table_input(end: Offset, start: Offset | None) -> TableInput:
    begin = start.position if start is not None else began_at(end)
    if start is not None and start.branch_uuid != end.branch_uuid:
        # Main was replaced. Positions on two branches have nothing between them, but for what differs.
        begin = BEGINNING if is_difference(end.position) else end.position
    return TableInput(end.name, end.table_uuid, end.branch_uuid, begin, end.position, end.begun)


def _kind(end: Any) -> str:
    """Return the kind of source that has offsets of this shape."""
    if isinstance(end, dict) and end.keys() == {"logOffset"}:
        return "files"
    if isinstance(end, dict) and end and all(_is_topic(topic) for topic in end.values()):
        return "kafka"
    return "unknown"


def _is_topic(value: Any) -> bool:
    """Whether a value is a map from partition number to offset, maybe with the id of the topic."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(offset, int) if partition.isdigit() else partition == "id" and isinstance(offset, str)
            for partition, offset in value.items()
        )
    )
