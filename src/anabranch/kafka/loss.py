"""Records lost before they were read: an error, or skipped with a warning and counted.

How records go: retention or a delete-records request removes the oldest; a topic is deleted; the brokers come
back without records they had acknowledged, or the topic was made anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from anabranch.errors import NotFoundError
from anabranch.kafka.offsets import TopicPartition

_LOG = logging.getLogger(__name__)
_GO_ON = "or set failOnDataLoss=false to go on without them."


@dataclass
class LossRule:
    """Rule of `failOnDataLoss`, and the count of offsets skipped under it.

    Each method raises `NotFoundError` if loss is an error, and otherwise returns with a warning given.
    """

    fail: bool
    skipped: int = 0
    """Number of offsets known to be skipped. Not all of them need have been records."""

    def expired(self, where: TopicPartition, asked: int, earliest: int, end: int) -> None:
        """Report that of the offsets to read, ``[asked, end)``, only those from `earliest` on are left."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but the earliest record the brokers still have is at "
            f"offset {earliest}: {earliest - asked} offsets were removed before they were read",
            "give the topic a longer retention and begin anew with another checkpoint location",
            f"going on at offset {min(earliest, end)}",
            min(earliest, end) - asked,
        )

    def ended_early(self, where: TopicPartition, asked: int, latest: int) -> None:
        """Report that the partition ends at `latest`, although offset `asked` was seen before."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but now the partition ends at offset {latest}: the brokers "
            "lost records they had acknowledged, or the topic was made anew",
            "begin anew with another checkpoint location, and startingOffsets that say where",
            f"going on at offset {latest}",
            0,
        )

    def deleted(self, where: TopicPartition, asked: int) -> None:
        """Report that the partition no longer exists."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but the partition does not exist any more",
            "begin anew with another checkpoint location and without the topic",
            "going on without it",
            0,
        )

    def made_anew(self, topic: str, known: str, found: str) -> None:
        """Report that a topic was recreated: its id differs from that of the positions."""
        self._lost(
            f"topic '{topic}' was deleted and made anew: its id was {known} when it was last read, and is {found} now, so "
            "offsets in the old one say nothing about the new one",
            "begin anew with another checkpoint location and startingOffsets that say where",
            "going on with the first record of the new topic",
            0,
            "or set failOnDataLoss=false to go on with the first record of the new topic.",
        )

    def appeared_late(self, where: TopicPartition, earliest: int) -> None:
        """Report that a partition added while the query ran has already lost its first records."""
        self._lost(
            f"{where}: the partition is new to the query, but its earliest record is at offset {earliest} instead of "
            f"0: {earliest} offsets were removed before they were read",
            "begin anew with another checkpoint location",
            f"beginning at offset {earliest}",
            earliest,
        )

    def _lost(self, message: str, remedy: str, instead: str, count: int, go_on: str = _GO_ON) -> None:
        if self.fail:
            raise NotFoundError(message, hint=f"{remedy}, {go_on}")
        self.skipped += count
        _LOG.warning("%s; %s (offsets skipped so far: %d)", message, instead, self.skipped)
