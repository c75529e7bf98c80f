"""A resolved moment of a table: the snapshot, the reference that found it, and its distance from the request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from anabranch.errors import CorruptTableError, NotFoundError, PredicateError
from anabranch.expr.values import Timestamp
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each, reading
from anabranch.kernel.log.savepoint_log import find_savepoint, readable_snapshot
from anabranch.kernel.log.tag_log import find_tag

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class Moment:
    """Result of resolving a version, time or watermark. Use its `snapshot` to read.

    Example:
        >>> moment = table.at("good").moment
        >>> moment.name, moment.found_by, moment.snapshot.id
        ('good', 'tag', 1)
    """

    snapshot: Snapshot
    found_by: Literal["snapshot", "tag", "savepoint"]
    """Kind of reference that it was found by."""
    name: str
    """That reference: ``snapshot.5``, ``savepoint.2``, or the name of the tag."""
    asked: str
    """What was asked for, as text."""
    distance_millis: int = 0
    """How much earlier than the requested time it was committed, or how far its watermark exceeds the requested one."""
    is_exact: bool = True
    """Whether the answer is certain: no expired snapshot may have come in between, and the past was not
    changed since."""
    changed_by: str | None = None
    """What changed the past since, so that readers saw something else then; None if nothing did."""
    is_published: bool = False
    """Whether it is what readers saw then, regardless of later corrections."""

    def __str__(self) -> str:
        held = "" if self.found_by == "snapshot" else f" (snapshot {self.snapshot.id})"
        sure = "" if self.is_exact else "; what came in between is not known"
        if self.changed_by is not None:
            sure = f"; readers saw something else then: {self.changed_by}"
        far = f", {duration_text(self.distance_millis)} from {self.asked}" if self.distance_millis else ""
        return f"{self.name}{held} of {time_text(self.snapshot.time_millis)}{far}{sure}"


def of_snapshot(snapshot: Snapshot, asked: str | None = None) -> Moment:
    """Return the moment of a retained snapshot."""
    name = f"snapshot.{snapshot.id}"
    return Moment(snapshot, "snapshot", name, asked or name)


def of_tag(tag: Tag) -> Moment:
    """Return the moment that a tag names; its snapshot's own file may have expired."""
    return Moment(tag.snapshot, "tag", tag.name, tag.name)


def of_savepoint(context: TableContext, savepoint: Savepoint, asked: str | None = None) -> Moment:
    """Return the moment of a savepoint; its snapshot's own file may have expired."""
    name = f"savepoint.{savepoint.id}"
    return Moment(readable_snapshot(context, savepoint), "savepoint", name, asked or name)


def newest(context: TableContext) -> Moment:
    """The newest snapshot. Raises `NotFoundError` if there is none."""
    head = context.snapshots.head()
    if head is None:
        raise NotFoundError(
            f"'{context.title}' has no snapshots: nothing was ever written to it",
            hint="write to it first.",
        )
    return of_snapshot(head)


def check_there(context: TableContext, moment: Moment) -> None:
    """Raise `NotFoundError` unless the reference that found a moment still exists and names the same snapshot."""
    match moment.found_by:
        case "snapshot":
            there = context.snapshots.still(moment.snapshot) is not None
        case "tag":
            tag = find_tag(context, moment.name)
            there = tag is not None and tag.snapshot.stamp == moment.snapshot.stamp
        case "savepoint":
            there = find_savepoint(context, int(moment.name.rpartition(".")[2])) is not None
    if not there:
        raise NotFoundError(
            f"'{moment.name}' of '{context.title}' was removed while a new reference to it was made",
            hint="choose a moment that is there: a newer snapshot, a tag or a savepoint.",
        )


def check_holds(context: TableContext, moment: Moment) -> None:
    """Raise `NotFoundError` if a new reference to a moment, which was written just now, does not hold it.

    An expiry that removed the moment before shows here; one that removes it later finds the new reference. Another engine's
    expiry removes the manifests of a snapshot first. If it died before the snapshot, the reference would hold nothing, and no
    expiry of ours goes on while one cannot be read in full.
    """
    if moment.found_by != "snapshot":
        check_there(context, moment)
        return
    with reading(context.storage) as begin:
        there = begin(partial(check_there, context, moment))
        above = begin(partial(context.snapshots.is_there, moment.snapshot.id + 1))
        there()
        if above():  # the newest never expires
            _check_manifests(context, moment.snapshot)


def holds_nothing(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether a reference to a snapshot was made too late to hold it: the snapshot has gone, and manifests of it as well.

    Such a one is left by a process that put it after an expiry, and died before it looked. What only has lost its snapshot's own
    file holds the rest.
    """
    return context.snapshots.still(snapshot) is None and _missing_manifest(context, snapshot) is not None


def _check_manifests(context: TableContext, snapshot: Snapshot) -> None:
    gone = _missing_manifest(context, snapshot)
    if gone is not None:
        raise NotFoundError(
            f"snapshot {snapshot.id} of '{context.title}' cannot be referred to: {gone} is gone",
            hint="choose a newer moment: an expiry of another engine may have ended in the middle. `verify` tells what is damaged.",
        )


def _missing_manifest(context: TableContext, snapshot: Snapshot) -> str | None:
    """Return a manifest or manifest list of a snapshot that is not in the store or cannot be read; None if all are there."""
    lists = [name for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list) if name != NO_LIST]
    exists = context.storage.exists
    try:
        manifests = [meta.file_name for name in lists for meta in context.manifests.read_list(name)]
        paths = [context.layout.manifest_path(name) for name in (*lists, *manifests)]
        found = each(exists, paths, at=context.storage)
    except CorruptTableError as error:
        return error.path or "a manifest of it"
    return next((path for path, is_there in zip(paths, found, strict=True) if not is_there), None)


def time_text(millis: int) -> str:
    """Format epoch milliseconds for people, in UTC."""
    try:
        return str(Timestamp(millis * 1_000_000, zoned=True))
    except PredicateError:
        return f"{millis} ms"


def duration_text(millis: int) -> str:
    """Format a duration in its two largest units, as ``2 h 3 min``."""
    parts, rest = [], abs(millis)
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 ms"
