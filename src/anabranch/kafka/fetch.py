"""Reading of a range of offsets as Arrow batches.

A range is read by position, not by count: transaction markers, aborted records and compaction leave offsets without
a record. It is done when a record at its end or behind it arrives, or the end of the partition is reached.

Between the batches of a stream a process of Spark keeps its consumers with their connections, and what they read
ahead, which is often what comes next. At the end of a partition, or where no batch comes for a while, they ask for
nothing more. They serve one run of one query only, because a copy that was read ahead says nothing about brokers that
changed their history since.
"""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.kafka.bounds import LossRule
from anabranch.kafka.client import Client, ClientConfig, is_passing, is_unknown
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.columns import rejected_rows, to_batch
from anabranch.kafka.offsets import OffsetRange, TopicPartition
from anabranch.kafka.options import KafkaSettings
from anabranch.kafka.values import ValueReader
from anabranch.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    from confluent_kafka import Message

_KEPT_CONSUMERS = 8
_AWAKE_SECONDS = 5.0
"""Seconds for which an unused consumer goes on reading ahead."""
_MOST_ROWS = 1 << 15
_MOST_BYTES = 8 << 20
_POLL_SECONDS = 0.5
_QUIET_SECONDS = 2.0
"""Seconds without records after which the brokers are asked what has become of them."""
_LOOK_SECONDS = 0.5
_LOOKS = 6
"""Number and interval of the checks of a partition that ends too early, before that is believed."""


@dataclass(frozen=True)
class RangeReader:
    """Reader of ranges for the tasks of one read. Picklable."""

    settings: KafkaSettings
    run: str | None = None
    """Name of the query run whose tasks may share consumers; None to keep none."""

    def read(
        self,
        wanted: OffsetRange,
        runtime: Runtime = SYSTEM,
        *,
        rejected: Callable[[OffsetRange, pa.Table], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of their offsets.

        Args:
            runtime: clock and sleep.
            rejected: takes the records whose values cannot be read, when all are read; else they are counted in the log.

        Raises:
            InvalidInputError: a value cannot be read, and that is an error.
            NotFoundError: records of the range are gone, and that is an error (`failOnDataLoss`).
            StorageError: the brokers did not answer for longer than the read is patient.
        """
        key = (self.run, self.settings.client, wanted.where)
        consumer = _taken(key) or RangeConsumer(self.settings, wanted.where, runtime)
        settings = self.settings
        values = None if settings.values is None else ValueReader(settings.values)
        done = False
        try:
            for messages in consumer.read(wanted):
                yield to_batch(messages, wanted.where, headers=settings.headers, values=values)
            if values is not None and values.unreadable and rejected is not None:
                rejected(wanted, rejected_rows(values, wanted.where))
            if values is not None:
                values.count(wanted.where)
            done = True
        finally:
            if done and self.run is not None:
                _keep(key, consumer)
            else:
                consumer.close()


_Key = tuple[str | None, ClientConfig, TopicPartition]
_kept: OrderedDict[_Key, RangeConsumer] = OrderedDict()
"""Idle consumers of this process, most recently used last. Only touched under `_lock`."""
_lock = threading.Lock()


def _taken(key: _Key) -> RangeConsumer | None:
    with _lock:
        return _kept.pop(key, None)


def _keep(key: _Key, consumer: RangeConsumer) -> None:
    with _lock:
        if key in _kept:  # two tasks read one partition side by side
            _kept.pop(key).close()
        _kept[key] = consumer
        while len(_kept) > _KEPT_CONSUMERS:
            _kept.popitem(last=False)[1].close()
    if consumer.is_fetching:
        timer = threading.Timer(_AWAKE_SECONDS, _let_rest, (key, consumer))
        timer.daemon = True
        timer.start()


def _let_rest(key: _Key, consumer: RangeConsumer) -> None:
    """Stop prefetching, because the query has ended or is slow."""
    with _lock:
        if _kept.get(key) is consumer:
            consumer.rest()


class RangeConsumer:
    """Consumer of one partition, which continues from where it is if the next range begins there."""

    def __init__(self, settings: KafkaSettings, where: TopicPartition, runtime: Runtime = SYSTEM) -> None:
        self.where = where
        self._client = Client(settings.client)
        self._patience = settings.patience_millis / 1000
        self._runtime = runtime
        self._loss = LossRule(settings.fail_on_loss)
        self._done: int | None = None
        """End of the last range that was read completely."""
        self._end = 0
        """Current end of reading: that of the range, or less if the partition lost records."""
        self._position = 0
        """Offset before which all records have arrived."""
        self._is_fetching = False
        self._surplus: list[Message] = []
        """Records that arrived but lie behind the last range."""

    def close(self) -> None:
        self._client.close()

    @property
    def is_fetching(self) -> bool:
        """Whether it is requesting records from the brokers, read or not."""
        return self._is_fetching

    def rest(self) -> None:
        """Stop requesting records until the next read. What has arrived stays."""
        if self._is_fetching:
            self._client.consumer.unassign()
        self._is_fetching = False

    def read(self, wanted: OffsetRange) -> Iterator[list[Message]]:
        """Yield the records of a range in non-empty lists. Raises as `RangeReader.read`."""
        if self._done != wanted.start:
            self.rest()
            self._surplus = []
            self._position = wanted.start
        self._done = None
        self._end = wanted.end
        gathered: list[Message] = []
        size = 0
        for messages in self._arriving():
            gathered += messages
            size += sum(map(len, messages))
            if len(gathered) >= _MOST_ROWS or size >= _MOST_BYTES:
                yield gathered
                gathered, size = [], 0
        if not self._surplus:  # with a backlog, what is read ahead meanwhile is what comes next
            self.rest()
        if gathered:
            yield gathered
        self._done = wanted.end if self._end == wanted.end else None

    def _start_fetching(self) -> None:
        from confluent_kafka import TopicPartition as Place

        self._client.consumer.assign([Place(self.where.topic, self.where.partition, self._position)])
        self._is_fetching = True

    def _arriving(self) -> Iterator[list[Message]]:
        """Yield records of the range as they arrive, until it is complete."""
        clock = self._runtime.clock
        quiet_since = asked = clock.monotonic()
        messages, self._surplus = self._surplus, []
        events: list[Message] = []
        while True:
            if messages:
                inside = bisect.bisect_left(messages, self._end, key=_offset)
                self._position = _offset(messages[-1]) + 1
                self._surplus = messages[inside:]
                if inside:
                    yield messages[:inside]
                quiet_since = asked = clock.monotonic()
            for event in events:
                self._heed(event)
            if self._position < self._end and clock.monotonic() - asked >= _QUIET_SECONDS:
                self._find_out()
                asked = clock.monotonic()
            if self._position >= self._end:
                return
            if clock.monotonic() - quiet_since >= self._patience:
                raise self._client.error(
                    f"send the records of {self.where} from offset {self._position} on", None
                )
            messages, events = self._next()

    def _next(self) -> tuple[list[Message], list[Message]]:
        """Poll once, waiting a little if there is nothing; return records, and events about the partition."""
        if not self._is_fetching:
            self._start_fetching()
        first = self._client.consumer.poll(_POLL_SECONDS)
        if first is None:
            return [], []
        arrived = [first, *self._client.consumer.consume(_MOST_ROWS, 0)]
        if {*map(type(first).error, arrived)} == {None}:
            return arrived, []
        events = [message for message in arrived if message.error() is not None]
        return [message for message in arrived if message.error() is None], events

    def _heed(self, event: Message) -> None:
        """Handle an event that is not a record. Raises what `read` raises."""
        error: Any = event.error()
        if error.name() == "_PARTITION_EOF":
            # Before the end of the range this is outdated, or nothing more will come.
            self._position = max(self._position, event.offset() or 0)
        elif error.name() == "_AUTO_OFFSET_RESET" or is_unknown(error):
            self._find_out()
        elif not is_passing(error):
            raise self._client.error(f"send the records of {self.where}", error)

    def _find_out(self) -> None:
        """Find out why existing records do not come, and continue with those that are left."""
        cluster = Cluster(self._client.config, self._patience, self._runtime)
        try:
            earliest = cluster.earliest([self.where]).get(self.where)
            latest = cluster.latest([self.where]).get(self.where, 0)
            for _ in range(_LOOKS if earliest is not None else 0):
                if latest >= self._end:
                    break
                self._runtime.sleeper.sleep(_LOOK_SECONDS)
                latest = cluster.latest([self.where]).get(self.where, 0)
        finally:
            cluster.close()
        if earliest is None:
            self._loss.deleted(self.where, self._position)
            self._end = self._position
            return
        if latest < self._end:
            self._loss.ended_early(self.where, self._end, latest)
            self._end = latest
        if earliest > self._position and self._position < self._end:
            self._loss.expired(self.where, self._position, earliest, self._end)
            self._position = earliest
        self.rest()


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
