"""Metadata of topics from the brokers: partitions, and offsets of their start, end, or of a time.

All questions wait for brokers that are away, as they are while they restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.errors import NotFoundError, nearest
from anabranch.kafka.client import Client, ClientConfig, is_passing, is_unknown, library
from anabranch.kafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from anabranch.kafka.options import Topics
from anabranch.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_CALL_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_NO_ID = {"", "A" * 22}
"""Topic ids that mean none: empty, or sixteen zero bytes."""
_DO_NOT_TELL = {
    "_UNSUPPORTED_FEATURE",
    "UNSUPPORTED_VERSION",
    "INVALID_REQUEST",
    "TOPIC_AUTHORIZATION_FAILED",
}
_UNKNOWN_SECONDS = 2.0
"""Seconds for which a broker's "unknown topic" is not believed, since one that has just started knows none."""


class Cluster:
    """Metadata client. Picklable: a copy has its own connection, made when it is first needed.

    Args:
        config: settings of the client.
        patience_seconds: how long to wait for brokers that do not answer.
    """

    def __init__(self, config: ClientConfig, patience_seconds: float, runtime: Runtime = SYSTEM) -> None:
        self.config = config
        self.patience_seconds = patience_seconds
        self.runtime = runtime
        self._client: Client | None = None
        self._missing: set[str] = set()
        """Topics that were found not to exist; they are not waited for again."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def partitions(self, topics: Topics) -> set[TopicPartition]:
        """Return the existing partitions of the topics to read; topics that do not exist have none.

        Raises `StorageError` if the brokers do not answer.
        """
        if topics.pattern is not None:
            return {where for where in self._everything() if topics.matches(where.topic)}
        if topics.partitions:
            named = {where.topic for where in topics.partitions}
            return set(topics.partitions) & set().union(*(self._of_topic(name) for name in named))
        return set().union(*(self._of_topic(name) for name in topics.names))

    def check_exist(self, topics: Topics, found: Collection[TopicPartition]) -> None:
        """Raise `NotFoundError` if a topic or partition that is to be read by name was not found."""
        there = {where.topic for where in found}
        missing: list[Any] = [name for name in topics.names if name not in there]
        missing += [where for where in topics.partitions if where not in found]
        if not missing:
            return
        name = getattr(missing[0], "topic", missing[0])
        near = nearest(name, {where.topic for where in self._everything()} - {name})
        kind = "partition" if topics.partitions else "topic"
        raise NotFoundError(
            f"the Kafka brokers at {self.config.servers} have no {kind} '{missing[0]}'",
            hint=f"did you mean the topic '{near}'?" if near else f"create the {kind} first.",
        )

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset of each first record. Partitions that do not exist are left out."""
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset after each last record visible to readers. Partitions that do not exist are left out."""
        return self._listed(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of each first record of that time (epoch milliseconds) or later; None if there is none."""
        return {where: None if offset == LATEST else offset for where, offset in self._listed(times).items()}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics; those that do not exist are left out, and all where the brokers give none."""
        names = sorted(set(topics))

        def ask(client: Client, seconds: float) -> tuple[dict[str, str], None]:
            from confluent_kafka import TopicCollection

            asked = client.admin.describe_topics(TopicCollection(names), request_timeout=seconds)
            found = {}
            for name, answer in asked.items():
                told = _id_of(_answered(answer, seconds))
                if told is not None:
                    found[name] = told
            return found, None

        return self._patiently("tell the ids of topics", ask) if names else {}

    def is_compacted(self, topic: str) -> bool:
        """Whether the topic is compacted, so that older records of a key are removed; False if unknown."""

        def ask(client: Client, seconds: float) -> tuple[bool, None]:
            asking, words = client.admin, library().admin
            asked = [words.ConfigResource(words.ResourceType.TOPIC, topic)]
            (answer,) = asking.describe_configs(asked, request_timeout=seconds).values()
            policy = _answered(answer, seconds)
            found = None if policy is None else policy.get("cleanup.policy")
            return found is not None and "compact" in str(found.value), None

        return self._patiently(f"describe the settings of topic '{topic}'", ask)

    def _everything(self) -> set[TopicPartition]:
        def ask(client: Client, seconds: float) -> tuple[set[TopicPartition], None]:
            topics = client.consumer.list_topics(timeout=seconds).topics
            return {
                TopicPartition(name, number) for name in topics for number in topics[name].partitions
            }, None

        return self._patiently("list their topics", ask)

    def _of_topic(self, topic: str) -> set[TopicPartition]:
        def ask(client: Client, seconds: float) -> tuple[set[TopicPartition], KafkaError | None]:
            entry = client.consumer.list_topics(topic, timeout=seconds).topics[topic]
            return {TopicPartition(topic, number) for number in entry.partitions}, entry.error

        wait = 0.0 if topic in self._missing else _UNKNOWN_SECONDS
        found = self._patiently(f"describe topic '{topic}'", ask, wait)
        if found:
            self._missing.discard(topic)
        else:
            self._missing.add(topic)
        return found

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Return offsets for times, or for EARLIEST and LATEST, which the protocol takes in the same place."""
        if not wanted:
            return {}
        silence = library().KafkaException
        asked = [
            library().TopicPartition(topic, partition, value) for (topic, partition), value in wanted.items()
        ]

        def ask(client: Client, seconds: float) -> tuple[Offsets, KafkaError | None]:
            try:
                answers = client.consumer.offsets_for_times(asked, timeout=seconds)
            except silence as error:
                if not is_unknown(error.args[0]):
                    raise
                # Reported for all partitions together, and also if no broker answers: then the next line raises.
                client.consumer.list_topics(timeout=seconds)
                return {}, error.args[0]
            errors = [answer.error for answer in answers if answer.error is not None]
            good = {TopicPartition(a.topic, a.partition): a.offset for a in answers if a.error is None}
            # Permanent errors first: they are the ones to report.
            errors.sort(key=lambda error: (is_passing(error), is_unknown(error)))
            return good, errors[0] if errors else None

        return self._patiently("tell offsets", ask)

    def _patiently(
        self,
        what: str,
        ask: Callable[[Client, float], tuple[T, KafkaError | None]],
        unknown_seconds: float = _UNKNOWN_SECONDS,
    ) -> T:
        """Repeat a request until a good answer; "unknown" is believed after a while."""
        silence = library().KafkaException
        if self._client is None:
            self._client = self.config.connect()
        clock = self.runtime.clock
        begin = clock.monotonic()
        warned = False
        while True:
            left = self.patience_seconds - (clock.monotonic() - begin)
            answer: T | None = None
            try:
                answer, trouble = ask(self._client, max(0.1, min(_CALL_SECONDS, left)))
            except silence as error:
                trouble = error.args[0]
            if answer is not None and trouble is None:
                return answer
            assert trouble is not None
            waited = clock.monotonic() - begin
            if answer is not None and is_unknown(trouble):
                if waited >= min(unknown_seconds, self.patience_seconds):
                    return answer
            elif not is_passing(trouble) or waited >= self.patience_seconds:
                raise self._client.error(what, trouble)
            elif not warned:
                warned = True
                _LOG.warning(
                    "the Kafka brokers at %s did not %s (%s); asking again for %.0f s",
                    self.config.servers, what, trouble.str(), self.patience_seconds,
                )  # fmt: skip
            self.runtime.sleeper.sleep(_PAUSE_SECONDS)


def _answered(answer: Future[Any], seconds: float) -> Any:
    """Return the brokers' answer about one topic; None if they cannot or may not. `KafkaException` on timeout."""
    kafka = library()
    try:
        return answer.result(timeout=seconds + 1.0)
    except TimeoutError:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - its name
    except kafka.KafkaException as error:
        if is_unknown(error.args[0]) or error.args[0].name() in _DO_NOT_TELL:
            return None
        raise


def _id_of(topic: Any) -> str | None:
    told = getattr(topic, "topic_id", None)
    return None if told is None or str(told) in _NO_ID else str(told)
