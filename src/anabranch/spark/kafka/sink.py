"""Writing rows to topics: ``writeStream.format("anabranch-kafka")`` and ``write``.

Columns are those of Spark's own sink: ``value``, and if wanted ``key``, ``topic``, ``partition`` and ``headers``. A stream is written
exactly once, for consumers that read committed records: the rows of a batch travel to the process that commits it, which
sends them in one transaction (`anabranch.kafka.produce`). With ``delivery`` = ``at-least-once`` each task sends its rows itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.errors import OptionError, SchemaError, did_you_mean
from anabranch.kafka.options import CLIENT_PREFIX, PATIENCE
from anabranch.kafka.produce import Record, Sending
from anabranch.option_kinds import Option
from anabranch.spark.context.options import CHECKPOINT
from anabranch.spark.lineage.checkpoint import Checkpoint

_COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
_ONCE, _AT_LEAST_ONCE = "exactly-once", "at-least-once"


def _delivery(text: str) -> str:
    if text not in (_ONCE, _AT_LEAST_ONCE):
        raise ValueError(text)
    return text


TOPIC: Final[Option[str | None]] = Option(
    "topic", str, None, "The topic of rows without a column topic.", "topic"
)
DELIVERY: Final = Option(
    "delivery",
    _delivery,
    _ONCE,
    "exactly-once (default of streams), or at-least-once.",
    f"{_ONCE} or {_AT_LEAST_ONCE}",
)
PREFIX: Final = Option(
    "sink.transactional-id.prefix",
    str,
    "anabranch",
    "What the ids of transactions begin with; the id of the query follows.",
    "text",
)
_KNOWN: Final = {option.key.lower(): option.key for option in (TOPIC, DELIVERY, PREFIX, PATIENCE)}
_FROM_SPARK: Final = {CHECKPOINT.lower(), "queryname", "path"}


@dataclass(frozen=True)
class SinkSettings:
    """Settings of a write to topics. Picklable."""

    sending: Sending
    topic: str | None
    delivery: str
    prefix: str

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> SinkSettings:
        """Parse the options. Raises `OptionError`, and `SchemaError` if rows have columns that a sink does not take."""
        named: dict[str, str] = {}
        for key, value in options.items():
            lower = key.lower()
            if lower.startswith(CLIENT_PREFIX) or lower in _KNOWN:
                named[_KNOWN.get(lower, lower)] = str(value)
            elif lower not in _FROM_SPARK:
                hint = did_you_mean(lower, _KNOWN.values(), "settings of the client begin with 'kafka.'.")
                raise OptionError(f"the Kafka sink has no option '{key}'", hint=hint)
        client = {k.removeprefix(CLIENT_PREFIX): v for k, v in named.items() if k.startswith(CLIENT_PREFIX)}
        settings = cls(
            Sending.of(client, PATIENCE.of(named) / 1000),
            TOPIC.of(named),
            DELIVERY.of(named),
            PREFIX.of(named),
        )
        unknown = [name for name in schema.names if name not in _COLUMNS]
        if unknown or "value" not in schema.names:
            raise SchemaError(
                f"rows for a topic have the columns {', '.join(schema.names)}",
                hint="they are value, and if wanted key, topic, partition, headers: "
                "select(to_json(struct('*')).alias('value')).",
            )
        if settings.topic is None and "topic" not in schema.names:
            raise OptionError(
                "it is not said to which topic rows go", hint="set 'topic', or add a column topic."
            )
        return settings

    def records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Record]:
        """Yield the rows as records. Raises `SchemaError` for a row without a topic."""
        for batch in batches:
            for row in batch.to_pylist():
                topic = row.get("topic") or self.topic
                if topic is None:
                    raise SchemaError(
                        "a row has no topic", hint="fill the column topic, or set the option 'topic'."
                    )
                headers = row.get("headers")
                yield Record(
                    topic,
                    _bytes(row["value"]),
                    _bytes(row.get("key")),
                    row.get("partition"),
                    None if headers is None else tuple((one["key"], _bytes(one["value"])) for one in headers),
                )


@dataclass(frozen=True)
class TaskRecords(WriterCommitMessage):
    """Records that one task hands to the commit for sending."""

    records: tuple[Record, ...]


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writer that sends the rows of each batch."""

    def __init__(self, settings: SinkSettings, options: Mapping[str, str]) -> None:
        self._settings = settings
        self._checkpoint = next((v for k, v in options.items() if k.lower() == CHECKPOINT.lower()), "")
        if settings.delivery == _ONCE and settings.topic is None:
            raise OptionError(
                "a stream that is written exactly once remembers its batches beside a topic, and none is named",
                hint=f"set 'topic', whatever the column topic says; or '{DELIVERY.key}' = '{_AT_LEAST_ONCE}'.",
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRecords:
        records = self._settings.records(iterator)
        if self._settings.delivery == _ONCE:
            return TaskRecords(tuple(records))
        self._settings.sending.send(records)
        return TaskRecords(())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        topic = self._settings.topic
        if self._settings.delivery != _ONCE or topic is None:
            return
        query = Checkpoint.of({CHECKPOINT: self._checkpoint}).query_id
        records = chain.from_iterable(m.records for m in messages if isinstance(m, TaskRecords))
        self._settings.sending.send_once(records, f"{self._settings.prefix}-{query}", batchId, topic)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: either nothing was sent, or records were sent at least once."""


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writer that sends each row at least once: records of failed tasks are not taken back."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._settings.sending.send(self._settings.records(iterator))
        return TaskRecords(())


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
