"""The stored savepoints of a table; `anabranch.kernel.refs` makes and removes them.

Those of all branches lie in one folder and share the table's numbering. A savepoint belongs to the branch that made
it, and to a branch that took over its pin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import deleted_savepoint_id_of, savepoint_id_of
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import OnUnread, each, tried


@dataclass(frozen=True, slots=True)
class Numbers:
    """Savepoint numbers seen in one listing."""

    present: tuple[int, ...]
    """Of all branches, ascending."""
    deleted: dict[int, int]
    """Numbers of deleted savepoints that left a mark, with deletion times in epoch milliseconds."""

    @property
    def next(self) -> int:
        """The number for the next savepoint."""
        return max((*self.present, *self.deleted, 0)) + 1


def read_numbers(context: TableContext) -> Numbers:
    """List the existing and deleted savepoint numbers."""
    present, deleted = [], {}
    for info in context.storage.list(context.layout.savepoint_folder):
        number, gone = savepoint_id_of(info.path), deleted_savepoint_id_of(info.path)
        if number is not None:
            present.append(number)
        elif gone is not None:
            deleted[gone] = info.modified_millis
    return Numbers(tuple(sorted(present)), deleted)


def find_savepoint(context: TableContext, number: int) -> Savepoint | None:
    """Return the savepoint of that number, on any branch, or None.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    try:
        return Savepoint.from_path(context.storage, context.layout.savepoint_path(number))
    except NotFoundError:
        return None


def get_savepoint(context: TableContext, number: int) -> Savepoint:
    """Return a savepoint of this branch. Raises `NotFoundError` naming the existing ones."""
    found = find_savepoint(context, number)
    if found is not None and is_of(context, found):
        return found
    known = ", ".join(str(savepoint.id) for savepoint in savepoints(context))
    hint = f"savepoints there are: {known}." if known else "`create_savepoint` makes one."
    if found is not None:
        raise NotFoundError(f"savepoint {number} is of another branch than '{context.title}'", hint=hint)
    was = " any more" if number in read_numbers(context).deleted else ""
    raise NotFoundError(f"savepoint {number} does not exist in '{context.title}'{was}", hint=hint)


def savepoints(context: TableContext, unread: OnUnread | None = None) -> list[Savepoint]:
    """All savepoints of this branch, by ascending number.

    Args:
        context: the branch.
        unread: told of damaged ones, of whatever branch, which are left out. Without it they raise `CorruptTableError`.
    """

    def find(number: int) -> Savepoint | None:
        return tried(f"savepoint {number}", lambda: find_savepoint(context, number), unread)

    found = each(find, read_numbers(context).present, at=context.storage)
    return [savepoint for savepoint in found if savepoint is not None and is_of(context, savepoint)]


def newest_first(context: TableContext, numbers: Numbers) -> Iterator[Savepoint]:
    """Yield the savepoints of this branch among these numbers, newest first, read lazily."""
    for number in reversed(numbers.present):
        savepoint = find_savepoint(context, number)
        if savepoint is not None and is_of(context, savepoint):
            yield savepoint


def is_of(context: TableContext, savepoint: Savepoint) -> bool:
    """Whether a savepoint belongs to this branch."""
    maker = context.table_uuid if savepoint.branch_uuid is None else savepoint.branch_uuid
    return maker == context.branch_uuid or context.storage.exists(context.layout.tag_path(savepoint.pin))


def readable_snapshot(context: TableContext, savepoint: Savepoint) -> Snapshot:
    """Return the saved state as a readable snapshot.

    The saved snapshot itself if its own manifest lists still exist, so that it keeps its identity. They are
    pinned; if another engine removed the pin and then the lists, the savepoint's full list is read instead.
    """
    if savepoint.saved_snapshot is not None:
        try:
            context.manifests.of_snapshot(savepoint.saved_snapshot)
        except CorruptTableError:
            return savepoint.snapshot
        return savepoint.saved_snapshot
    return savepoint.snapshot
