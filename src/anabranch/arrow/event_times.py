"""Tracking of the newest event times of rows while they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import watermark_definition
from anabranch.format.types.data_types import Field, VarCharType
from anabranch.format.types.grammar import UNASSIGNED_ID
from anabranch.kernel.commit.commit_message import CommitMessage, EventTimes
from anabranch.options import WATERMARK_MAX_AHEAD, WATERMARK_SOURCE_COLUMN
from anabranch.runtime import Clock

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def source_field(schema: TableSchema, options: Mapping[str, str]) -> Field | None:
    """Return the extra last column that `sink.watermark.source-column` names.

    None if the option is not set, or names a column of the table.
    """
    name = WATERMARK_SOURCE_COLUMN.of(options)
    if name is None or any(f.name == name for f in schema.fields):
        return None
    return Field(UNASSIGNED_ID, name, VarCharType(nullable=False))


class EventTimeTracker:
    """Tracker of event times of rows on their way to the files of one table.

    Where the table defines no watermark, it only takes out the column that the table does not have.
    """

    def __init__(self, schema: TableSchema, options: Mapping[str, str], clock: Clock) -> None:
        definition = watermark_definition(schema)
        self._column = None if definition is None else definition.column
        self._source = WATERMARK_SOURCE_COLUMN.of(options)
        self._is_extra = source_field(schema, options) is not None
        self._clock, self._max_ahead = clock, WATERMARK_MAX_AHEAD.of(options)
        self._ahead = 0
        self._newest: int | None = None
        self._by_source: dict[str, int] = {}

    def taken(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Record event times; return the rows in the columns of the table. Raises `SchemaError`."""
        sources: Any = None
        if self._source is not None:
            if self._source not in rows.schema.names:
                raise SchemaError(
                    f"the rows have no column '{self._source}', which '{WATERMARK_SOURCE_COLUMN.key}' names",
                    hint="add it to the query, or leave the option out.",
                )
            sources = rows.column(self._source)
            if self._is_extra:
                rows = rows.drop_columns([self._source])
        if self._column is not None and self._column in rows.schema.names and len(rows):
            self._look(rows.column(self._column), sources)
        return rows

    def noted(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Return the messages of the rows, with the event times added to the first."""
        if self._column is None or not messages:
            return [*messages]
        first, *others = messages
        return [replace(first, event_times=EventTimes(self._newest, self._by_source, self._ahead)), *others]

    def _look(self, times: Any, sources: Any) -> None:
        newest = _millis(pc.max(times))
        latest_allowed = self._clock.now_millis() + self._max_ahead
        if newest is not None and newest > latest_allowed:
            counted = _is_at_most(times, latest_allowed)
            self._ahead += pc.sum(pc.invert(counted)).as_py() or 0
            times = times.filter(counted)
            sources = None if sources is None else sources.filter(counted)
            newest = _millis(pc.max(times))
        if newest is None:
            return
        self._newest = newest if self._newest is None else max(self._newest, newest)
        if sources is None:
            return
        grouped = pa.table({"source": sources.cast(pa.string()), "time": times}).group_by("source")
        found = grouped.aggregate([("time", "max")])
        for source, time in zip(found["source"].to_pylist(), found["time_max"], strict=True):
            latest = _millis(time)
            if latest is not None:
                name = source or ""
                self._by_source[name] = max(latest, self._by_source.get(name, latest))


def _is_at_most(times: Any, millis: int) -> Any:
    """Return for each time whether it is at most `millis`; null for a null."""
    bound = min((millis + 1) * _PER_SECOND[times.type.unit] // 1000 - 1, 2**63 - 1)
    return pc.less_equal(times.cast(pa.int64()), bound)


def _millis(time: Any) -> int | None:
    """Return a timestamp in epoch milliseconds, rounded down; one without a zone counts as UTC."""
    value: int | None = time.value
    if value is None:
        return None
    per_second = _PER_SECOND[time.type.unit]
    return value * 1000 // per_second
