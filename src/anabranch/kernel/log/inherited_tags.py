"""The tags that main inherits from what was main before, and marks of those that were deleted on it.

A branch that becomes main copies no tags of the history before its fork: ``TAGS-<g>`` of the replacement has them as they were then,
and is never changed. So the main before goes on to have its own, whatever becomes of them on the new one, and an undo finds them. What
is made on main since, or moved to another snapshot, lies in main's own folder, and comes before what it inherits; an inherited tag
that is deleted leaves a mark there, ``DELETED-<g>-<digest of its name>``.

All of it counts as references (`anabranch.kernel.expiry.ref_files`). Other engines look at files of tags only: they find those
of a former main as long as that is kept, and when it goes, main gets files of its own (`refs.tags.own_inherited`).

What the table keeps for itself, pins of all kinds, is not inherited. By these another engine spares what its own expiry of a
folder could take. Main's folder begins with its fork: such an expiry takes only files that were there then, which main's own
fork pin holds, or came later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.layout import check_file_name, numbered_id
from anabranch.format.records.main_pointer import TAGS_PREFIX, InheritedTag, InheritedTags
from anabranch.format.records.refs import Tag
from anabranch.format.text.json_object import to_bytes
from anabranch.format.text.names import RESERVED_TAG_PREFIX, fits_file
from anabranch.kernel.log.context import TableContext

MARK_PREFIX: Final = "DELETED-"
"""File name prefix of marks, in the folder of main's tags."""
_COPY_PREFIX: Final = "tags-"
"""File name prefix of copies, in the archive's folder."""
_WEIGHT: Final = 2048
"""Approximate bytes of a cached tag."""


@dataclass(frozen=True, slots=True)
class StoredTag:
    """A tag, and how old it is."""

    tag: Tag
    stored_millis: int
    """When its file was stored, in epoch milliseconds."""


def inherited_tags(context: TableContext) -> dict[str, StoredTag]:
    """Return the tags that main took over when it became main, whether or not they were deleted since, by name.

    Raises `CorruptTableError`: their file is damaged, and so is its copy.
    """
    number = inherited_number(context)
    return {} if number is None else read_inherited(context, number)


def inherited_number(context: TableContext) -> int | None:
    """Return the number of the replacement whose tags main inherits; None if it inherits none."""
    return context.past[0].tags if context.past else None


def read_inherited(context: TableContext, number: int) -> dict[str, StoredTag]:
    """Return the tags that the main of a replacement took over, by name. Raises as `inherited_tags`."""
    path, copy = inherited_paths(context, number)
    key = (context.table_uuid, context.storage.url, path)
    known: dict[str, StoredTag] | None = context.cache.get(key)
    if known is not None:
        return known
    try:
        found = read_inherited_at(context, path)
    except CorruptTableError as damaged:
        try:
            found = read_inherited_at(context, copy)
        except CorruptTableError:
            raise damaged from None
    context.cache.put(key, found, _WEIGHT * len(found))
    return found


def read_inherited_at(context: TableContext, path: str) -> dict[str, StoredTag]:
    """Read one of the files of inherited tags. Raises `CorruptTableError`: it is damaged, or not there."""
    record = InheritedTags.find(context.storage, path)
    if record is None:
        raise CorruptTableError(
            "is not there, and has the tags of what was before main was replaced",
            path=path,
            hint="`repair` puts it back from its copy, if that is there.",
        )
    found: dict[str, StoredTag] = {}
    for one in record.tags:
        check_file_name(one.name, path=path)
        if one.name in found or one.name.startswith(RESERVED_TAG_PREFIX) or not fits_file(one.name):
            raise CorruptTableError(
                f"names a tag {one.name[:80]!r}, which no replacement writes there", path=path
            )
        tag = Tag.from_json(to_bytes(one.tag), name=one.name, path=path)
        found[one.name] = StoredTag(tag, one.stored_millis)
    return found


def put_inherited(context: TableContext, number: int, tags: Sequence[StoredTag]) -> bool:
    """Store the tags that the main of a replacement will have taken over; False if there are none."""
    if tags:
        content = inherited_content(tags)
        context.storage.put_many(dict.fromkeys(inherited_paths(context, number), content))
    return bool(tags)


def inherited_content(tags: Iterable[StoredTag]) -> bytes:
    """Return the content of a file of inherited tags."""
    return InheritedTags(
        tuple(InheritedTag(stored.tag.name, stored.stored_millis, stored.tag.to_dict()) for stored in tags)
    ).to_json()


def inherited_paths(context: TableContext, number: int) -> tuple[str, str]:
    """Return the path of the tags that the main of a replacement took over, and that of their copy."""
    layout = context.layout
    return layout.branches_file_path(f"{TAGS_PREFIX}{number}"), layout.history_path(f"{_COPY_PREFIX}{number}")


def inherited_number_of(path: str) -> int | None:
    """Return the number of the replacement whose tags a file has, or None for a file of another kind."""
    name = path.rpartition("/")[2]
    number = numbered_id(name, TAGS_PREFIX)
    return numbered_id(name, _COPY_PREFIX) if number is None else number


def hide_inherited(context: TableContext, name: str) -> bool:
    """Delete a tag that main inherits, and nothing of its own; False if it has none of that name, or that was deleted before."""
    return name in inherited_tags(context) and context.storage.put_if_absent(_mark_path(context, name), b"")


def is_hidden(context: TableContext, name: str) -> bool:
    """Whether a tag that main inherits was deleted on it."""
    return context.storage.exists(_mark_path(context, name))


def mark_of(context: TableContext, name: str) -> str:
    """Return the name of the file that says that a tag, which main inherits, was deleted on it."""
    return mark_by(inherited_number(context), name)


def mark_by(number: int | None, name: str) -> str:
    """Return the same for the main of the replacement of that number."""
    return f"{MARK_PREFIX}{number}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _mark_path(context: TableContext, name: str) -> str:
    return f"{context.layout.tag_folder}/{mark_of(context, name)}"
