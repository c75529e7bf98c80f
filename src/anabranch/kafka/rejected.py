"""Unreadable records as rows of a table of dead letters."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.kafka.columns import to_batch
from anabranch.kafka.offsets import TopicPartition
from anabranch.kafka.values import ValueReader

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
