"""Finding a moment of a table by number, by tag or by time."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import InvalidInputError, NotFoundError, OptionError, UnsupportedFeatureError
from anabranch.kernel.context import TableContext
from anabranch.options import SCAN_SNAPSHOT_ID, SCAN_TAG_NAME, SCAN_TIMESTAMP_MILLIS
from anabranch.spec.layout import branch_name_of, tag_name_of
from anabranch.spec.refs import Tag
from anabranch.spec.snapshot import Snapshot

_LONGEST_NAME = 250  # bytes of a tag's name that fit a file name
_LONGEST_NUMBER = 19  # digits of the largest snapshot id


def tag_names(context: TableContext) -> list[str]:
    """Names of all tags of the branch, sorted."""
    infos = context.storage.list(context.layout.tag_folder)
    return sorted(name for info in infos if (name := tag_name_of(info.path)) is not None)


def find_tag(context: TableContext, name: str) -> Tag | None:
    """The tag of that name, or None."""
    if "/" in name or "\\" in name or name in ("", ".", "..") or len(name.encode()) > _LONGEST_NAME:
        return None
    path = context.layout.tag_path(name)
    try:
        return Tag.from_json(context.storage.get(path), name=name, path=path)
    except NotFoundError:
        return None


def get_tag(context: TableContext, name: str) -> Tag:
    """The tag of that name. Raises `NotFoundError` naming the tags there are."""
    tag = find_tag(context, name)
    if tag is None:
        known = tag_names(context)
        raise NotFoundError(
            f"tag '{name}' does not exist in '{context.title}'",
            hint=f"tags there are: {', '.join(known)}." if known else "the table has no tags.",
        )
    return tag


def branch_names(context: TableContext) -> list[str]:
    """Names of all branches except main, sorted."""
    folders = context.storage.list_folders("branch")
    return sorted(name for folder in folders if (name := branch_name_of(folder)) is not None)


def open_branch(context: TableContext, branch: str) -> TableContext:
    """A branch of a table. Raises `NotFoundError` naming the branches there are."""
    found = context.on_branch(branch)
    if not found.schemas.ids():
        known = branch_names(context)
        raise NotFoundError(
            f"branch '{branch}' does not exist in '{context.name}'",
            hint=f"branches there are: main{''.join(f', {name}' for name in known)}.",
        )
    return found


def resolve(context: TableContext, version: str | int) -> Snapshot:
    """The snapshot that `version` names: an id, ``snapshot.N`` or a tag.

    Raises:
        NotFoundError: there is no such snapshot or tag; the message names what there is.
        InvalidInputError: digits that are both a tag's name and a snapshot's number.
    """
    if isinstance(version, int):
        return context.snapshots.get(version)
    prefix, _, rest = version.partition(".")
    number = _number(rest)
    if prefix == "snapshot" and number is not None:
        return context.snapshots.get(number)
    if prefix == "savepoint" and number is not None:
        raise UnsupportedFeatureError(
            f"'{version}' asks for a savepoint, which this version does not read",
            feature="savepoints",
            hint="name a snapshot or a tag.",
        )
    bare = _number(version)
    if bare is None:
        return get_tag(context, version).snapshot
    tag, snapshot = find_tag(context, version), context.snapshots.find(bare)
    if tag is not None and snapshot is not None:
        raise InvalidInputError(
            f"'{version}' is ambiguous: it names a tag (of snapshot {tag.snapshot.id}) and a snapshot",
            hint=f"use 'snapshot.{version}', or the option scan.tag-name for the tag.",
        )
    return tag.snapshot if tag is not None else context.snapshots.get(bare)


def _number(text: str) -> int | None:
    """The id of a snapshot that `text` spells, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def snapshot_of(context: TableContext, options: Mapping[str, str]) -> Snapshot | None:
    """The snapshot that the options of a read ask for, or None if they name none.

    Raises `OptionError` if they name several, `NotFoundError` if it does not exist.
    """
    named = [
        option.key
        for option in (SCAN_SNAPSHOT_ID, SCAN_TAG_NAME, SCAN_TIMESTAMP_MILLIS)
        if option.key in options
    ]
    if len(named) > 1:
        raise OptionError(f"a read names one moment, found {' and '.join(named)}", hint="leave one of them.")
    snapshot_id = SCAN_SNAPSHOT_ID.of(options)
    if snapshot_id is not None:
        return context.snapshots.get(snapshot_id)
    tag = SCAN_TAG_NAME.of(options)
    if tag is not None:
        return get_tag(context, tag).snapshot
    millis = SCAN_TIMESTAMP_MILLIS.of(options)
    return None if millis is None else at_or_before(context, millis)


def at_or_before(context: TableContext, millis: int) -> Snapshot:
    """The newest snapshot made at that moment (epoch milliseconds) or before. Raises `NotFoundError`."""
    head = context.snapshots.head()
    earliest = context.snapshots.earliest_id()
    if head is None or earliest is None:
        raise NotFoundError(f"'{context.title}' has no snapshots")
    low, high = earliest, head.id
    found, after = None, head
    while low <= high:
        middle = (low + high) // 2
        snapshot = context.snapshots.find(middle)
        if snapshot is None:
            low = middle + 1  # expired since, and all before it
        elif snapshot.time_millis <= millis:
            found, low = snapshot, middle + 1
        else:
            high, after = middle - 1, snapshot
    if found is None:
        raise NotFoundError(
            f"'{context.title}' has no snapshot at or before {millis}: "
            f"the earliest is snapshot {after.id} of {after.time_millis}",
            hint="ask for a later moment, or read a tag.",
        )
    return found
