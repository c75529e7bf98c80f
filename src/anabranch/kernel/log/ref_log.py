"""The stored tags of a branch and the savepoints of a table; `anabranch.kernel.refs` makes and removes them.

Savepoints of all branches lie in one folder and share the table's numbering. A savepoint belongs to the branch that made
it, and to a branch that took over its pin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import deleted_savepoint_id_of, savepoint_id_of, tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX, fits_file
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import OnUnread, each, tried

_MOST_SHOWN = 12


UNKNOWN: Final = Snapshot(
    id=0,
    schema_id=0,
    base_manifest_list=NO_LIST,
    delta_manifest_list=NO_LIST,
    commit_user="",
    commit_identifier=BATCH_COMMIT_IDENTIFIER,
    commit_kind=CommitKind.APPEND,
    time_millis=0,
)
"""What a tag named that could not be read."""


def tag_names(context: TableContext) -> list[str]:
    """Names of all tags of the branch, internal ones included, sorted."""
    return [*tag_times(context)]


def tag_times(context: TableContext) -> dict[str, int]:
    """Return when each tag's file was stored, in epoch milliseconds, by name, sorted; internal ones included."""
    infos = context.storage.list(context.layout.tag_folder)
    times = {name: info.modified_millis for info in infos if (name := tag_name_of(info.path)) is not None}
    return dict(sorted(times.items()))


def put_tag(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """Store a tag of the table itself, whether or not there is one of that name."""
    context.storage.put(context.layout.tag_path(name), Tag(name, snapshot).to_json())


def delete_tags(context: TableContext, names: Iterable[str]) -> None:
    """Remove tags of the table itself; those that are gone do not matter."""
    paths = [context.layout.tag_path(name) for name in names]
    if paths:
        context.storage.delete_many(paths)


def is_internal(name: str) -> bool:
    """Whether the table made the tag of this name for itself."""
    return name.startswith(RESERVED_TAG_PREFIX)


def find_tag(context: TableContext, name: str) -> Tag | None:
    """Return the tag of exactly that name, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
    if "/" in name or "\\" in name or name in ("", ".", "..") or not fits_file(name):
        return None
    path = context.layout.tag_path(name)
    try:
        return Tag.from_json(context.storage.get(path), name=name, path=path)
    except NotFoundError:
        return None


def get_tag(context: TableContext, name: str) -> Tag:
    """Return the tag of exactly that name. Raises `NotFoundError` naming the existing tags."""
    tag = find_tag(context, name)
    if tag is None:
        raise NotFoundError(f"tag '{name}' does not exist in '{context.title}'", hint=tags_there_are(context))
    return tag


def find_tags(context: TableContext, names: Iterable[str], unread: OnUnread | None = None) -> list[Tag]:
    """Return those of these tags that exist, in the order of the names.

    Args:
        names: of the tags.
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """

    def find(name: str) -> Tag | None:
        return tried(f"tag '{name}'", lambda: find_tag(context, name), unread)

    found = each(find, list(names), at=context.storage)
    return [tag for tag in found if tag is not None]


def tags_there_are(context: TableContext) -> str:
    """Return the hint for errors about a missing tag, which lists the existing ones."""
    names = [name for name in tag_names(context) if not is_internal(name)]
    if not names:
        return "the table has no tags."
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"tags there are: {', '.join(names[:_MOST_SHOWN])}{more}."


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
