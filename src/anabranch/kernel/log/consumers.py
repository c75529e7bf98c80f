"""Consumers: named readers whose position keeps snapshots from expiring.

A consumer is a file of its branch, ``consumer/consumer-<name>``, in the format other engines know: the id of
the next snapshot it reads. We add the exact position beside it. The file is replaced in place, so a reader
may find it half written and looks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.refs import Consumer
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.text.names import check_consumer_name, fits_file
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import OnUnread, each, tried

_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """A consumer and its lag behind the branch."""

    name: str
    next_snapshot: int
    snapshots: int
    """Snapshots it has not read."""
    rows: int | None
    """Rows they added; None if unknown, because some have expired or an engine did not count."""
    millis: int
    """Time since the oldest of them was committed; 0 if it is up to date."""
    modified_millis: int
    """When its position was last stored."""


def find_consumer(context: TableContext, name: str) -> Consumer | None:
    """Return the consumer of that name, also one named by another engine, or None. Raises `CorruptTableError`."""
    if "/" in name or "\\" in name or name in ("", ".", "..") or not fits_file(name):
        return None
    path = context.layout.consumer_path(name)
    for attempt in range(_TRIES):
        try:
            return Consumer.from_json(context.storage.get(path), path=path)
        except NotFoundError:
            return None
        except CorruptTableError as error:  # another engine may be writing it
            if attempt == _TRIES - 1:
                raise damaged(error, name) from error
            context.runtime.sleeper.sleep(_PAUSE_SECONDS)
    return None


def damaged(error: CorruptTableError, name: str) -> CorruptTableError:
    """Return the error for callers that need the position of a consumer whose file cannot be read."""
    text = error.message.removeprefix(f"{error.path}: ")
    hint = f"`consumers --reset {name}` says what it reads next, `consumers --delete {name}` lets go of it."
    return CorruptTableError(text, path=error.path, hint=hint)


def record_consumer(context: TableContext, name: str, consumer: Consumer) -> None:
    """Store a consumer's position, replacing the previous one.

    Raises `InvalidNameError`, and `NotFoundError` if another table was created under the table's name.
    """
    check_consumer_name(name)
    context.check_same_table()
    context.storage.put(context.layout.consumer_path(name), consumer.to_json())


def get_consumer(context: TableContext, name: str) -> Consumer:
    """Return the consumer of that name. Raises `NotFoundError` naming the existing consumers."""
    found = find_consumer(context, name)
    if found is None:
        known = [name for name, _ in _files(context)]
        raise NotFoundError(
            f"consumer '{name}' does not exist in '{context.title}'",
            hint=f"consumers there are: {', '.join(known)}." if known else "the table has no consumers.",
        )
    return found


def _check_there(context: TableContext, name: str) -> None:
    """Raise `NotFoundError` if there is no such consumer; damaged ones pass, as they can still be moved or deleted."""
    with suppress(CorruptTableError):
        get_consumer(context, name)


def forget_consumer(context: TableContext, name: str) -> None:
    """Delete a consumer, so that it no longer holds snapshots. Raises `NotFoundError`."""
    context.check_same_branch()
    _check_there(context, name)
    context.storage.delete(context.layout.consumer_path(name))


def move_consumer(context: TableContext, name: str, to: int | None = None) -> int:
    """Set the snapshot a consumer reads next; None: the next one to be committed.

    Returns:
        The snapshot it reads next.

    Raises:
        NotFoundError: there is no such consumer.
        InvalidInputError: the snapshot is not retained.
    """
    context.check_same_branch()
    _check_there(context, name)
    head = context.snapshots.head()
    newest = 0 if head is None else head.id
    earliest = context.snapshots.earliest_id() or 1
    wanted = newest + 1 if to is None else to
    if not earliest <= wanted <= newest + 1:
        raise InvalidInputError(
            f"consumer '{name}' is to read snapshot {wanted} next, but snapshots {earliest} to {newest} are retained",
            hint=f"choose one of them, or {newest + 1} for what is committed next.",
        )
    record_consumer(context, name, Consumer(wanted))
    return wanted


def find_consumers(context: TableContext, unread: OnUnread | None = None) -> list[tuple[str, int, Consumer]]:
    """Return the consumers of the branch by name, each with the time at which it was stored.

    Args:
        context: the branch.
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """
    files = tried("the consumers", lambda: [*_files(context)], unread) or []

    def find(file: tuple[str, int]) -> Consumer | None:
        return tried(f"consumer '{file[0]}'", lambda: find_consumer(context, file[0]), unread)

    found = each(find, files, at=context.storage)
    return [
        (name, modified, consumer)
        for (name, modified), consumer in zip(files, found, strict=True)
        if consumer is not None
    ]


def consumer_lags(context: TableContext, unread: OnUnread | None = None) -> list[ConsumerLag]:
    """Return the lag of all consumers of the branch, by name. Args and errors as `find_consumers`."""
    here = find_consumers(context, unread)
    head = context.snapshots.head()
    past = _backlog(context, head, min((consumer.unread_from for _, _, consumer in here), default=1))
    now = context.runtime.clock.now_millis()
    newest = 0 if head is None else head.id
    return [
        _lag(
            ConsumerLag(
                name, consumer.unread_from, max(0, newest - consumer.unread_from + 1), 0, 0, modified
            ),
            past,
            now,
        )
        for name, modified, consumer in here
    ]


@dataclass(frozen=True, slots=True)
class _Backlog:
    """Rows and age of the snapshots that a consumer with a given lag has not read."""

    rows: int | None
    since: int
    """When the oldest of them was committed."""


def _backlog(context: TableContext, head: Snapshot | None, lowest: int) -> list[_Backlog]:
    """Return the unread rows per lag in snapshots, from 1 on, as far as history is retained; one walk for all."""
    past: list[_Backlog] = []
    rows: int | None = 0
    if head is None or head.id < lowest:
        return past
    for snapshot in context.snapshots.down_to(head, lowest):
        if snapshot.commit_kind != CommitKind.COMPACT:
            added = snapshot.delta_record_count
            rows = None if rows is None or added is None else rows + max(0, added)
        past.append(_Backlog(rows, snapshot.time_millis))
    return past


def _lag(lag: ConsumerLag, past: Sequence[_Backlog], now: int) -> ConsumerLag:
    """Complete a lag with the rows and time of its unread snapshots."""
    if not lag.snapshots:
        return lag
    oldest = past[min(lag.snapshots, len(past)) - 1]
    rows = oldest.rows if lag.snapshots <= len(past) else None
    return replace(lag, rows=rows, millis=max(0, now - oldest.since))


def _files(context: TableContext) -> Iterator[tuple[str, int]]:
    infos = sorted(context.storage.list(context.layout.consumer_folder), key=lambda info: info.path)
    for info in infos:
        name = consumer_id_of(info.path)
        if name is not None:
            yield name, info.modified_millis
