"""Kafka records as columns, with the names and types of Spark's own source.

``key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT`` and,
if asked for, ``headers ARRAY<STRUCT<key STRING, value BINARY>>``. `timestampType` is 0 for the time the producer set,
1 for the time the broker took the record, -1 for none; then `timestamp` is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.kafka.offsets import TopicPartition
from anabranch.kafka.values import ValueReader, ValueSettings

if TYPE_CHECKING:
    from confluent_kafka import Message

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")


def columns(*, headers: bool, values: ValueSettings | None = None) -> pa.Schema:
    """Return the columns of the source."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
    more = [("headers", _HEADERS)] if headers else []
    return pa.schema([*fields, *more, *([] if values is None else [values.column])])


def to_batch(
    messages: Sequence[Message], where: TopicPartition, *, headers: bool, values: ValueReader | None = None
) -> pa.RecordBatch:
    """Convert records of one partition to one batch; those whose value cannot be read are left to `values`."""
    from confluent_kafka import Message as Record

    rows = None
    if values is not None:
        messages, rows = values.read(messages, where)
    count = len(messages)
    # One tuple at a time: a list of them would make Python's garbage collector traverse all messages repeatedly.
    stamps = np.fromiter(chain.from_iterable(map(Record.timestamp, messages)), np.int64, 2 * count)
    kinds, millis = stamps[0::2] - 1, stamps[1::2]  # the library counts from "none"
    arrays = [
        pa.array(list(map(Record.key, messages)), pa.binary()),
        pa.array(list(map(Record.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(where.topic), count),
        pa.repeat(pa.scalar(where.partition, pa.int32()), count),
        pa.array(np.fromiter(map(Record.offset, messages), np.int64, count)),
        pa.array(millis * 1000, pa.int64(), mask=kinds < 0).cast(_TIMESTAMP),
        pa.array(kinds, pa.int32()),
    ]
    if headers:
        arrays.append(pa.array(list(map(Record.headers, messages)), _HEADERS))
    if values is None or rows is None:
        return pa.RecordBatch.from_arrays(arrays, schema=columns(headers=headers))
    return pa.RecordBatch.from_arrays(
        [*arrays, rows], schema=columns(headers=headers, values=values.settings)
    )


COLUMNS: Final = (
    "topic STRING NOT NULL, `partition` INT NOT NULL, `offset` BIGINT NOT NULL, "
    "`timestamp` TIMESTAMP(3) WITH LOCAL TIME ZONE, `key` BYTES, `value` BYTES, error STRING, sink STRING"
)
"""Columns of a table of dead letters. `sink` is the table or branch that the job writes to."""
_TAKEN: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


def rejected_rows(values: ValueReader, where: TopicPartition) -> pa.Table:
    """Return a reader's unreadable records, with the reason for each; all columns except the sink."""
    messages = [one.message for one in values.unreadable]
    records = pa.Table.from_batches([to_batch(messages, where, headers=False)]).select(_TAKEN)
    errors = pa.array([values.told(one, where) for one in values.unreadable], pa.string())
    return records.append_column("error", errors)
