"""Course of a stream of main through successive mains, and how it gets from one to the next.

A stream that has had no row of what the old main alone has, when it is started again or comes to the end of the old main,
goes on with the new main at the same position: nothing is lost, and nothing wrong is delivered. Any other reads the old main
to its end, the seal. There, `scan.on-replace` decides:

| `scan.on-replace` | what comes next                                                                           |
|-------------------|-------------------------------------------------------------------------------------------|
| `fail`            | an error that says where the two mains parted                                             |
| `continue`        | what the new main has beyond the source positions that the old one had come to; where they |
|                   | are not known, what was committed to it after it became main                              |
| `replay`          | what the new main has after the snapshot where the two parted                             |
| `changes`         | the difference: rows that only the old one had as deleted, those only the new one has as  |
|                   | inserted; then what is committed to the new one                                           |

The step from one main to the next lies between two positions on different branches; like every other step it is the
same whenever it is asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from anabranch.errors import InvalidInputError, NotFoundError, OptionError, SourceReplacedError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.shell import command_line
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.main_branch import as_main_by, main_by_uuid, succession
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.seals import is_replaced_by
from anabranch.options import SCAN_ON_OVERWRITE, SCAN_ON_REPLACE
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import BEGINNING, FeedSplit, Position

_LOG = logging.getLogger(__name__)

_DIFFERENCE: Final = "difference"
"""Listing of a position that a stream reached by the difference from the old main."""
_NO_FILES_SCHEMA: Final = -1
"""Schema id that no file has."""


class Place(NamedTuple):
    """Position of a stream together with the feed of its branch."""

    feed: Feed
    position: Position


class Course:
    """Feeds of all branches that a stream passes through."""

    def __init__(self, feed: Feed, options: Mapping[str, str]) -> None:
        """Create the course of a stream that was opened on the branch of `feed`.

        Raises `OptionError`: `scan.on-replace` asks for changes that the stream has no column for.
        """
        self._opened = feed
        self._feeds = {feed.context.branch_uuid: feed}
        self._on_replace = SCAN_ON_REPLACE.of({**feed.schema.options, **options})
        if self._on_replace == "changes" and feed.on_overwrite != "changes":
            raise OptionError(
                f"{SCAN_ON_REPLACE.key} is 'changes', but {SCAN_ON_OVERWRITE.key} is '{feed.on_overwrite}', so the stream "
                "does not tell rows that were taken away from those that were added",
                hint=f"set {SCAN_ON_OVERWRITE.key}=changes as well.",
            )

    def feed_of(self, branch_uuid: str) -> Feed | None:
        """Return the feed of a branch by its uuid: the opened one, or one that is or was main; else None."""
        known = self._feeds.get(branch_uuid)
        if known is None and self._opened.context.main_generation is not None:
            context = main_by_uuid(self._opened.context, branch_uuid)
            known = None if context is None else self._on(context)
        return known

    def ahead(self, place: Place) -> Place | None:
        """Return the same position on the next main for a stream on a former one that has read none of what only that has.

        None for all others, at no cost for a stream on the main that it was opened on.
        """
        opened, context, position = self._opened.context, place.feed.context, place.position
        if context.branch_uuid == opened.branch_uuid or opened.main_generation is None:
            return None
        known = replacements(opened)
        if not known or known[-1].main.uuid == context.branch_uuid:
            return None  # it is main again
        pointer = succession(opened, context.branch_uuid)
        if pointer is None or pointer.replaced is None or position.files is not None or position.full:
            return None
        fork = pointer.replaced.fork
        if not _has_read_the_same(context, position, fork.id):
            return None
        feed = self._on(as_main_by(opened, pointer))
        if feed.context.branch_uuid != pointer.main.uuid:
            return None
        at = min(position.snapshot, fork.id)
        there = feed.context.snapshots.find(at or 1)
        before = context.snapshots.find(at or 1)
        if there is None:
            # What it has had has expired on the new main, so the rest is there as it was, or has expired too: then the
            # stream is told so. On the old main it would get what that alone has.
            earliest = feed.context.snapshots.earliest_id()
            if earliest is None or earliest <= (at or 1):
                return None
            return Place(feed, _after(fork) if at == fork.id else position)
        had = fork.stamp if before is None else before.stamp  # below the fork it is the same file
        if there.stamp != had:
            return None
        return Place(feed, Position.after(there) if at else BEGINNING)

    def next(self, place: Place) -> Place | None:
        """Return the start on the next main for a stream at the end of a replaced one; None if it is not there.

        Raises:
            SourceReplacedError: `scan.on-replace` is ``fail``.
            NotFoundError: the new main is not there any more.
        """
        pointer = self._end_of(place)
        if pointer is None:
            return None
        assert pointer.replaced is not None, "it is a replacement"
        opened = self._opened.context
        feed = self._on(as_main_by(opened, pointer))
        if feed.context.branch_uuid != pointer.main.uuid:
            raise _lost(feed.context, pointer)
        fork = pointer.replaced.fork
        if _has_read_the_same(place.feed.context, place.position, fork.id):
            return Place(feed, _after(fork))
        match self._on_replace:
            case "continue":
                return Place(feed, _after(pointer.replaced.resume))
            case "replay":
                _LOG.warning(
                    "the stream of '%s' goes back to snapshot %d, where %s, which is main now, parted from the old "
                    "main: rows that it delivered since may come again",
                    *(opened.name, pointer.replaced.fork.id, pointer.main),
                )
                return Place(feed, _after(pointer.replaced.fork))
            case "changes":
                head = feed.context.snapshots.head()
                if head is None:
                    raise _lost(feed.context, pointer)
                return Place(feed, replace(Position.after(head), listing=_DIFFERENCE))
            case _:
                raise _refusal(feed.context, pointer)

    @staticmethod
    def begin_of(start: Place, end: Place) -> Position:
        """Return the position on the branch of `end` after which the rows between the places were committed."""
        if start.feed.context.branch_uuid == end.feed.context.branch_uuid:
            return start.position
        if not is_difference(end.position):
            return end.position
        fork = end.feed.context.fork
        return BEGINNING if fork is None else _after(fork.snapshot)

    def splits(self, start: Place, end: Place) -> list[FeedSplit]:
        """Return the splits between two places; also between the end of one main and the next."""
        if start.feed.context.branch_uuid == end.feed.context.branch_uuid:
            return start.feed.splits(start.position, end.position)
        if end.position.listing != _DIFFERENCE:
            return []
        return _difference(start, end)

    def _end_of(self, place: Place) -> MainPointer | None:
        context, position = place.feed.context, place.position
        if context.main_generation is None or position.files is not None:
            return None
        snapshot = context.snapshots.find(position.snapshot) if position.snapshot else None
        return None if snapshot is None else is_replaced_by(context, snapshot)

    def _on(self, context: TableContext) -> Feed:
        """Return the feed of another branch, with the columns that the stream began with."""
        known = self._feeds.get(context.branch_uuid)
        if known is None:
            newest, begun = context.schemas.latest(), self._opened.schema
            if newest is None:
                raise NotFoundError(
                    f"'{context.title}' is not there any more",
                    hint="start with a new checkpoint location, or reset the consumer.",
                )
            if newest.fields != begun.fields:
                newest = replace(newest, id=_NO_FILES_SCHEMA, fields=begun.fields)
            known = self._feeds[context.branch_uuid] = replace(self._opened, context=context, schema=newest)
        return known


def is_difference(position: Position) -> bool:
    """Whether a stream came to a new main by its difference from the old one."""
    return position.listing == _DIFFERENCE


def _has_read_the_same(former: TableContext, position: Position, fork: int) -> bool:
    """Whether a stream of a former main has had rows only of what it has in common with the next main."""
    beyond = (former.snapshots.find(number) for number in range(fork + 1, position.snapshot + 1))
    return all(snapshot is not None and snapshot.brings_nothing for snapshot in beyond)


def _after(reference: SnapshotRef) -> Position:
    return Position(reference.id, reference.stamp or None)


def _difference(start: Place, end: Place) -> list[FeedSplit]:
    """Return the files that only one of two mains has, those of the old one as removed."""
    old, new = _snapshot_at(start), _snapshot_at(end)
    gone, come = start.feed.all_files(old), end.feed.all_files(new)
    before, after = {f.file.path for f in gone}, {f.file.path for f in come}
    removed = [f._replace(removed=True) for f in gone if f.wanted and f.file.path not in after]
    added = [f for f in come if f.wanted and f.file.path not in before]
    return [
        *(start.feed.as_splits(removed, new.watermark) if removed else []),
        *(end.feed.as_splits(added, new.watermark) if added else []),
    ]


def _snapshot_at(place: Place) -> Snapshot:
    context, position = place.feed.context, place.position
    found = context.snapshots.find(position.snapshot)
    if found is None or found.stamp != position.stamp:
        raise InvalidInputError(
            f"what differs between two mains of '{context.name}' is not known any more: snapshot {position.snapshot} of "
            f"'{context.title}' is gone",
            hint="start with a new checkpoint location and scan.mode=latest-full.",
        )
    check_snapshot_readable(context, found)
    return found


def _refusal(new: TableContext, pointer: MainPointer) -> SourceReplacedError:
    assert pointer.replaced is not None, "it is a replacement"
    fork, last, head = pointer.replaced.fork.id, pointer.replaced.head.id, new.snapshots.head()
    return SourceReplacedError(
        f"main of '{new.name}' was replaced by {pointer.main}: the stream has read the old main to its last snapshot, "
        f"{last}; up to snapshot {fork} the new main is the same, and its newest is {0 if head is None else head.id}. "
        f"{SCAN_ON_REPLACE.key} is 'fail'",
        hint=f"`{command_line('cascade', new.name, '--plan')}` says how the tables that were made from it are corrected. Or look at what "
        f"differs with diff('{former_main_name(pointer.generation)}', 'main'), then restart the query "
        f"from its checkpoint with {SCAN_ON_REPLACE.key}=continue to go on beyond what the old main had read from its "
        "sources, =replay to go back to where the two parted, or =changes for what differs.",
    )


def _lost(new: TableContext, pointer: MainPointer) -> NotFoundError:
    return NotFoundError(
        f"main of '{new.name}' was replaced by {pointer.main}, which is not there any more",
        hint="start with a new checkpoint location, or reset the consumer.",
    )
