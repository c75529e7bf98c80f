"""Client library librdkafka: its settings, and translation of its errors.

Credentials are in the settings. No message and no log line of ours shows a setting other than the addresses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from anabranch.errors import AnabranchError, NotFoundError, OptionError, StorageError, UnsupportedFeatureError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

SERVERS = "bootstrap.servers"
_LOG = logging.getLogger("anabranch.kafka.client")

_DEFAULTS = {
    "group.id": "anabranch-kafka",  # the library asks for one; nothing is ever committed under it
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "100",  # the end of a range behind a transaction is only seen by a fetch that finds nothing
    "queued.max.messages.kbytes": "32768",  # read ahead, for each partition that a process of Spark reads
    "reconnect.backoff.max.ms": "1000",
    "log_level": "2",  # what is wrong is told by errors and by `Cluster`; the library tells it every second
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}
OF_CONSUMERS = {
    *_FIXED,
    "group.id",
    "isolation.level",
    "fetch.wait.max.ms",
    "queued.max.messages.kbytes",
}
_JAVA = {
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file, which needs none",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.keystore.location, a PKCS#12 file",
    "sasl.jaas.config": "sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method",
    "key.deserializer": "a cast of the column key",
    "value.deserializer": "a cast of the column value",
    "max.poll.records": "maxOffsetsPerTrigger, an option of the source",
}
"""Settings of the Java client that users may bring along, and their equivalents here."""
_PROGRAMS = frozenset(
    {
        "plugin.library.paths",
        "sasl.kerberos.kinit.cmd",
        "ssl.engine.id",
        "ssl.engine.location",
        "ssl.providers",
    }
)
"""Settings by which the library runs a program or loads code. Whoever can send SQL, or write the definition of a topic
into a warehouse, can set options, and must not run programs by them."""


_SILENCE = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_RESOLVE",
    "_WAIT_CACHE",
    "_DESTROY_BROKER",
    "_NODE_UPDATE",
}
"""No broker answered. The last two: the one asked has left the cluster, as a broker that stops cleanly says of itself
before it goes, or has another address now; what waited for it is given back."""
_PASSING = {
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REPLICA_NOT_AVAILABLE",
    "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "NETWORK_EXCEPTION",
    "REQUEST_TIMED_OUT",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "KAFKA_STORAGE_ERROR",
}
_UNKNOWN = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"}
_NOT_WHO = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"}
_MAY_NOT = {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}


@dataclass(frozen=True)
class ClientConfig:
    """Client settings as ``(name, value)`` pairs. Its repr shows the addresses alone."""

    servers: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Create it from settings without the prefix ``kafka.``. Raises `OptionError`."""
        servers = settings.get(SERVERS, "").strip()
        if not servers:
            raise OptionError(
                "the Kafka source was not told where the brokers are",
                hint=f"give option('kafka.{SERVERS}', 'host:9092,other:9092').",
            )
        for name in settings:
            if name in _FIXED:
                raise OptionError(
                    f"'kafka.{name}' cannot be set: the offsets of a read are in Spark's checkpoint",
                    hint="use startingOffsets and failOnDataLoss.",
                )
            if name in _PROGRAMS:
                raise OptionError(
                    f"'kafka.{name}' cannot be set: it would have the client run a program or load a library",
                    hint="start what is needed outside, such as kinit with its ticket cache; keys and certificates are "
                    "files: kafka.ssl.key.location.",
                )
            if name in _JAVA:
                raise OptionError(
                    f"'kafka.{name}' is a setting of the Java client",
                    hint=f"this source uses librdkafka; its way is {_JAVA[name]}.",
                )
        return cls(servers, tuple(sorted({**_DEFAULTS, **settings, **_FIXED}.items())))

    def connect(self) -> Client:
        """Create a consumer, which sends nothing before its first request. Raises `OptionError`."""
        return Client(self)


class Client:
    """A consumer of librdkafka that remembers its latest background error."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.complaint: KafkaError | None = None
        """The latest error that belongs to no request, such as a broker that is down."""
        self._admin: AdminClient | None = None
        kafka = library()
        try:
            self.consumer: Consumer = kafka.Consumer(
                {**dict(config.settings), "error_cb": self._complain}, logger=_LOG
            )
        except kafka.KafkaException as error:
            raise OptionError(
                f"the Kafka client does not take its settings: {error.args[0].str()}",
                hint="settings are those of librdkafka, with the prefix 'kafka.'.",
            ) from error

    @property
    def admin(self) -> AdminClient:
        """Admin client for requests that a consumer lacks; created when first needed."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            settings: dict[str, Any] = {k: v for k, v in self.config.settings if k not in OF_CONSUMERS}
            settings["error_cb"] = self._complain
            self._admin = AdminClient(settings, logger=_LOG)
        return self._admin

    def close(self) -> None:
        self._admin = None
        self.consumer.close()

    def _complain(self, error: KafkaError) -> None:
        self.complaint = error

    def error(self, what: str, error: KafkaError | KafkaException | None) -> AnabranchError:
        """Return our error for a request that the brokers did not fulfil.

        Args:
            what: what was asked of them, for example "list the partitions of topic 'flights'".
            error: what the library said; None if it said nothing in the time there was.
        """
        found = error.args[0] if isinstance(error, Exception) else error
        if found is None or _is_silence(found):
            return self._silent(what, found)
        return _translated(what, found, self.config.servers)

    def _silent(self, what: str, error: KafkaError | None) -> AnabranchError:
        """Return the error for a missing answer, with the consumer's latest background error if there is one."""
        told = self.complaint or error
        if told is not None and not _is_silence(told):
            return _translated(what, told, self.config.servers)
        return StorageError(
            f"no Kafka broker at {self.config.servers} answered the request to {what}"
            + ("" if told is None else f": {told.str()}"),
            hint="check kafka.bootstrap.servers, that the brokers run, that the addresses they advertise can be reached "
            "from here, and kafka.security.protocol.",
            retryable=True,
        )


def is_passing(error: KafkaError) -> bool:
    """Whether the error is transient, so that a retry may help."""
    return _is_silence(error) or error.name() in _PASSING


def is_unknown(error: KafkaError) -> bool:
    """Whether the error says that the topic or partition does not exist."""
    return error.name() in _UNKNOWN


def _is_silence(error: KafkaError) -> bool:
    return error.name() in _SILENCE


def _translated(what: str, error: KafkaError, servers: str) -> AnabranchError:
    message = f"the Kafka brokers at {servers} did not {what}: {error.str()}"
    if is_unknown(error):
        return NotFoundError(message, hint="check the name of the topic.")
    if error.name() in _NOT_WHO:
        return StorageError(
            message, hint="check kafka.security.protocol, kafka.sasl.* and kafka.ssl.ca.location."
        )
    if error.name() in _MAY_NOT:
        return StorageError(
            message,
            hint="the user needs the rights to describe and read the topic, and to read the group of kafka.group.id.",
        )
    return StorageError(message, retryable=is_passing(error))


def library() -> Any:
    """Return the package `confluent_kafka`. Raises `UnsupportedFeatureError` if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise UnsupportedFeatureError(
            "reading Kafka needs the package confluent-kafka, which is not installed",
            feature="kafka",
            hint="pip install 'anabranch[kafka]', where the driver and where the executors of Spark run.",
        ) from error
    return confluent_kafka
