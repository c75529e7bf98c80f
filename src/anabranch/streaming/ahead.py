"""Prefetching of a stream's history: snapshots, and what a stream needs of them, in parallel.

A stream that has fallen behind asks for one snapshot after the other, for its list, then for its manifest: on an object
store each is a round trip. So what comes next is read together, one at first, then twice as many as the time before: a
stream that is up to date asks for nothing more than before, and one that is behind waits once for sixty-four.

What is read ahead is no older than the step that reads it, and is judged in its turn: whether a snapshot follows the one
before, and what cannot be read, is found where the stream gets there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import AT_ONCE, each
from anabranch.streaming.portion import Listing, Portion, PortionFile

_MOST: Final = 64


class Ahead:
    """Prefetching lookup of snapshots for one step.

    Args:
        until: the last one wanted; None for no bound.
        files: whether manifests are wanted too.
    """

    def __init__(self, context: TableContext, until: int | None, *, files: bool) -> None:
        self._context = context
        self._until = until
        self._files = files
        self._found: dict[int, Snapshot | AnabranchError | None] = {}
        self._size = 1

    def find(self, number: int) -> Snapshot | None:
        """Return the snapshot of that number, or None. Raises as `SnapshotLog.find`."""
        if number not in self._found:
            self._read(number)
        found = self._found.pop(number)
        if isinstance(found, AnabranchError):
            raise found
        return found

    def _read(self, first: int) -> None:
        last = first + self._size - 1
        if self._until is not None:
            last = max(first, min(last, self._until))
        # One at first: there often is nothing new. Then as many as far stores answer in a round.
        least = AT_ONCE if self._context.storage.is_far else 0
        self._size = min(max(2 * self._size, least), _MOST)
        numbers = range(first, last + 1)
        self._found = {}
        for number, found in zip(
            numbers, each(partial(_found, self._context), numbers, at=self._context.storage), strict=True
        ):
            self._found[number] = found
            if found is None:
                break  # what lies above a gap is asked for when it is filled
        self._read_lists()

    def _read_lists(self) -> None:
        """Load what these snapshots name into the cache; failed reads are repeated later, and raise then."""
        names = [
            found.delta_manifest_list
            for found in self._found.values()
            if isinstance(found, Snapshot)
            and found.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE)
        ]
        if len(names) < 2:
            return
        with suppress(AnabranchError):
            lists = [*self._context.manifests.read_lists(names)]
            if self._files:
                metas = [
                    meta for found in lists if not isinstance(found, CorruptTableError) for meta in found
                ]
                self._context.manifests.fetch(metas)


def _found(context: TableContext, number: int) -> Snapshot | AnabranchError | None:
    try:
        return context.snapshots.find(number)
    except AnabranchError as error:
        return error


# Files of portions, planned in groups and cached for repeated requests of the same step.
#
# Spark asks how far a step goes, and then what is in it: with a limit both need every file. What a portion of a history
# delivers never changes, so it is kept for a while.

_TOGETHER: Final = 64
"""Number of portions that are planned together."""
_KEPT: Final = 100_000
"""Maximum number of cached files plus portions."""


class PortionPlanner:
    """Cached planner of portions' files."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._known: OrderedDict[tuple[Any, ...], list[PortionFile]] = OrderedDict()
        self._files = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return PortionPlanner, (self._listing,)

    def with_files(self, portions: Iterable[Portion]) -> Iterator[tuple[Portion, list[PortionFile]]]:
        """Yield each portion with all its files, including those delivered before; none for a refused one.

        A growing number of portions is planned ahead of the caller. Their errors are raised in their turn.
        """
        rest, size = iter(portions), 1
        while True:
            group: list[Portion] = []
            error: AnabranchError | None = None
            try:
                while len(group) < size:
                    portion = next(rest, None)
                    if portion is None:
                        break
                    group.append(portion)
                    if portion.refusal is not None:
                        break
            except AnabranchError as found:
                error = found
            if group:
                yield from self._planned(group)
            if error is not None:
                raise error
            if len(group) < size and (not group or group[-1].refusal is None):
                return
            size = min(2 * size, _TOGETHER)

    def _planned(self, group: list[Portion]) -> Iterator[tuple[Portion, list[PortionFile]]]:
        known = [None if p.refusal is not None else self._known.get(_key(p)) for p in group]
        missing = [p for p, files in zip(group, known, strict=True) if files is None and p.refusal is None]
        try:
            together: Iterator[list[PortionFile]] | None = iter(self._listing.files_of(missing))
        except AnabranchError:  # of one of them: raised when the caller gets there, after what comes before
            together = None
        for portion, kept in zip(group, known, strict=True):
            if kept is not None or portion.refusal is not None:
                yield portion, kept or []
                continue
            files = self._listing.files(portion) if together is None else next(together)
            self._keep(_key(portion), files)
            yield portion, files

    def _keep(self, key: tuple[Any, ...], files: list[PortionFile]) -> None:
        self._known[key] = files
        self._files += len(files) + 1
        while self._files > _KEPT and len(self._known) > 1:
            _, old = self._known.popitem(last=False)
            self._files -= len(old) + 1


def _key(portion: Portion) -> tuple[Any, ...]:
    """Return the cache key of a portion's files; names of manifest lists are unique."""
    snapshot = portion.snapshot
    since = None if portion.since is None else portion.since.held.stamp
    return (
        *(snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list, since, portion.full),
        *(portion.removed, portion.silent, portion.late_before, portion.begun_unordered),
    )
