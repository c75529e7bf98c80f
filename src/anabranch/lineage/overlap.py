"""Whether two commits read the same events: whether their ranges of one source overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.format.records.snapshot import Snapshot
from anabranch.lineage.model import Input, LineageEntry, TableInput, entry_or_none
from anabranch.streaming.offsets import Position

Place = tuple[int, int]
Span = tuple[Place, Place]
"""A range read of a source: after the first place, up to the last."""

_START: Place = (-1, 0)


def first_overlap(entry: LineageEntry, snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """Return the first of these snapshots known to overlap the commit's reads; None if there is none."""
    own = spans(entry)
    for snapshot in snapshots:
        found = entry_or_none(snapshot)
        if found is not None and _has_common(own, spans(found)):
            return snapshot
    return None


def spans(entry: LineageEntry) -> dict[str, list[Span]]:
    """Return the ranges that the commit read of each source whose positions can be compared.

    Tables that it read as of a moment are left out: a look-up consumes no events.
    """
    found: dict[str, list[Span]] = {}
    for read in entry.consumed:
        if isinstance(read, TableInput) and read.is_state:
            continue
        ends, starts = places(read, read.end), places(read, read.start)
        for source, end in (ends or {}).items():
            found.setdefault(source, []).append(((starts or {}).get(source, _START), end))
    return found


def places(read: Input, at: Any) -> Mapping[str, Place] | None:
    """Return an input's start or end as places per source, greater further on; None if not comparable."""
    if isinstance(read, TableInput):
        assert isinstance(at, Position), "inputs that are tables have positions"
        return {f"table {read.branch_uuid}": (at.delivered_through, at.files or 0)}
    match read.kind, at:
        case "kafka", dict():
            return {
                f"topic {topic} {partition}": (offset, 0)
                for topic, offsets in at.items()
                for partition, offset in offsets.items()
                if isinstance(offset, int)  # not the topic's id
            }
        case "files", {"logOffset": int(offset)}:
            return {f"folder {read.name}" if read.name else read.source: (offset, 0)}
        case _:
            return None


def titles_of(snapshots: Iterable[Snapshot]) -> dict[str, str]:
    """Return display names of the sources of `spans` that some snapshots have read: tables by their newest names."""
    found: dict[str, str] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.id):
        entry = entry_or_none(snapshot)
        for read in () if entry is None else entry.consumed:
            for source in places(read, read.end) or ():
                found[source] = f"table {read.name}" if isinstance(read, TableInput) else source
    return found


def _has_common(one: Mapping[str, Sequence[Span]], other: Mapping[str, Sequence[Span]]) -> bool:
    return any(
        max(mine[0], theirs[0]) < min(mine[1], theirs[1])
        for source in one.keys() & other.keys()
        for mine in one[source]
        for theirs in other[source]
    )
