"""Following of topics: the position of a stream after each batch.

A partition enters the offsets with nothing to read: with the offset of its first record, and in a new query with
the one it begins at. It is read from the next batch on. So the log of the query holds where reading began, and a
batch that is repeated after a crash reads what it read before, whatever has become of `latest` meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.kafka.bounds import LossRule, first_offsets
from anabranch.kafka.client import ClientConfig, library
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.offsets import (
    LATEST,
    OffsetRange,
    Offsets,
    TopicIds,
    TopicPartition,
    admitted,
    cut,
    ranges_between,
)
from anabranch.kafka.options import KafkaSettings
from anabranch.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    from confluent_kafka import Consumer


_LOOKS = 3
_SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds between checks, as a partition's end may be seen too low for a moment after a change of leaders."""


class KafkaFollower:
    """Positions of one stream. Stateless across restarts."""

    def __init__(self, settings: KafkaSettings, cluster: Cluster, runtime: Runtime = SYSTEM) -> None:
        self.settings = settings
        self.cluster = cluster
        self.loss = LossRule(settings.fail_on_loss)
        self.runtime = runtime
        self._held_since = runtime.clock.monotonic()

    def initial(self) -> Offsets:
        """Return the start of a new query. Raises `NotFoundError`, `OptionError`, `StorageError`."""
        topics = self.settings.topics
        partitions = self.cluster.partitions(topics)
        self.cluster.check_exist(topics, partitions)
        return first_offsets(self.settings, self.cluster, partitions, self.loss)

    @property
    def begins_at_latest(self) -> bool:
        """Whether a new query begins at the end of every partition."""
        return not self.settings.start.by_time and self.settings.start.at == LATEST

    def newest(self) -> Offsets:
        """Return the end of all partitions."""
        return self.cluster.latest(self.cluster.partitions(self.settings.topics))

    def ids(self, offsets: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the current ids of the topics in a position."""
        return self.cluster.ids(where.topic for where in offsets)

    def advance(
        self,
        start: Offsets,
        ids: TopicIds | None = None,
        *,
        limited: bool = True,
        until: Offsets | None = None,
    ) -> tuple[Offsets, TopicIds]:
        """Return the position after the next batch and the ids of its topics; `start` if there is nothing to read yet.

        Args:
            start: the position before it.
            limited: whether the limits for a batch hold.
            until: never go beyond these offsets, nor to partitions that are not among them.

        Raises:
            NotFoundError: records that follow `start` are gone, and that is an error (`failOnDataLoss`).
            StorageError: the brokers did not answer.
        """
        known = self._still_the_same(start, ids or {})
        reached, ends, entering = self._look(known)
        there = self.ids(ends)  # asked last: offsets that were told before are of these topics or older ones
        if self._of_same_topics(known, ids or {}, there) != known:
            return self.advance(start, ids, limited=limited, until=until)
        if until is not None:
            ends = {where: max(reached[where], min(end, until.get(where, 0))) for where, end in ends.items()}
            entering = {where: min(low, until[where]) for where, low in entering.items() if where in until}
        if limited:
            if until is None and not entering and self._holds_back(reached, ends):
                return start, ids or {}
            if self.settings.max_per_trigger is not None:
                ends = admitted(reached, ends, self.settings.max_per_trigger)
        return {**ends, **entering}, there

    def ranges(
        self, start: Offsets, end: Offsets, start_ids: TopicIds | None = None, end_ids: TopicIds | None = None
    ) -> list[OffsetRange]:
        """Return the ranges of a batch between two positions, one per task. Raises as `advance`.

        Args:
            start: the position before it.
            end: the position after it.
            start_ids: of the topics that the first is about.
            end_ids: of those that the second is about.
        """
        end = self._still_the_same(end, end_ids or {})
        start = self._of_same_topics(start, start_ids or {}, end_ids or {})
        new = end.keys() - start.keys()
        begin = {**start, **(self.cluster.earliest(new) if new else {})}
        ranges = ranges_between(begin, end)
        earliest = self.cluster.earliest(piece.where for piece in ranges)
        kept = []
        for piece in ranges:
            low = earliest.get(piece.where)
            if low is None:
                self.loss.deleted(piece.where, piece.start)
            elif low > piece.start:
                self.loss.expired(piece.where, piece.start, low, piece.end)
                if low < piece.end:
                    kept.append(OffsetRange(piece.where, low, piece.end))
            else:
                kept.append(piece)
        return cut(kept, at_least=self.settings.min_partitions, most=self.settings.max_records)

    def _still_the_same(self, position: Offsets, ids: TopicIds) -> Offsets:
        """Return the position without topics that were recreated, if that is not an error."""
        return self._of_same_topics(position, ids, self.cluster.ids(ids))

    def _of_same_topics(self, position: Offsets, known: TopicIds, found: TopicIds) -> Offsets:
        anew = [topic for topic in sorted(known) if topic in found and found[topic] != known[topic]]
        for topic in anew:
            self.loss.made_anew(topic, known[topic], found[topic])
        return {where: offset for where, offset in position.items() if where.topic not in anew}

    def _look(self, start: Offsets) -> tuple[Offsets, Offsets, Offsets]:
        """Return the offsets of known partitions, their ends, and the offsets at which new partitions enter."""
        for look in range(_LOOKS):
            if look > 0:
                self.runtime.sleeper.sleep(_SECONDS_BETWEEN_LOOKS)
            there = self.cluster.partitions(self.settings.topics)
            ends = self.cluster.latest(there)
            if all(ends.get(where, -1) >= offset for where, offset in start.items()):
                break
        reached: Offsets = {}
        for where, offset in sorted(start.items()):
            if where not in ends:
                self.loss.deleted(where, offset)
            elif ends[where] < offset:
                self.loss.ended_early(where, offset, ends[where])
                reached[where] = ends[where]
            else:
                reached[where] = offset
        entering = self.cluster.earliest(ends.keys() - reached.keys())
        known = {where.topic for where in start}
        for where, low in sorted(entering.items()):
            # A topic that the user just named may be old; others were followed from their beginning.
            if low > 0 and (where.topic in known or self.settings.topics.pattern is not None):
                self.loss.appeared_late(where, low)
        return reached, {where: ends[where] for where in reached}, entering

    def _holds_back(self, start: Mapping[TopicPartition, int], end: Offsets) -> bool:
        """Whether to delay the batch because too few records wait, and not for long enough."""
        least = self.settings.min_per_trigger
        now = self.runtime.clock.monotonic()
        waits = sum(end[where] - offset for where, offset in start.items())
        if (
            least is None
            or waits >= least
            or (now - self._held_since) * 1000 >= self.settings.max_delay_millis
        ):
            self._held_since = now
            return False
        return True


# Commit of a stream's offsets to a consumer group, for tools that monitor the lag of groups.
#
# Nothing is ever read from the group: where a query goes on is in its checkpoint. So a commit that fails is only told in the log.

_LOG = logging.getLogger(__name__)


class GroupOffsets:
    """Committer of offsets under the name of a group. Picklable: a copy has its own connection."""

    def __init__(self, config: ClientConfig, group: str) -> None:
        settings = {**dict(config.settings), "group.id": group}
        self._config = replace(config, settings=tuple(sorted(settings.items())))
        self._group = group
        self._consumer: Consumer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_consumer": None}

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets asynchronously. Never raises."""
        kafka = library()
        try:
            if self._consumer is None:
                self._consumer = kafka.Consumer({**dict(self._config.settings), "on_commit": self._told})
            self._consumer.commit(
                offsets=[kafka.TopicPartition(*where, offset) for where, offset in offsets.items()],
                asynchronous=True,
            )
            self._consumer.poll(0)  # what became of earlier ones is told from here
        except kafka.KafkaException as error:
            self._told(error.args[0], [])

    def close(self) -> None:
        """Close the connection, after pending commits."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            _LOG.warning("the offsets of group '%s' were not committed: %s", self._group, error)
