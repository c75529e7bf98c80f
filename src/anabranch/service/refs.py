"""Tags, savepoints and the positions of consumers, for the command line."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.log.consumers import (
    ConsumerLag,
    consumer_lags,
    forget_consumer,
    move_consumer,
)
from anabranch.kernel.log.tag_log import find_tags, get_tag
from anabranch.service.tables import View, open_lake, open_table
from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class TagInfo:
    """One tag, for display; times in epoch milliseconds."""

    name: str
    snapshot: int
    time_millis: int
    """Commit time of the snapshot."""
    rows: int | None
    create_time: int | None
    """In the local time of its creator."""
    expires: int | None
    """Expiry time, also in local time; None if it stays for good."""


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """One savepoint, for display; times in epoch milliseconds."""

    id: int
    snapshot: int
    schema_id: int
    save_time: int | None
    rows: int


def open_branch(warehouse: str, table: str, branch: str | None) -> Table:
    """Open a branch of a table at its newest state. Raises `NotFoundError`."""
    return open_table(open_lake(warehouse), View(table, branch))


def tags(table: Table, *, include_internal: bool = False) -> list[TagInfo]:
    """Return the tags of the branch, by name."""
    names = table.tags(include_internal=include_internal)
    return [_tag_info(tag) for tag in find_tags(table.context, names)]


def tag(table: Table, name: str) -> TagInfo:
    """Return one tag. Raises `NotFoundError`."""
    return _tag_info(get_tag(table.context, name))


def create_tag(
    table: Table, name: str, *, snapshot: str | None, timestamp: str | None, retained: str | None
) -> TagInfo:
    """Tag a moment of the branch; arguments as `Table.create_tag` takes them."""
    return _tag_info(table.create_tag(name, snapshot, timestamp=timestamp, retained=retained))


def replace_tag(table: Table, name: str, *, snapshot: str | None, retained: str | None) -> TagInfo:
    """Move a tag to another moment; arguments as `Table.replace_tag` takes them."""
    return _tag_info(table.replace_tag(name, snapshot, retained=retained))


def create_savepoint(table: Table, *, snapshot: str | None) -> SavepointInfo:
    """Keep a moment of the branch for good."""
    return savepoint_info(table.create_savepoint(snapshot))


def savepoints(table: Table) -> list[SavepointInfo]:
    """Return the savepoints that can be read on the branch, by number."""
    return [savepoint_info(savepoint) for savepoint in table.savepoints()]


def savepoint(table: Table, number: int) -> SavepointInfo:
    """Return one savepoint. Raises `NotFoundError`."""
    return savepoint_info(table.savepoint_manager.savepoint(number))


def savepoint_info(savepoint: Savepoint) -> SavepointInfo:
    """Convert a savepoint for display."""
    return SavepointInfo(
        savepoint.id,
        savepoint.saved_snapshot_id,
        savepoint.schema_id,
        savepoint.save_time,
        savepoint.record_count,
    )


def consumers(table: Table) -> list[ConsumerLag]:
    """Return the consumers of the branch, by name."""
    return consumer_lags(table.context)


def reset_consumer(table: Table, name: str, to: int | None) -> None:
    """Make a consumer read snapshot `to` next, or the next commit if None.

    Raises `NotFoundError` if there is no such consumer, `InvalidInputError` if the snapshot is not retained.
    """
    move_consumer(table.context, name, to)


def delete_consumer(table: Table, name: str) -> None:
    """Delete a consumer. Raises `NotFoundError`."""
    forget_consumer(table.context, name)


def _tag_info(tag: Tag) -> TagInfo:
    expires = None
    if tag.create_time is not None and tag.time_retained is not None:
        expires = tag.create_time + tag.time_retained
    snapshot = tag.snapshot
    return TagInfo(
        tag.name, snapshot.id, snapshot.time_millis, snapshot.total_record_count, tag.create_time, expires
    )
