"""Writing of records to topics: a batch exactly once in a transaction, or each record at least once.

One transaction needs one producer, so the process that commits a batch sends all of it. The number of the batch is committed
with the records, as the offset of a consumer group that is called like the transactions. Who repeats the batch finds it there
and sends nothing. The brokers let only the newest producer of a name commit, so a dying process cannot come in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from anabranch.errors import OptionError, StorageError
from anabranch.kafka.client import OF_CONSUMERS, ClientConfig, library

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_LOG = logging.getLogger(__name__)
_OURS: Final = ("transactional.id", "enable.idempotence")


class Record(NamedTuple):
    """A record to send."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


@dataclass(frozen=True)
class Sending:
    """Settings of a producer. Picklable; its repr leaves the credentials out."""

    client: ClientConfig
    patience_seconds: float = 120.0

    @classmethod
    def of(cls, settings: Mapping[str, str], patience_seconds: float) -> Sending:
        """Create it from settings without the prefix ``kafka.``. Raises `OptionError`."""
        for name in _OURS:
            if name in settings:
                raise OptionError(
                    f"'kafka.{name}' cannot be set: the sink sets it",
                    hint="use sink.transactional-id.prefix.",
                )
        return cls(ClientConfig.of(settings), patience_seconds)

    def send(self, records: Iterable[Record]) -> int:
        """Send records, each at least once; all are acknowledged when this returns. Raises `StorageError`."""
        producer = self._producer({"enable.idempotence": "true"})
        return self._sent(producer, records)

    def send_once(self, records: Iterable[Record], name: str, batch: int, topic: str) -> bool:
        """Send the records of a batch in one transaction, if no transaction of that name has sent them.

        Args:
            name: of the transactions, and of the consumer group that remembers the batch.
            batch: its number; those of a name go up.
            topic: one that exists; the offset of the group in its partition 0 is the number of the next batch.

        Returns:
            Whether they were sent by this call.

        Raises:
            StorageError: the brokers did not take them, or another process has begun to send under the name.
        """
        kafka = library()
        timeout = self.patience_seconds
        producer = self._producer({"transactional.id": name})
        consumer: Consumer = kafka.Consumer({**dict(self.client.settings), "group.id": name})
        try:
            producer.init_transactions(timeout)  # ends what an earlier producer of the name has left open
            marker = kafka.TopicPartition(topic, 0)
            (found,) = consumer.committed([marker], timeout=timeout)
            if found.error is not None:
                raise kafka.KafkaException(found.error)
            if found.offset > batch:
                _LOG.info("batch %d of '%s' was sent already", batch, name)
                return False
            producer.begin_transaction()
            try:
                self._sent(producer, records)
                marker.offset = batch + 1
                producer.send_offsets_to_transaction([marker], consumer.consumer_group_metadata(), timeout)
                producer.commit_transaction(timeout)
            except BaseException:
                _abort(producer, timeout)
                raise
        except kafka.KafkaException as error:
            self._fail(f"take batch {batch} of '{name}'", error.args[0])
        finally:
            consumer.close()
        return True

    def _producer(self, more: Mapping[str, str]) -> Producer:
        settings = {key: value for key, value in self.client.settings if key not in OF_CONSUMERS}
        millis = str(int(self.patience_seconds * 1000))
        waits = {"transaction.timeout.ms": millis} if "transactional.id" in more else {}
        try:
            made: Producer = library().Producer(
                {"message.timeout.ms": millis, **waits, **settings, **more}, logger=_LOG
            )
        except library().KafkaException as error:
            raise OptionError(
                f"the Kafka client does not take its settings: {error.args[0].str()}",
                hint="settings are those of librdkafka, with the prefix 'kafka.'.",
            ) from error
        return made

    def _sent(self, producer: Producer, records: Iterable[Record]) -> int:
        failed: list[Any] = []

        def told(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        count = 0
        for record in records:
            more: dict[str, Any] = {"headers": None if record.headers is None else [*record.headers]}
            if record.partition is not None:
                more["partition"] = record.partition
            while True:
                try:
                    producer.produce(record.topic, record.value, record.key, on_delivery=told, **more)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        left = producer.flush(self.patience_seconds)
        if failed or left:
            self._fail("take all records", failed[0] if failed else None)
        return count

    def _fail(self, what: str, error: Any) -> NoReturn:
        told = "no answer in time" if error is None else error.str()
        raise StorageError(
            f"the Kafka brokers at {self.client.servers} did not {what}: {told}",
            hint="see that they run and that the topic exists; start the query again with its checkpoint: what was sent in a "
            "transaction is not sent again.",
            retryable=True,
        )


def _abort(producer: Producer, timeout: float) -> None:
    try:
        producer.abort_transaction(timeout)
    except library().KafkaException as error:  # the next producer of the name ends the transaction
        _LOG.warning("a transaction was not aborted: %s", error)
