"""A consumer beside a stream whose progress another keeps: Spark's checkpoint says where the stream is.

The consumer follows it. It is stored when a new stream begins, so that nothing the stream has yet to read expires,
and moves only to positions that Spark has committed, so it is never ahead of the checkpoint. A stream without a
checkpoint goes on where its consumer is; where both exist the checkpoint wins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from anabranch.errors import StorageError
from anabranch.kernel.context import TableContext
from anabranch.kernel.refs.consumers import find_consumer, record_consumer
from anabranch.options import CONSUMER_EXPIRATION_TIME, SCAN_ON_OVERWRITE
from anabranch.spec.names import check_consumer_name
from anabranch.streaming.offsets import Position
from anabranch.streaming.tail import consumed_position, consumer_at, position_of

_LOG = logging.getLogger(__name__)

_SIGNS_OF_LIFE = 3
"""How often a consumer is stored anew, although it did not move, in the time in which it would expire."""


class FollowingConsumer:
    """Keeps one consumer where a stream is."""

    def __init__(self, context: TableContext, name: str, options: Mapping[str, str]) -> None:
        """Raises `InvalidNameError`, `OptionError`."""
        check_consumer_name(name)
        self._context = context
        self._name = name
        self._options = options
        self._keep_previous = SCAN_ON_OVERWRITE.of(options) == "changes"
        expiration = CONSUMER_EXPIRATION_TIME.of(options)
        self._renewal_seconds = None if expiration is None else expiration / 1000 / _SIGNS_OF_LIFE
        self._stored: Position | None = None
        self._stored_at = 0.0

    def begin(self) -> Position:
        """Where a stream without a checkpoint begins: where the consumer is, or a new one there.

        Raises as `first_position`, and `InvalidInputError` if the consumer belongs to another table.
        """
        position = consumed_position(
            self._context, self._name, self._options, keep_previous=self._keep_previous
        )
        self._remember(position)
        return position

    def reached(self, position: Position) -> None:
        """All up to this position was committed. A consumer that cannot be stored now is stored the next time."""
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
        # A query that was killed, or stopped between two batches, leaves its consumer a batch behind.
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
