"""Positions of consumers, and a consumer that follows a stream whose progress is kept elsewhere.

Spark's checkpoint says where its stream is, and the consumer follows it. It is stored when a new stream begins, so that nothing the stream has yet to read expires,
and moves only to positions that Spark has committed, so it is never ahead of the checkpoint. A stream without a
checkpoint goes on where its consumer is; where both exist the checkpoint wins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from anabranch.errors import NotFoundError, StorageError
from anabranch.format.records.refs import UNREAD_FROM, Consumer
from anabranch.format.text.names import check_consumer_name
from anabranch.kernel.log.consumers import find_consumer, forget_consumer, record_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import as_main_before
from anabranch.kernel.log.main_pointer import replacements
from anabranch.options import CONSUMER_EXPIRATION_TIME, SCAN_ON_OVERWRITE
from anabranch.streaming.history import History
from anabranch.streaming.offsets import Offset, Position, check_same_history
from anabranch.streaming.scan_modes import first_position

_LOG = logging.getLogger(__name__)

_SIGNS_OF_LIFE: Final = 3
"""Number of times that an idle consumer is stored again within its expiry time."""
_TRIES: Final = 5


def consumed_position(
    context: TableContext, name: str, options: Mapping[str, str], *, keep_previous: bool = False
) -> tuple[TableContext, Position]:
    """Return the position of a consumer; a new one is stored at the start in the options, which pins what is unread.

    Returns:
        the branch, which for a consumer of main may be one that was main, and the position there.

    Raises as `first_position`, and `InvalidInputError` if the consumer belongs to another table or branch.
    """
    for place in (context, *_former_mains(context)):
        known = find_consumer(place, name)
        if known is not None:
            return place, position_of(place, known)
    position = first_position(context, options)
    for _ in range(_TRIES):
        record_consumer(context, name, consumer_at(context, position, keep_previous=keep_previous))
        if _is_there(context, position):
            break
        try:  # it has expired between the look and the record
            position = first_position(context, options)
        except NotFoundError:
            forget_consumer(context, name)
            raise
    return context, position


def leave_former_mains(context: TableContext, name: str) -> None:
    """Delete a consumer's records in replaced mains, now that it has reached a later one."""
    for place in _former_mains(context):
        place.storage.delete(place.layout.consumer_path(name))


def _former_mains(context: TableContext) -> list[TableContext]:
    """Return the branches that were main before this one, latest first."""
    if not context.main_generation:
        return []
    before = [p for p in replacements(context) if p.generation <= context.main_generation]
    olds = {
        pointer.replaced.old.uuid: as_main_before(context, pointer)
        for pointer in before
        if pointer.replaced is not None and pointer.replaced.old.uuid != context.branch_uuid
    }
    return sorted(olds.values(), key=lambda old: old.main_generation or 0, reverse=True)


def _is_there(context: TableContext, position: Position) -> bool:
    """Whether a stream can continue from a position."""
    history = History(context)
    try:
        history.verified(position)
        history.following(replace(position, files=None))
    except NotFoundError:
        return False
    return True


def consumer_at(context: TableContext, position: Position, *, keep_previous: bool = False) -> Consumer:
    """Return a consumer that has read up to `position`.

    Args:
        keep_previous: keep from expiring also the snapshot before the next one: the rows that one may take away
            lie in files of that one. Needed by readers with ``scan.on-overwrite=changes``.
    """
    unread = max(1, position.snapshot if position.files is not None else position.snapshot + 1)
    offset = Offset(context.table_uuid, context.branch_uuid, context.title, position).to_dict()
    if not keep_previous or unread == 1:
        return Consumer(unread, offset)
    return Consumer(unread - 1, {**offset, UNREAD_FROM: unread})


def position_of(context: TableContext, consumer: Consumer) -> Position:
    """Return the position of a consumer. Another engine may have moved it on since we stored the exact position.

    Raises `InvalidInputError` if it belongs to another table or branch.
    """
    if consumer.offset is not None:
        offset = Offset.from_dict(consumer.offset)
        check_same_history(
            offset, table_uuid=context.table_uuid, branch_uuid=context.branch_uuid, name=context.title
        )
        keeps = UNREAD_FROM in consumer.offset
        stored = consumer_at(context, offset.position, keep_previous=keeps)
        if stored.next_snapshot == consumer.next_snapshot:
            return offset.position
    last = consumer.next_snapshot - 1
    found = context.snapshots.find(last) if last > 0 else None
    return Position(max(0, last), None) if found is None else Position.after(found)


class FollowingConsumer:
    """A consumer that is kept at the position of a stream."""

    def __init__(self, context: TableContext, name: str, options: Mapping[str, str]) -> None:
        """Create it. Raises `InvalidNameError`, `OptionError`."""
        check_consumer_name(name)
        self._context = context
        self._name = name
        self._options = options
        self._keep_previous = SCAN_ON_OVERWRITE.of(options) == "changes"
        expiration = CONSUMER_EXPIRATION_TIME.of(options)
        self._renewal_seconds = None if expiration is None else expiration / 1000 / _SIGNS_OF_LIFE
        self._stored: Position | None = None
        self._stored_at = 0.0

    def begin(self) -> tuple[TableContext, Position]:
        """Return the start of a stream without checkpoint: branch and position of its consumer, which may be new.

        Raises as `first_position`, and `InvalidInputError` if the consumer belongs to another table.
        """
        self._context, position = consumed_position(
            self._context, self._name, self._options, keep_previous=self._keep_previous
        )
        self._remember(position)
        return self._context, position

    def reached(self, context: TableContext, position: Position) -> None:
        """Note that everything up to here was committed. If the consumer cannot be stored now, the next call does."""
        if context.branch != self._context.branch:
            self._context, self._stored = context, None
        if position == self._stored and not self._is_due():
            return
        try:
            if self._stored is None:
                self._say_if_elsewhere(position)
            self._store(position)
        except StorageError as error:
            _LOG.warning("consumer '%s' of '%s' stays behind: %s", self._name, self._context.title, error)
            return
        self._remember(position)

    def _say_if_elsewhere(self, position: Position) -> None:
        known = find_consumer(self._context, self._name)
        if known is None:
            return
        there = position_of(self._context, known)
        if there == position:
            return
        # A query killed or stopped between two batches leaves its consumer one batch behind.
        level = logging.WARNING if _is_after(there, position) else logging.INFO
        _LOG.log(
            level,
            "consumer '%s' of '%s' is at %s, but the query's checkpoint is at %s: the query goes on from its "
            "checkpoint, and the consumer follows it",
            self._name,
            self._context.title,
            _place(there),
            _place(position),
        )

    def _store(self, position: Position) -> None:
        consumer = consumer_at(self._context, position, keep_previous=self._keep_previous)
        record_consumer(self._context, self._name, consumer)
        if self._stored is None:
            leave_former_mains(self._context, self._name)

    def _remember(self, position: Position) -> None:
        self._stored = position
        self._stored_at = self._context.runtime.clock.monotonic()

    def _is_due(self) -> bool:
        if self._renewal_seconds is None:
            return False
        return self._context.runtime.clock.monotonic() - self._stored_at >= self._renewal_seconds


def _is_after(one: Position, other: Position) -> bool:
    def place(position: Position) -> tuple[int, bool, int]:
        return position.snapshot, position.files is None, position.files or 0

    return place(one) > place(other)


def _place(position: Position) -> str:
    if position.files is None:
        return f"the end of snapshot {position.snapshot}"
    return f"file {position.files} of snapshot {position.snapshot}"
