"""Commit of a stream's offsets to a consumer group, for tools that monitor the lag of groups.

Nothing is ever read from the group: where a query goes on is in its checkpoint. So a commit that fails is only told in the log.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.kafka.client import ClientConfig, library
from anabranch.kafka.offsets import Offsets

if TYPE_CHECKING:
    from confluent_kafka import Consumer

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
