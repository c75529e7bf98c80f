"""BinaryRows of many rows at once, from Arrow columns: what bucket keys are hashed as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.rows.binary_row import (
    INLINE_LIMIT,
    NANOS_PER_MILLI,
    WIDE_DECIMAL_SIZE,
    SlotKind,
    fixed_size,
    null_size,
    reserved_size,
    slot_kind,
)
from anabranch.format.types import data_types as t
from anabranch.format.types.values import (
    NANOS_PER_UNIT,
    ArrowArray,
    ArrowColumn,
    Bools,
    Longs,
    Octets,
    Words,
    fit_column,
    fixed_width,
    gather,
    validity,
    variable_width,
)

FEW = 32
"""From so few rows on, the rest of long rows is handled one row at a time."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows without the number of fields in front, as words of 8 bytes: every row is a whole number of them.

    Row `i` is ``words[starts[i]:starts[i + 1]]``.
    """

    words: Words
    starts: Longs

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, index: int) -> bytes:
        """One row, as `binary_row.encode_row` gives it."""
        return self.words[self.starts[index] : self.starts[index + 1]].tobytes()


def encode_rows(
    columns: Sequence[ArrowColumn], types: Sequence[t.DataType], *, reserve_nulls: bool = True
) -> EncodedRows:
    """The rows of equally long columns, each equal to what `binary_row.encode_row` gives for its values.

    Args:
        columns: at least one Arrow column; its type need only fit the column's `types` without loss.
        reserve_nulls: as in `binary_row.encode_row`.

    Raises:
        SchemaError: a column does not fit its type.
    """
    if len(columns) != len(types) or len({len(column) for column in columns}) != 1:
        raise SchemaError(
            f"{len(columns)} columns, perhaps of unequal length, do not make rows of {len(types)} fields"
        )
    fields = [
        _field(column, data_type, reserve_nulls) for column, data_type in zip(columns, types, strict=True)
    ]
    slots_at, variable_at = null_size(len(types)) // 8, fixed_size(len(types)) // 8
    item_at = [np.full(len(columns[0]), variable_at, np.int64)]
    for field in fields:
        item_at.append(item_at[-1] + field.item_sizes)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(item_at[-1])])
    words = np.zeros(int(starts[-1]), np.uint64)
    begins = starts[:-1]
    for position, (field, offsets) in enumerate(zip(fields, item_at, strict=False)):
        has_item = field.item_sizes > 0
        words[begins + slots_at + position] = np.where(
            has_item, field.slots | _high(offsets * 8), field.slots
        )
        bit = position + 8
        words[begins + bit // 64] |= (~field.valid).astype(np.uint64) << np.uint64(bit % 64)
        field.write_items(words, begins + offsets, has_item)
    return EncodedRows(words, starts)


def _high(numbers: Longs) -> Words:
    return numbers.view(np.uint64) << np.uint64(32)


@dataclass(frozen=True, slots=True)
class _Field:
    """One column as slots, still without offsets, and items of the variable part."""

    valid: Bools
    slots: Words
    """Zero where not `valid`."""
    item_sizes: Longs
    """Words that each row has in the variable part."""
    write_items: Callable[[Words, Longs, Bools], None]
    """Write the items to these places of the words, for the rows that have one."""


def _field(column: ArrowColumn, data_type: t.DataType, reserve_nulls: bool) -> _Field:
    fitted = fit_column(column, data_type)
    kind = slot_kind(data_type)
    if kind is SlotKind.BYTES:
        return _bytes_field(fitted)
    array = fitted.combine_chunks() if isinstance(fitted, pa.ChunkedArray) else fitted
    valid = validity(array)
    slots, items = _FIELDS[kind](array, data_type, valid)
    sizes = np.full(len(valid), reserved_size(data_type) // 8)
    return _Field(
        valid=valid,
        slots=np.where(valid, slots, np.uint64(0)),
        item_sizes=sizes if reserve_nulls else np.where(valid, sizes, 0),
        write_items=_writer(items, valid),
    )


def _writer(items: list[Words], valid: Bools) -> Callable[[Words, Longs, Bools], None]:
    def write(words: Words, at: Longs, has_item: Bools) -> None:
        for number, item in enumerate(items):
            words[at[has_item] + number] = np.where(valid, item, np.uint64(0))[has_item]

    return write


_Pieces = tuple[Words, list[Words]]
"""The slots of a column, and the words of its items, both undefined where null."""


def _fixed(array: ArrowArray, data_type: t.DataType, _valid: Bools) -> _Pieces:
    if isinstance(data_type, t.BooleanType):
        array = array.cast(pa.uint8())
    return fixed_width(array, _UNSIGNED[type(data_type)]).astype(np.uint64), []


def _millis(array: ArrowArray, data_type: t.DataType, valid: Bools) -> _Pieces:
    millis, _ = _split_timestamps(array, data_type, valid)
    return millis.view(np.uint64), []


def _millis_and_nanos(array: ArrowArray, data_type: t.DataType, valid: Bools) -> _Pieces:
    millis, nanos = _split_timestamps(array, data_type, valid)
    return nanos.view(np.uint64), [millis.view(np.uint64)]


def _split_timestamps(array: ArrowArray, data_type: t.DataType, valid: Bools) -> tuple[Longs, Longs]:
    """Milliseconds, rounded towards the past, and the nanoseconds beyond them."""
    timestamps: Any = array.type
    nanos_per_unit = NANOS_PER_UNIT[timestamps.unit]
    values = fixed_width(array, "i8")
    if nanos_per_unit >= NANOS_PER_MILLI:
        factor = nanos_per_unit // NANOS_PER_MILLI
        limit = np.iinfo(np.int64).max // factor
        if np.any(valid & ((values > limit) | (values < -limit - 1))):
            raise SchemaError(f"a value of a {data_type} column is beyond what milliseconds of 64 bits reach")
        return values * factor, np.zeros(len(values), np.int64)
    per_milli = NANOS_PER_MILLI // nanos_per_unit
    millis = values // per_milli
    return millis, (values - millis * per_milli) * nanos_per_unit


def _decimal(array: ArrowArray, _type: t.DataType, _valid: Bools) -> _Pieces:
    low, _ = _halves(array)
    return low, []


def _wide_decimal(array: ArrowArray, _type: t.DataType, _valid: Bools) -> _Pieces:
    low, high = _halves(array)
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    sizes = _byte_sizes(low ^ sign, high ^ sign)
    high, low = _shift_left(high, low, (WIDE_DECIMAL_SIZE - sizes) * np.uint64(8))
    return sizes, [high.byteswap(), low.byteswap()]


def _halves(array: ArrowArray) -> tuple[Words, Words]:
    if not len(array):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    buffer: Any = array.buffers()[1]
    numbers = np.frombuffer(buffer, np.uint64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    return np.ascontiguousarray(numbers[:, 0]), np.ascontiguousarray(numbers[:, 1])


def _byte_sizes(low: Words, high: Words) -> Words:
    """The fewest bytes that hold non-negative numbers of two halves together with a sign bit."""
    sizes = np.ones(len(low), np.uint64)
    for bits in range(7, 127, 8):
        sizes += (high > 0) | (low >> np.uint64(bits) > 0) if bits < 64 else high >> np.uint64(bits - 64) > 0
    return sizes


def _shift_left(high: Words, low: Words, bits: Words) -> tuple[Words, Words]:
    """Numbers of two halves, shifted by 0 to 127 bits."""
    far = bits >= 64
    high, low = np.where(far, low, high), np.where(far, np.uint64(0), low)
    bits = bits & np.uint64(63)
    # A shift by 64 is undefined, so what moves from one half to the other does so in two steps.
    moved = low >> np.uint64(1) >> (np.uint64(63) - bits)
    return high << bits | moved, low << bits


def _bytes_field(column: ArrowColumn) -> _Field:
    data, offsets, valid = variable_width(column)
    # Whole words are read at any byte, so the last ones need room behind them.
    data = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)])
    begins = offsets[:-1] - offsets[0]
    sizes = np.where(valid, np.diff(offsets), 0)
    inline = sizes <= INLINE_LIMIT
    in_slot = _first_bytes(gather(data, begins, "<u8"), sizes) | (sizes + 0x80).view(np.uint64) << np.uint64(
        56
    )
    slots = np.where(inline, in_slot, sizes.view(np.uint64))
    item_sizes = np.where(inline, 0, (sizes + 7) // 8)
    items = _LongItems(data, begins, sizes)
    return _Field(valid, np.where(valid, slots, np.uint64(0)), item_sizes, items.write)


@dataclass(frozen=True, slots=True)
class _LongItems:
    """Texts that do not fit a slot, as places in their bytes."""

    data: Octets
    begins: Longs
    sizes: Longs

    def write(self, words: Words, at: Longs, has_item: Bools) -> None:
        """The first word of every item, then the second, and so on while many items are left."""
        rows, done = np.flatnonzero(has_item), 0
        while len(rows) > FEW:
            left = self.sizes[rows] - done
            words[at[rows] + done // 8] = _first_bytes(
                gather(self.data, self.begins[rows] + done, "<u8"), left
            )
            done += 8
            rows = rows[left > 8]
        target = words.view(np.uint8)
        for row in rows.tolist():
            begin, end = int(self.begins[row]) + done, int(self.begins[row] + self.sizes[row])
            to = int(at[row]) * 8 + done
            target[to : to + end - begin] = self.data[begin:end]


_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def _first_bytes(words: Words, counts: Longs) -> Words:
    """The words with all but their first bytes zero; 8 and more bytes are all of them."""
    kept: npt.NDArray[np.uint64] = words & _LOW_BYTES[np.minimum(counts, 8)]
    return kept


_UNSIGNED: dict[type[t.DataType], str] = {
    t.BooleanType: "u1",
    t.TinyIntType: "u1",
    t.SmallIntType: "u2",
    t.IntType: "u4",
    t.BigIntType: "u8",
    t.FloatType: "u4",
    t.DoubleType: "u8",
    t.DateType: "u4",
    t.TimeType: "u4",
}

_FIELDS: dict[SlotKind, Callable[[ArrowArray, t.DataType, Bools], _Pieces]] = {
    SlotKind.FIXED: _fixed,
    SlotKind.DECIMAL: _decimal,
    SlotKind.WIDE_DECIMAL: _wide_decimal,
    SlotKind.MILLIS: _millis,
    SlotKind.MILLIS_AND_NANOS: _millis_and_nanos,
}
