"""Prefetching of a stream's history: snapshots, and what a stream needs of them, in parallel.

A stream that has fallen behind asks for one snapshot after the other, for its list, then for its manifest: on an object
store each is a round trip. So what comes next is read together, one at first, then twice as many as the time before: a
stream that is up to date asks for nothing more than before, and one that is behind waits once for sixty-four.

What is read ahead is no older than the step that reads it, and is judged in its turn: whether a snapshot follows the one
before, and what cannot be read, is found where the stream gets there.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import AT_ONCE, each

_MOST: Final = 64


class Ahead:
    """Prefetching lookup of snapshots for one step.

    Args:
        context: the branch.
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
