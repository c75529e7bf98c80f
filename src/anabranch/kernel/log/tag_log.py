"""The stored tags of a branch; `anabranch.kernel.refs` makes and removes them.

Main has its own, and those that it inherits from what was main before (`anabranch.kernel.log.inherited_tags`): its own come first.
Pins, which the table makes for itself, are found in the branch's own folder only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX, check_is_text, fits_file
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import (
    MARK_PREFIX,
    StoredTag,
    inherited_tags,
    is_hidden,
    mark_of,
)
from anabranch.kernel.log.parallel import OnUnread, each, tried

_MOST_SHOWN: Final = 12

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
    """Names of the tags in the branch's own folder, internal ones included, sorted."""
    return [*tag_times(context)]


def tag_times(context: TableContext) -> dict[str, int]:
    """Return when each tag in the branch's own folder was stored, in epoch milliseconds, by name, sorted; internal ones included."""
    return _listed(context).times


def put_tag(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """Store a tag of the table itself, whether or not there is one of that name."""
    context.storage.put(context.layout.tag_path(name), Tag(name, snapshot).to_json())


def delete_tags(context: TableContext, names: Iterable[str]) -> None:
    """Remove tags of the table itself; those that are gone do not matter."""
    paths = [context.layout.tag_path(name) for name in names]
    if paths:
        context.storage.delete_many(paths)


def is_internal(name: str) -> bool:
    """Whether the table made the tag of this name for itself. Raises `InvalidNameError` if it is no text."""
    check_is_text("tag", name)
    return name.startswith(RESERVED_TAG_PREFIX)


def find_tag(context: TableContext, name: str) -> Tag | None:
    """Return the tag of exactly that name, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
    own = own_tag(context, name)
    if own is not None or is_internal(name):
        return own
    inherited = inherited_tags(context).get(name)
    if inherited is None or not is_hidden(context, name):
        return None if inherited is None else inherited.tag
    return own_tag(context, name)  # it may have been put before the mark since


def get_tag(context: TableContext, name: str) -> Tag:
    """Return the tag of exactly that name. Raises `NotFoundError` naming the existing tags."""
    check_is_text("tag", name)
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
    return _each(find_tag, context, names, unread)


def all_tags(context: TableContext) -> list[Tag]:
    """Return the tags of a branch, those that the table keeps for itself included. Raises `CorruptTableError`."""
    own = _listed(context)
    return [*find_tags(context, own.times), *(stored.tag for stored in _unlisted(context, own))]


def own_tag(context: TableContext, name: str) -> Tag | None:
    """Return the tag of exactly that name in the branch's own folder, or None. Raises as `find_tag`."""
    if not _is_file(name):
        return None
    path = context.layout.tag_path(name)
    try:
        return Tag.from_json(context.storage.get(path), name=name, path=path)
    except NotFoundError:
        return None


def stored_millis(context: TableContext, name: str) -> int:
    """Return when a tag's file was stored, in epoch milliseconds. Raises `NotFoundError`."""
    try:
        return context.storage.info(context.layout.tag_path(name)).modified_millis
    except NotFoundError:
        inherited = inherited_tags(context).get(name)
        if inherited is None or is_hidden(context, name):
            raise
        return inherited.stored_millis


def stored_tags(context: TableContext, unread: OnUnread | None = None) -> list[StoredTag]:
    """Return the tags that somebody made, by name.

    Args:
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """
    own = _listed(context)
    names = [name for name in own.times if not is_internal(name)]
    tags = find_own(context, names, unread)
    found = [StoredTag(tag, own.times[tag.name]) for tag in tags]
    return sorted([*found, *_unlisted(context, own)], key=lambda stored: stored.tag.name)


def visible_tags(context: TableContext, unread: OnUnread | None = None) -> list[Tag]:
    """Return the tags that somebody made, by name; arguments as for `stored_tags`."""
    return [stored.tag for stored in stored_tags(context, unread)]


def visible_names(context: TableContext) -> list[str]:
    """Return the names of the tags that somebody made, damaged ones included, sorted."""
    own = _listed(context)
    names = (name for name in own.times if not is_internal(name))
    return sorted([*names, *(stored.tag.name for stored in _unlisted(context, own))])


def tags_there_are(context: TableContext) -> str:
    """Return the hint for errors about a missing tag, which lists the existing ones."""
    names = visible_names(context)
    if not names:
        return "the table has no tags."
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"tags there are: {', '.join(names[:_MOST_SHOWN])}{more}."


def find_own(context: TableContext, names: Iterable[str], unread: OnUnread | None = None) -> list[Tag]:
    """Return those of these tags that are in the branch's own folder; arguments as for `find_tags`."""
    return _each(own_tag, context, names, unread)


def _each(
    find: Callable[[TableContext, str], Tag | None],
    context: TableContext,
    names: Iterable[str],
    unread: OnUnread | None,
) -> list[Tag]:
    def ask(name: str) -> Tag | None:
        return tried(f"tag '{name}'", lambda: find(context, name), unread)

    found = each(ask, list(names), at=context.storage)
    return [tag for tag in found if tag is not None]


def stored_inherited(context: TableContext) -> list[StoredTag]:
    """Return the inherited tags that were not deleted on main. Raises as `inherited_tags`."""
    listing = _listed(context)
    return _unlisted(context, _Listing({}, listing.marks))


def _unlisted(context: TableContext, own: _Listing) -> list[StoredTag]:
    """Return the inherited tags that main has, for which it has none of its own."""
    return [
        stored
        for name, stored in inherited_tags(context).items()
        if name not in own.times and mark_of(context, name) not in own.marks
    ]


@dataclass(frozen=True, slots=True)
class _Listing:
    """What the folder of a branch's tags has."""

    times: dict[str, int]
    """When each tag was stored, in epoch milliseconds, by name, sorted; internal ones included."""
    marks: frozenset[str]
    """Of inherited tags that were deleted."""


def _listed(context: TableContext) -> _Listing:
    times, marks = {}, set()
    for info in context.storage.list(context.layout.tag_folder):
        file = info.path.rpartition("/")[2]
        name = tag_name_of(file)
        if name is not None:
            times[name] = info.modified_millis
        elif file.startswith(MARK_PREFIX):
            marks.add(file)
    return _Listing(dict(sorted(times.items())), frozenset(marks))


def _is_file(name: str) -> bool:
    return not ("/" in name or "\\" in name or name in ("", ".", "..")) and fits_file(name)
