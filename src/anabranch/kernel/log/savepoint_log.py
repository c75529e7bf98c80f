"""The savepoints of a table, as they are found in the store; `savepoints` makes and removes them.

Those of all branches lie in one folder under numbers that are the table's. A savepoint is of the branch that made
it, and of a branch that took over its pin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import deleted_savepoint_id_of, savepoint_id_of
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of savepoints that one listing shows."""

    present: tuple[int, ...]
    """Of all branches, ascending."""
    deleted: dict[int, int]
    """Those that left a mark when they were deleted, and when that was, in milliseconds since the epoch."""

    @property
    def next(self) -> int:
        """The number of the savepoint to be made next."""
        return max((*self.present, *self.deleted, 0)) + 1


def read_numbers(context: TableContext) -> Numbers:
    """Which savepoints there are and were."""
    present, deleted = [], {}
    for info in context.storage.list(context.layout.savepoint_folder):
        number, gone = savepoint_id_of(info.path), deleted_savepoint_id_of(info.path)
        if number is not None:
            present.append(number)
        elif gone is not None:
            deleted[gone] = info.modified_millis
    return Numbers(tuple(sorted(present)), deleted)


def find_savepoint(context: TableContext, number: int) -> Savepoint | None:
    """The savepoint of that number, whichever branch it is of, or None.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    try:
        return Savepoint.from_path(context.storage, context.layout.savepoint_path(number))
    except NotFoundError:
        return None


def get_savepoint(context: TableContext, number: int) -> Savepoint:
    """A savepoint of this branch. Raises `NotFoundError` naming those there are."""
    found = find_savepoint(context, number)
    if found is not None and is_of(context, found):
        return found
    known = ", ".join(str(savepoint.id) for savepoint in savepoints(context))
    hint = f"savepoints there are: {known}." if known else "`create_savepoint` makes one."
    if found is not None:
        raise NotFoundError(f"savepoint {number} is of another branch than '{context.title}'", hint=hint)
    was = " any more" if number in read_numbers(context).deleted else ""
    raise NotFoundError(f"savepoint {number} does not exist in '{context.title}'{was}", hint=hint)


def savepoints(context: TableContext) -> list[Savepoint]:
    """All savepoints of this branch, by ascending number."""
    found = each(lambda number: find_savepoint(context, number), read_numbers(context).present)
    return [savepoint for savepoint in found if savepoint is not None and is_of(context, savepoint)]


def newest_first(context: TableContext, numbers: Numbers) -> Iterator[Savepoint]:
    """The savepoints of this branch among these numbers, each read when it is asked for."""
    for number in reversed(numbers.present):
        savepoint = find_savepoint(context, number)
        if savepoint is not None and is_of(context, savepoint):
            yield savepoint


def is_of(context: TableContext, savepoint: Savepoint) -> bool:
    """Whether a savepoint is one of this branch."""
    maker = context.table_uuid if savepoint.branch_uuid is None else savepoint.branch_uuid
    return maker == context.branch_uuid or context.storage.exists(context.layout.tag_path(savepoint.pin))


def readable_snapshot(context: TableContext, savepoint: Savepoint) -> Snapshot:
    """What it saves, as a snapshot that can be read.

    The saved snapshot itself as long as its own manifest lists are there, so that it keeps its identity. They are
    pinned; should another engine have removed the pin and then the lists, the full list is read instead.
    """
    if savepoint.saved_snapshot is not None:
        try:
            context.manifests.of_snapshot(savepoint.saved_snapshot)
        except CorruptTableError:
            return savepoint.snapshot
        return savepoint.saved_snapshot
    return savepoint.snapshot
