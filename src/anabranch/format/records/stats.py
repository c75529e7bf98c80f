"""Statistics of columns: minimum, maximum and number of nulls, as manifests carry them.

The rules are those of Java Paimon over Parquet, so that a file looks the same whoever wrote it. A bound that is
missing means unknown; nothing may be skipped on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import OptionError, SchemaError
from anabranch.format.records.data_file import SimpleStats
from anabranch.format.rows.binary_row import encode_row, is_text, with_arity
from anabranch.format.schema.watermark import watermark_definition
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import PLAIN_ARROW
from anabranch.format.types.values import ArrowColumn, fit_column, physical_value, physical_values
from anabranch.options import STATS_MODE

if TYPE_CHECKING:
    from anabranch.format.schema.table_schema import TableSchema


class StatsKind(StrEnum):
    """Level of statistics kept for a column."""

    NONE = "none"
    COUNTS = "counts"
    """The number of nulls."""
    TRUNCATE = "truncate"
    """Also minimum and maximum, text shortened."""
    FULL = "full"
    """Also minimum and maximum, exact."""


@dataclass(frozen=True, slots=True)
class StatsMode:
    """Statistics kept for a column; `length` is the most code points of text that TRUNCATE keeps."""

    kind: StatsKind
    length: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.length})" if self.kind is StatsKind.TRUNCATE else str(self.kind)


DEFAULT_STATS_MODE = StatsMode(StatsKind.TRUNCATE, 16)


def parse_stats_mode(text: str) -> StatsMode:
    """A mode from ``none``, ``counts``, ``truncate(<n>)`` or ``full``, in any case. Raises `OptionError`."""
    spelled = text.strip().lower()
    if spelled in {StatsKind.NONE, StatsKind.COUNTS, StatsKind.FULL}:
        return StatsMode(StatsKind(spelled))
    match = re.fullmatch(r"truncate\(([1-9][0-9]{0,8})\)", spelled)
    if match is None:
        raise OptionError(
            f"'{text}' is not a statistics mode",
            hint="Use none, counts, truncate(<n>) with n of at least 1, or full.",
        )
    return StatsMode(StatsKind.TRUNCATE, int(match[1]))


def stats_modes(schema: TableSchema) -> list[StatsMode]:
    """The mode of every column, in schema order: ``fields.<name>.stats-mode``, or else the table's.

    Event times have bounds whatever is the table's: that files hold no late rows is seen by them.

    Raises:
        OptionError: one of them is no mode.
    """
    default = parse_stats_mode(STATS_MODE.of(schema.options))
    modes = {field.name: default for field in schema.fields}
    definition = watermark_definition(schema)
    if definition is not None and default.kind in {StatsKind.NONE, StatsKind.COUNTS}:
        modes[definition.column] = DEFAULT_STATS_MODE
    for name in modes:
        own = schema.options.get(f"fields.{name}.stats-mode")
        if own is not None:
            modes[name] = parse_stats_mode(own)
    return [*modes.values()]


class StatsCollector:
    """Statistics of one data file, gathered batch by batch as it is written.

    Args:
        fields: the columns of the file's schema.
        modes: the mode of each of them.
    """

    def __init__(self, fields: Sequence[t.Field], modes: Sequence[StatsMode]) -> None:
        self._columns = [_ColumnStats(field, mode) for field, mode in zip(fields, modes, strict=True)]

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take in rows whose columns are those of the schema, in its order. Raises `SchemaError`."""
        if batch.num_columns != len(self._columns):
            raise SchemaError(f"expected a batch of {len(self._columns)} columns, found {batch.num_columns}")
        if batch.num_rows == 1:
            batches = [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches()
            self._update_with_row(*(one for one in batches if one.num_rows))
            return
        columns: Any = batch.columns
        for column, values in zip(self._columns, columns, strict=True):
            column.update(values)

    def _update_with_row(self, row: pa.RecordBatch) -> None:
        """Take in the values of one row: those of one type together, because there may be thousands."""
        by_type: dict[Any, list[tuple[_ColumnStats, Any]]] = {}
        for column, value in zip(self._columns, row.columns, strict=True):
            if column.count(value):
                kind, found_type = column.data_type, value.type
                # A class is found sooner than all that makes up a type.
                alike = type(kind) if _PLAIN.get(type(kind)) == found_type.id else (kind, found_type)
                by_type.setdefault(alike, []).append((column, value))
        for some in by_type.values():
            column, value = some[0]
            found = physical_values(
                pa.chunked_array([array for _, array in some], value.type), column.data_type
            )
            for (column, _), one in zip(some, found, strict=True):
                column.take_in(one, one)

    def finish(self) -> SimpleStats:
        """Statistics with one slot per column, whether anything is known of it or not."""
        return _stats_of(self._columns)


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Statistics of one column, collected by another writer of our files."""

    null_count: int
    low: Any = None
    """The least value, a physical one; None if not known."""
    high: Any = None


def gathered_stats(
    fields: Sequence[t.Field], modes: Sequence[StatsMode], facts: Sequence[ColumnFacts | None]
) -> SimpleStats:
    """Statistics as `StatsCollector` gives them for the same rows.

    Args:
        fields: the columns of the file's schema.
        modes: the mode of each of them.
        facts: what is known of each of them.
    """
    columns = [_ColumnStats(field, mode) for field, mode in zip(fields, modes, strict=True)]
    for column, known in zip(columns, facts, strict=True):
        column.take(known)
    return _stats_of(columns)


def partition_stats(types: Sequence[t.DataType], rows: Iterable[Sequence[Any]]) -> SimpleStats:
    """Exact statistics of partitions, given as physical values in the order of the partition keys."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    bounds = [_exact_bounds([v for v in column if v is not None]) for column in columns]
    return _simple_stats(types, bounds, [sum(v is None for v in column) for column in columns])


def has_bounds(data_type: t.DataType) -> bool:
    """Whether minimum and maximum of a column of the type are kept at all."""
    match data_type:
        case t.BinaryType() | t.VarBinaryType():
            return False
        case t.TimestampType(precision=precision) | t.LocalZonedTimestampType(precision=precision):
            return precision <= 6  # finer ones are INT96 in Parquet, which has no order
        case _:
            return t.is_atomic(data_type)


def truncate_min(text: str, length: int) -> str:
    """The first `length` code points: no text that begins like `text` sorts before them."""
    return text[:length]


def truncate_max(text: str, length: int) -> str | None:
    """A text of at most `length` code points that sorts after every text beginning like `text`, if any."""
    if len(text) <= length:
        return text
    for last in range(length - 1, -1, -1):
        successor = ord(text[last]) + 1
        if successor <= 0x10FFFF:
            # Surrogates are no characters.
            return text[:last] + chr(0xE000 if successor == 0xD800 else successor)
    return None


_WITH_BOUNDS = {StatsKind.TRUNCATE, StatsKind.FULL}
_PLAIN = {kind: found.id for kind, found in PLAIN_ARROW.items() if kind is not t.TimeType}
"""The identifiers of Arrow's types for types without parameters that matter, where these have none either."""
_Bounds = tuple[Any, Any]
_UNKNOWN: _Bounds = (None, None)


def _simple_stats(
    types: Sequence[t.DataType], bounds: Sequence[_Bounds], null_counts: Sequence[int | None]
) -> SimpleStats:
    lowest = with_arity(len(types), encode_row(types, [low for low, _ in bounds]))
    # Of a single row both are mostly the same objects, and then the same bytes.
    is_one = all(low is high for low, high in bounds)
    highest = lowest if is_one else with_arity(len(types), encode_row(types, [high for _, high in bounds]))
    return SimpleStats(lowest, highest, tuple(null_counts))


def _stats_of(columns: Sequence[_ColumnStats]) -> SimpleStats:
    return _simple_stats(
        [column.data_type for column in columns],
        [column.bounds() for column in columns],
        [column.null_count for column in columns],
    )


def _exact_bounds(values: Sequence[Any]) -> _Bounds:
    if not values or any(isinstance(v, float) and math.isnan(v) for v in values):
        return _UNKNOWN
    return _signed_zeros(min(values), max(values))


def _signed_zeros(low: Any, high: Any) -> _Bounds:
    """Bounds of floats that hold whichever zero is asked for: both compare as equal, but their bytes differ."""
    if isinstance(low, float):
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, high


class _ColumnStats:
    """Statistics of one column so far."""

    def __init__(self, field: t.Field, mode: StatsMode) -> None:
        self.data_type = field.type
        counted = mode.kind is not StatsKind.NONE and t.is_atomic(field.type)
        self.null_count: int | None = 0 if counted else None
        self._mode = mode
        self._bounded = mode.kind in _WITH_BOUNDS and has_bounds(field.type)
        self._may_hold_nan = isinstance(field.type, t.FloatType | t.DoubleType)
        self._low: Any = None
        self._high: Any = None

    def count(self, values: ArrowColumn) -> bool:
        """Count the nulls; whether there are values that the bounds have to take in."""
        if self.null_count is None:
            return False
        nulls = values.null_count
        self.null_count += nulls
        return self._bounded and nulls < len(values)

    def update(self, values: ArrowColumn) -> None:
        if not self.count(values):
            return
        fitted: Any = fit_column(values, self.data_type)
        if self._may_hold_nan and pc.any(pc.is_nan(fitted)).as_py():
            self._bounded = False
            return
        # Arrow compares text by its bytes, as Paimon does.
        found: Any = pc.min_max(fitted)
        self.take_in(*(physical_value(found[end], self.data_type) for end in ("min", "max")))

    def take_in(self, low: Any, high: Any) -> None:
        if self._may_hold_nan and math.isnan(low):
            self._bounded = False
            return
        self._low, self._high = _pick(min, self._low, low), _pick(max, self._high, high)

    def take(self, facts: ColumnFacts | None) -> None:
        if self.null_count is None:
            return
        if facts is None:
            self.null_count, self._bounded = None, False
            return
        self.null_count = facts.null_count
        self._low, self._high = facts.low, facts.high
        if any(b is None or (isinstance(b, float) and math.isnan(b)) for b in (self._low, self._high)):
            self._bounded = False

    def bounds(self) -> _Bounds:
        if not self._bounded or self._low is None:
            return _UNKNOWN
        low, high = _signed_zeros(self._low, self._high)
        if self._mode.kind is StatsKind.TRUNCATE and is_text(self.data_type):
            low, high = truncate_min(low, self._mode.length), truncate_max(high, self._mode.length)
        return (low, high) if high is not None else _UNKNOWN


def _pick(best: Callable[[Any, Any], Any], known: Any, found: Any) -> Any:
    return found if known is None else best(known, found)
