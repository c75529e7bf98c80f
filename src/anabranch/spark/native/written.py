"""What tasks of Spark tell of the data files that they wrote by our Java, as commit messages."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.arrow.writer import WriteContext
from anabranch.errors import AnabranchError, CorruptTableError, SchemaError
from anabranch.format.records.data_file import DataFileMeta
from anabranch.format.records.stats import ColumnFacts, gathered_stats, has_bounds, stats_modes
from anabranch.format.rows.binary_row import encode_row, is_text, with_arity
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import NANOS_PER_UNIT
from anabranch.kernel.commit.commit_message import CommitMessage, EventTimes

_EXACT = Context(prec=38)
_STORED_NANOS = {"s": NANOS_PER_UNIT["ms"], "ms": NANOS_PER_UNIT["ms"], "us": NANOS_PER_UNIT["us"]}
"""Nanoseconds of what Parquet stores for a moment, by the unit of its Arrow type."""
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class TaskAnswer:
    """What one task wrote, or why it refused its rows."""

    messages: list[CommitMessage]
    refusal: AnabranchError | None


def answers(told: bytes, context: WriteContext) -> list[TaskAnswer]:
    """The answers of all tasks, in their order.

    Args:
        told: as ``Commits.told`` gives it.
        context: of the write.
    """
    return [_answer(pickle.loads(part), context) for part in _parts(told)]  # noqa: S301 - of our own tasks


def _parts(told: bytes) -> Iterator[memoryview]:
    rest = memoryview(told)
    while rest:
        (size,) = _LENGTH.unpack_from(rest)
        yield rest[_LENGTH.size : _LENGTH.size + size]
        rest = rest[_LENGTH.size + size :]


def _answer(said: Any, context: WriteContext) -> TaskAnswer:
    files, refusal, times = said
    schema = context.schema
    types = [f.type for f in schema.partition_fields]
    modes = stats_modes(schema)
    splitter = Splitter(schema, context.all_options)
    found: dict[BucketKey, list[DataFileMeta]] = {}
    for path, partition, bucket, rows, size, millis, columns in files:
        values = [_partition_value(kind, v) for kind, v in zip(types, partition, strict=True)]
        key = BucketKey(with_arity(len(types), encode_row(types, values, reserve_nulls=True)), bucket)
        folder, _, name = path.rpartition("/")
        if folder != splitter.folder(key):
            raise CorruptTableError(
                f"a task wrote to the folder '{folder}' what belongs to '{splitter.folder(key)}'",
                path=path,
                hint="this is a mistake of Anabranch; nothing was committed.",
            )
        known = found.setdefault(key, [])
        first = known[-1].max_sequence_number + 1 if known and schema.bucket > 0 else 0
        facts = [_facts(f.type, column) for f, column in zip(schema.fields, columns, strict=True)]
        known.append(
            DataFileMeta(
                file_name=name,
                file_size=size,
                row_count=rows,
                value_stats=gathered_stats(schema.fields, modes, facts),
                min_sequence_number=first,
                max_sequence_number=first + rows - 1,
                schema_id=schema.id,
                creation_time=millis + context.runtime.clock.local_offset_millis(millis),
                file_source=context.source,
                written_millis=millis,
            )
        )
    messages = [CommitMessage(key.partition, key.bucket, schema.bucket, tuple(f)) for key, f in found.items()]
    if messages and times is not None:
        newest, ahead = times
        messages[0] = replace(messages[0], event_times=EventTimes(newest, {}, ahead))
    return TaskAnswer(messages, None if refusal is None else SchemaError(refusal[0], hint=refusal[1]))


def _partition_value(data_type: t.DataType, value: Any) -> Any:
    if value is None:
        return None
    if is_text(data_type):
        return bytes(value).decode()
    return Decimal(value) if isinstance(data_type, t.DecimalType) else value


def _facts(data_type: t.DataType, column: Sequence[Any] | None) -> ColumnFacts | None:
    if column is None:
        return None
    nulls, low, high = column
    if low is None or not has_bounds(data_type):
        return ColumnFacts(nulls)
    return ColumnFacts(nulls, _physical(data_type, bytes(low)), _physical(data_type, bytes(high)))


def _physical(data_type: t.DataType, stored: bytes) -> Any:
    """The physical value of what Parquet stores in its plain encoding."""
    match data_type:
        case t.BooleanType():
            return stored != b"\0"
        case t.FloatType():
            return struct.unpack("<f", stored)[0]
        case t.DoubleType():
            return struct.unpack("<d", stored)[0]
        case t.DecimalType(precision=precision, scale=scale):
            order = "little" if precision <= 18 else "big"
            return _EXACT.scaleb(Decimal(int.from_bytes(stored, order, signed=True)), -scale)  # type: ignore[arg-type]
        case t.TimestampType() | t.LocalZonedTimestampType():
            unit = to_arrow_type(data_type).unit
            return int.from_bytes(stored, "little", signed=True) * _STORED_NANOS[unit]
        case _ if is_text(data_type):
            return stored.decode()
        case _:
            return int.from_bytes(stored, "little", signed=True)
