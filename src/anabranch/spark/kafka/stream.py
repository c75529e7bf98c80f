"""Streaming reads of topics. The offsets in Spark's checkpoint are all that a restart needs.

Spark does not store the offsets that a query begins with: when it repeats the first batch after a crash, it asks
for them anew. So the first batch of a query is empty and ends where the query begins; the log has it from then on.
Spark 4.1 does not say where a batch begins when it asks where to end it. There only a query that begins at the
latest offsets has an empty first batch, and limits for a batch have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from anabranch.kafka.bounds import LossRule, first_offsets, last_offsets
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.fetch import RangeReader
from anabranch.kafka.follower import GroupOffsets, KafkaFollower
from anabranch.kafka.offsets import (
    OffsetRange,
    Offsets,
    cut,
    from_json,
    ids_from_json,
    ranges_between,
    to_json,
)
from anabranch.kafka.options import KafkaSettings
from anabranch.runtime import SYSTEM, Runtime

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    HAS_READ_LIMITS = False
else:
    HAS_READ_LIMITS = True

_LOG = logging.getLogger(__name__)
_NO_LIMIT = (1 << 63) - 1


class KafkaStreamReader(DataSourceStreamReader):
    """Streaming reader of topics, with the methods that every supported version of Spark calls."""

    rejecting: Callable[[OffsetRange, pa.Table], None] | None = None
    """Handler of records whose values cannot be read; if None they are counted in the log."""

    def __init__(self, settings: KafkaSettings, runtime: Runtime = SYSTEM) -> None:
        cluster = Cluster(settings.client, settings.patience_millis / 1000, runtime)
        self._follower = KafkaFollower(settings, cluster, runtime)
        self._ranges = RangeReader(settings, run=runtime.ids.uuid())
        group = settings.commit_group
        self._group = None if group is None else GroupOffsets(settings.client, group)
        self._initial: Offsets | None = None
        self._begun = False
        """Whether Spark's log already has a batch of this query."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            self._initial = self._follower.initial()
        return self._told(self._initial)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        if not self._begun and self._follower.begins_at_latest:
            self._begun = True
            return self.initialOffset()
        return self._told(self._follower.newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._begun = True
        ranges = self._follower.ranges(
            from_json(start), from_json(end), ids_from_json(start), ids_from_json(end)
        )
        return [RangePartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):  # Spark makes one up where there is nothing to read
            yield from self._ranges.read(partition.value, rejected=self.rejecting)

    def _told(self, offsets: Offsets) -> dict[str, Any]:
        """Return an offset for Spark's log, with the topic ids, which reveal when a topic was recreated."""
        return to_json(offsets, self._follower.ids(offsets))

    def commit(self, end: dict[str, Any]) -> None:
        if self._group is not None:
            self._group.commit(from_json(end))

    def stop(self) -> None:
        if self._group is not None:
            self._group.close()
        self._follower.cluster.close()


if HAS_READ_LIMITS:

    class LimitedKafkaStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
        """Streaming reader whose batches are limited by the options and the trigger."""

        _until: Offsets | None = None
        """Offsets at which a query with the available-now trigger ends."""

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            once = isinstance(
                limit, ReadAllAvailable
            )  # our own limit is another: the trigger asks for one batch
            if not self._begun and not once and self._initial is not None:
                self._begun = True
                return start
            reached, ids = self._follower.advance(
                from_json(start), ids_from_json(start), limited=not once, until=self._until
            )
            return to_json(reached, ids)

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadMaxRows(self._follower.settings.max_per_trigger or _NO_LIMIT)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._until = self._follower.newest()

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            return to_json(self._follower.newest())


def stream_reader(settings: KafkaSettings, runtime: Runtime = SYSTEM) -> KafkaStreamReader:
    """Return the most capable reader that the running version of Spark supports."""
    if HAS_READ_LIMITS:
        return LimitedKafkaStreamReader(settings, runtime)
    if settings.max_per_trigger is not None or settings.min_per_trigger is not None:
        _LOG.warning(
            "limits for a batch have no effect: they need Spark 4.2, this is %s", pyspark.__version__
        )
    return KafkaStreamReader(settings, runtime)


class RangePartition(InputPartition):
    """One range of offsets, for one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)


class KafkaBatchReader(DataSourceReader):
    """Reader of the records between two positions, both determined when the read is planned."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        cluster = Cluster(settings.client, settings.patience_millis / 1000)
        try:
            there = cluster.partitions(settings.topics)
            cluster.check_exist(settings.topics, there)
            start = first_offsets(settings, cluster, there, LossRule(settings.fail_on_loss))
            end = last_offsets(settings, cluster, there)
        finally:
            cluster.close()
        ranges = cut(ranges_between(start, end), at_least=settings.min_partitions, most=settings.max_records)
        return [RangePartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):  # Spark makes one up where there is nothing to read
            yield from RangeReader(self._settings).read(partition.value)
