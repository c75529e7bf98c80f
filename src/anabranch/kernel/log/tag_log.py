"""The stored tags of one branch; `tags` makes and removes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import OnUnread, each, tried

_LONGEST_NAME = 250
"""Most bytes of a tag's name, so that it fits a file name."""
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


def is_internal(name: str) -> bool:
    """Whether the table made the tag of this name for itself."""
    return name.startswith(RESERVED_TAG_PREFIX)


def _fits(name: str) -> bool:
    """Whether a file can have this name. Lone surrogates cannot be encoded in UTF-8."""
    try:
        return len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def find_tag(context: TableContext, name: str) -> Tag | None:
    """Return the tag of exactly that name, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
    if "/" in name or "\\" in name or name in ("", ".", "..") or not _fits(name):
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
        context: the branch.
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
