"""BinaryRow by column: what `binary_row` reads from one row, read from a million by NumPy.

Nothing here trusts the bytes of a row: every offset is checked against the row's own bounds before anything
is read through it. Rows are written by column in `encoded_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import CorruptTableError
from anabranch.format.rows.binary_row import (
    ARITY_SIZE,
    INLINE_LIMIT,
    MILLIS_PER_DAY,
    NANOS_PER_MILLI,
    WIDE_DECIMAL_SIZE,
    SlotKind,
    fixed_size,
    is_text,
    null_size,
    slot_kind,
)
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import (
    ArrowArray,
    ArrowColumn,
    Bools,
    Longs,
    Octets,
    array_of,
    buffer_of,
    gather,
    validity,
    variable_width,
)


def decode_column(
    rows: ArrowColumn,
    position: int,
    data_type: t.DataType,
    arity: int,
    *,
    strict: bool = False,
    where: str = "row",
) -> ArrowArray:
    """One field of many rows, as an Arrow array of the type that `to_arrow_type` gives.

    Null where the row or the field is null, and for complex types. A row of another arity, a damaged one,
    and a value that the Arrow type cannot hold (TIMESTAMP of more than 6 digits outside the years 1677 to 2262) is
    null too: right for statistics, where null means unknown. Partitions are read with `strict`.

    Args:
        rows: binary rows as manifests store them, with their number of fields in front.
        position: the field, from 0.
        arity: the number of fields that rows must have.
        strict: raise instead of giving null for what is not as it must be.
        where: the file that the rows are from, for the message.

    Raises:
        CorruptTableError: with `strict` only.
    """
    target: Any = to_arrow_type(data_type)
    opened = _open(rows, arity)
    if strict:
        _check(opened.usable | ~opened.given, f"is not a row of {arity} fields", where)
    read = _READERS.get(slot_kind(data_type))
    if read is None or not opened.usable.any():
        nothing: ArrowArray = pa.nulls(len(opened.usable), target)
        return nothing
    bit = position + 8
    flags = gather(opened.data, opened.starts + bit // 8, "u1")
    present = opened.usable & (flags >> bit % 8 & 1 == 0)
    column = _Column(
        rows=opened,
        slot_at=null_size(arity) + 8 * position,
        variable_from=fixed_size(arity),
        slots=gather(opened.data, opened.starts + (null_size(arity) + 8 * position), "<i8"),
        present=present,
    )
    values = read(column, data_type, target)
    if strict:
        _check(validity(values) | ~present, f"holds no {data_type}", where)
    return values


def _check(good: Bools, complaint: str, where: str) -> None:
    if not good.all():
        raise CorruptTableError(f"row {int(np.argmin(good))} {complaint}", path=where)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that may be read: those not `usable` point at some other one, so that no index is out of bounds."""

    data: Octets
    begins: Longs
    """Where each row's bytes begin, in `data`, usable or not; never falling."""
    starts: Longs
    """Where byte 0 of each row is, behind the number of fields."""
    sizes: Longs
    """Bytes of each row from there."""
    given: Bools
    usable: Bools


def _open(rows: ArrowColumn, arity: int) -> _Rows:
    data, offsets, given = variable_width(rows)
    begins, sizes = offsets[:-1], np.diff(offsets) - ARITY_SIZE
    usable = given & (sizes >= fixed_size(arity))
    if usable.any():
        safe = int(begins[np.argmax(usable)])
        usable &= gather(data, np.where(usable, begins, safe), ">u4") == arity
        starts = np.where(usable, begins, safe) + ARITY_SIZE
    else:
        starts = begins
    return _Rows(data, begins, starts, sizes, given, usable)


@dataclass(frozen=True, slots=True)
class _Column:
    """One field of all rows: slots, and which rows have a value there."""

    rows: _Rows
    slot_at: int
    variable_from: int
    slots: Longs
    present: Bools

    @property
    def low(self) -> Longs:
        """The first half of each slot, as an unsigned number."""
        return self.slots & 0xFFFF_FFFF

    @property
    def offsets(self) -> Longs:
        """The second half of each slot, as an unsigned number: where in the variable part a value lies."""
        return self.slots >> 32 & 0xFFFF_FFFF

    def holding(self, offsets: Longs, sizes: Longs | int) -> Bools:
        """Return which rows have that many bytes at these offsets in their variable part."""
        return self.present & (offsets >= self.variable_from) & (offsets + sizes <= self.rows.sizes)

    def items(self, good: Bools, offsets: Longs, dtype: str) -> npt.NDArray[Any]:
        """Numbers at these offsets of the `good` rows; of others something that means nothing."""
        return gather(self.rows.data, self.rows.starts + np.where(good, offsets, 0), dtype)


def _read_fixed(column: _Column, data_type: t.DataType, target: Any) -> ArrowArray:
    if isinstance(data_type, t.BooleanType):
        bits = np.packbits(column.slots & 0xFF != 0, bitorder="little")
        return array_of(target, bits, column.present)
    values = column.slots.astype(_WIDTHS[type(data_type)])
    good = column.present
    if isinstance(data_type, t.TimeType):
        good = good & (values >= 0) & (values < MILLIS_PER_DAY)
    return array_of(target, values, good)


def _read_millis(column: _Column, _type: t.DataType, target: Any) -> ArrowArray:
    return array_of(target, column.slots // 1000 if target.unit == "s" else column.slots, column.present)


def _read_millis_and_nanos(column: _Column, _type: t.DataType, target: Any) -> ArrowArray:
    per_milli = 1_000 if target.unit == "us" else NANOS_PER_MILLI
    nanos = column.low
    good = column.holding(column.offsets, 8) & (nanos < NANOS_PER_MILLI)
    millis = column.items(good, column.offsets, "<i8")
    rest = nanos // (NANOS_PER_MILLI // per_milli)
    (first, first_rest), (last, last_rest) = divmod(-(2**63), per_milli), divmod(2**63 - 1, per_milli)
    good &= (millis > first) | (millis == first) & (rest >= first_rest)
    good &= (millis < last) | (millis == last) & (rest <= last_rest)
    return array_of(target, millis * per_milli + rest, good)


def _read_decimal(column: _Column, _type: t.DataType, target: Any) -> ArrowArray:
    unscaled = column.slots
    bound = 10**target.precision
    good = column.present & (unscaled < bound) & (unscaled > -bound)
    return array_of(target, np.stack([unscaled, unscaled >> 63], axis=1), good)


def _read_wide_decimal(column: _Column, _type: t.DataType, target: Any) -> ArrowArray:
    sizes = column.low
    good = column.holding(column.offsets, WIDE_DECIMAL_SIZE) & (sizes >= 1) & (sizes <= WIDE_DECIMAL_SIZE)
    high = column.items(good, column.offsets, ">i8")
    low = column.items(good, column.offsets + 8, ">u8")
    high, low = _shift_right(high, low, np.where(good, WIDE_DECIMAL_SIZE - sizes, 0) * 8)
    bound = 10**target.precision
    good &= _is_less(high, low, bound) & ~_is_less(high, low, 1 - bound)
    return array_of(target, np.stack([low.view(np.int64), high], axis=1), good)


def _shift_right(high: Longs, low: npt.NDArray[Any], bits: Longs) -> tuple[Longs, npt.NDArray[Any]]:
    """Numbers of two halves, shifted by 0 to 127 bits, keeping their sign."""
    far = bits >= 64
    low = np.where(far, high.view(np.uint64), low)
    high = np.where(far, high >> 63, high)
    bits = bits & 63
    # A shift by 64 is undefined, so what moves from one half to the other does so in two steps.
    moved = high.view(np.uint64) << (63 - bits).astype(np.uint64) << np.uint64(1)
    return high >> bits, low >> bits.astype(np.uint64) | moved


def _is_less(high: Longs, low: npt.NDArray[Any], bound: int) -> Bools:
    bound_high, bound_low = bound >> 64, np.uint64(bound & 0xFFFF_FFFF_FFFF_FFFF)
    less: Bools = (high < bound_high) | (high == bound_high) & (low < bound_low)
    return less


def _read_bytes(column: _Column, data_type: t.DataType, target: Any) -> ArrowArray:
    tags = column.slots >> 56
    inline = tags < 0  # the highest bit of the slot says so
    offsets = np.where(inline, column.slot_at, column.offsets)
    sizes = np.where(inline, tags & 0x7F, column.low)
    good = np.where(inline, column.present & (sizes <= INLINE_LIMIT), column.holding(offsets, sizes))
    values = _cut(column.rows, good, offsets, sizes)
    return _as_text(values) if is_text(data_type) else values.cast(target)


def _cut(rows: _Rows, good: Bools, offsets: Longs, sizes: Longs) -> ArrowArray:
    """The bytes at these offsets of the good rows, null for others.

    Values and the gaps between them, in turn, are laid out as one Arrow array over the memory of the rows;
    taking every other element copies the values.
    """
    count = len(good)
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[0:-1:2] = np.where(good, rows.starts + offsets, rows.begins)
    bounds[1::2] = bounds[0:-1:2] + np.where(good, sizes, 0)
    bounds[-1] = bounds[-2]
    is_large = len(rows.data) > np.iinfo(np.int32).max
    parts = pa.Array.from_buffers(
        pa.large_binary() if is_large else pa.binary(),
        2 * count,
        [None, buffer_of(bounds if is_large else bounds.astype(np.int32)), buffer_of(rows.data)],
    )
    # Not by pa.array, which imports pandas where it is installed: that takes longer than planning a small table.
    every_other: Any = array_of(pa.int64(), np.arange(0, 2 * count, 2), good)
    return parts.take(every_other)


def _as_text(values: ArrowArray) -> ArrowArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


_WIDTHS: dict[type[t.DataType], str] = {
    t.TinyIntType: "<i1",
    t.SmallIntType: "<i2",
    t.IntType: "<i4",
    t.BigIntType: "<i8",
    t.FloatType: "<i4",
    t.DoubleType: "<i8",
    t.DateType: "<i4",
    t.TimeType: "<i4",
}

_READERS: dict[SlotKind, Callable[[_Column, t.DataType, Any], ArrowArray]] = {
    SlotKind.FIXED: _read_fixed,
    SlotKind.BYTES: _read_bytes,
    SlotKind.DECIMAL: _read_decimal,
    SlotKind.WIDE_DECIMAL: _read_wide_decimal,
    SlotKind.MILLIS: _read_millis,
    SlotKind.MILLIS_AND_NANOS: _read_millis_and_nanos,
}
