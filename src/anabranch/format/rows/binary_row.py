"""BinaryRow: the encoding of partition, key and statistics rows, one row at a time.

A row of `n` fields is, in little-endian order: null bits (after one byte of row kind) padded to 8 bytes, `n`
slots of 8 bytes, and a variable part for what does not fit a slot. Manifests put the number of fields in front,
as 4 bytes in big-endian order. `binary_row_columns` does the same for whole columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation, Overflow
from enum import Enum, auto
from typing import Any

from anabranch.errors import CorruptTableError, SchemaError
from anabranch.format.types import data_types as t

ARITY_SIZE = 4
"""Bytes in front of a row in a manifest."""

WIDE_DECIMAL_SIZE = 16
"""Bytes of the variable part that a DECIMAL of more than 18 digits takes, whatever its value."""

INLINE_LIMIT = 7
"""The longest text or bytes, in bytes, that lie in the slot itself."""

NANOS_PER_MILLI = 1_000_000
MILLIS_PER_DAY = 86_400_000


def encode_row(types: Sequence[t.DataType], values: Sequence[Any], *, reserve_nulls: bool = False) -> bytes:
    """A row of physical values, without the number of fields in front.

    Args:
        values: as many physical values; a field of a complex type must be None.
        reserve_nulls: give nulls of wide decimals and timestamps their place in the variable part. Partition
            rows and bucket keys are encoded so, statistics are not.

    Raises:
        SchemaError: a value does not fit its type.
    """
    if len(types) != len(values):
        raise SchemaError(f"a row of {len(types)} fields cannot hold {len(values)} values")
    row = bytearray(fixed_size(len(types)))
    slot_at = null_size(len(types))
    for position, (data_type, value) in enumerate(zip(types, values, strict=True)):
        if value is None:
            bit = position + 8
            row[bit // 8] |= 1 << bit % 8
            reserved = reserved_size(data_type) if reserve_nulls else 0
            slot, tail = (_LENGTH_AND_OFFSET.pack(0, len(row)) if reserved else bytes(8)), bytes(reserved)
        else:
            slot, tail = _encode(data_type, value, len(row))
        row[slot_at : slot_at + 8] = slot
        row += tail
        slot_at += 8
    return bytes(row)


def with_arity(count: int, row: bytes) -> bytes:
    """The row as manifests store it, with its number of fields in front."""
    return _ARITY.pack(count) + row


def arity(data: bytes, *, where: str = "row") -> int:
    """Number of fields of a row as manifests store it. Raises `CorruptTableError`."""
    if len(data) < ARITY_SIZE:
        raise CorruptTableError(f"expected a row, found {len(data)} bytes", path=where)
    count: int = _ARITY.unpack_from(data)[0]
    return count


def decode_row(types: Sequence[t.DataType], data: bytes, *, where: str = "row") -> tuple[Any, ...]:
    """The physical values of a row as manifests store it.

    Fields of complex types are None: nothing that reads rows knows more of them.

    Raises:
        CorruptTableError: the bytes are not a row of these types; `where` names the file they are from.
    """
    found = arity(data, where=where)
    if found != len(types):
        raise CorruptTableError(f"expected a row of {len(types)} fields, found {found}", path=where)
    row = memoryview(data)[ARITY_SIZE:]
    if len(row) < fixed_size(len(types)):
        raise CorruptTableError(
            f"a row of {len(types)} fields needs {fixed_size(len(types))} bytes, found {len(row)}", path=where
        )
    slots_at = null_size(len(types))
    values: list[Any] = []
    for position, data_type in enumerate(types):
        bit = position + 8
        if row[bit // 8] >> bit % 8 & 1:
            values.append(None)
            continue
        try:
            values.append(_decode(data_type, row, slots_at + 8 * position, fixed_size(len(types))))
        except _BadSlotError as error:
            raise CorruptTableError(
                f"field {position} of a row, of type {data_type}, {error}", path=where
            ) from None
    return tuple(values)


# The shape of a row, for all who read or write its bytes


class SlotKind(Enum):
    """Layout of a type's values in a row."""

    FIXED = auto()
    """The slot holds the value in its first bytes."""
    BYTES = auto()
    """Text and bytes: up to 7 bytes in the slot, more in the variable part."""
    DECIMAL = auto()
    """The slot holds the unscaled value."""
    WIDE_DECIMAL = auto()
    """The variable part holds the unscaled value in big-endian order."""
    MILLIS = auto()
    """The slot holds milliseconds since the epoch."""
    MILLIS_AND_NANOS = auto()
    """The variable part holds the milliseconds, the slot the nanoseconds beyond them."""
    NONE = auto()
    """Complex types: always null."""


def slot_kind(data_type: t.DataType) -> SlotKind:
    """Return the layout of a type's values in a row."""
    match data_type:
        case t.DecimalType(precision=precision):
            return SlotKind.DECIMAL if precision <= 18 else SlotKind.WIDE_DECIMAL
        case t.TimestampType(precision=precision) | t.LocalZonedTimestampType(precision=precision):
            return SlotKind.MILLIS if precision <= 3 else SlotKind.MILLIS_AND_NANOS
        case t.CharType() | t.VarCharType() | t.BinaryType() | t.VarBinaryType():
            return SlotKind.BYTES
        case t.ArrayType() | t.MultisetType() | t.MapType() | t.RowType():
            return SlotKind.NONE
        case _:
            return SlotKind.FIXED


def null_size(count: int) -> int:
    """Bytes of the null part of a row of `count` fields."""
    return (count + 8 + 63) // 64 * 8


def fixed_size(count: int) -> int:
    """Bytes of null part and slots; the variable part begins here."""
    return null_size(count) + 8 * count


def reserved_size(data_type: t.DataType) -> int:
    """Bytes of the variable part that every value of the type takes, and in reserving rows every null."""
    return _RESERVED.get(slot_kind(data_type), 0)


def is_text(data_type: t.DataType) -> bool:
    """Whether values are text, encoded as UTF-8."""
    return isinstance(data_type, t.CharType | t.VarCharType)


_RESERVED = {SlotKind.WIDE_DECIMAL: WIDE_DECIMAL_SIZE, SlotKind.MILLIS_AND_NANOS: 8}

_ARITY = struct.Struct(">I")
_LONG = struct.Struct("<q")
_LENGTH_AND_OFFSET = struct.Struct("<II")
_FIXED = {
    t.BooleanType: struct.Struct("<?7x"),
    t.TinyIntType: struct.Struct("<b7x"),
    t.SmallIntType: struct.Struct("<h6x"),
    t.IntType: struct.Struct("<i4x"),
    t.BigIntType: _LONG,
    t.FloatType: struct.Struct("<f4x"),
    t.DoubleType: struct.Struct("<d"),
    t.DateType: struct.Struct("<i4x"),
    t.TimeType: struct.Struct("<i4x"),
}

_EXACT = Context(prec=38, traps=[InvalidOperation, DivisionByZero, Overflow, Inexact])
"""Decimal arithmetic that fails rather than rounds."""


# Writing one value: the slot, and what goes to the variable part at `offset`


def _encode(data_type: t.DataType, value: Any, offset: int) -> tuple[bytes, bytes]:
    try:
        return _ENCODERS[slot_kind(data_type)](data_type, value, offset)
    except (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SchemaError(f"the value {value!r:.200} does not fit the type {data_type}") from error


def _encode_fixed(data_type: t.DataType, value: Any, _offset: int) -> tuple[bytes, bytes]:
    if isinstance(data_type, t.TimeType) and not 0 <= value < MILLIS_PER_DAY:
        raise OverflowError
    return _FIXED[type(data_type)].pack(value), b""


def _encode_bytes(data_type: t.DataType, value: Any, offset: int) -> tuple[bytes, bytes]:
    data: bytes = value.encode() if is_text(data_type) else bytes(memoryview(value))
    if len(data) <= INLINE_LIMIT:
        return data.ljust(INLINE_LIMIT, b"\0") + bytes([0x80 + len(data)]), b""
    return _LENGTH_AND_OFFSET.pack(len(data), offset), data.ljust((len(data) + 7) // 8 * 8, b"\0")


def _encode_decimal(data_type: t.DataType, value: Any, _offset: int) -> tuple[bytes, bytes]:
    return _LONG.pack(_unscaled(data_type, value)), b""


def _encode_wide_decimal(data_type: t.DataType, value: Any, offset: int) -> tuple[bytes, bytes]:
    unscaled = _unscaled(data_type, value)
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    data = unscaled.to_bytes(length, "big", signed=True)
    return _LENGTH_AND_OFFSET.pack(length, offset), data.ljust(WIDE_DECIMAL_SIZE, b"\0")


def _unscaled(data_type: t.DataType, value: Decimal) -> int:
    assert isinstance(data_type, t.DecimalType)
    exact = _EXACT.quantize(value, Decimal((0, (1,), -data_type.scale)))
    unscaled = int(_EXACT.scaleb(exact, data_type.scale))
    if abs(unscaled) >= 10**data_type.precision:
        raise DecimalException
    return unscaled


def _encode_millis(_type: t.DataType, value: Any, _offset: int) -> tuple[bytes, bytes]:
    return _LONG.pack(value // NANOS_PER_MILLI), b""


def _encode_millis_and_nanos(_type: t.DataType, value: Any, offset: int) -> tuple[bytes, bytes]:
    millis, nanos = divmod(value, NANOS_PER_MILLI)
    return _LENGTH_AND_OFFSET.pack(nanos, offset), _LONG.pack(millis)


_ENCODERS: dict[SlotKind, Callable[[t.DataType, Any, int], tuple[bytes, bytes]]] = {
    SlotKind.FIXED: _encode_fixed,
    SlotKind.BYTES: _encode_bytes,
    SlotKind.DECIMAL: _encode_decimal,
    SlotKind.WIDE_DECIMAL: _encode_wide_decimal,
    SlotKind.MILLIS: _encode_millis,
    SlotKind.MILLIS_AND_NANOS: _encode_millis_and_nanos,
}


# Reading one value from its slot


class _BadSlotError(Exception):
    """A problem with a slot, worded as the end of a sentence about it."""


def _decode(data_type: t.DataType, row: memoryview, slot: int, variable_from: int) -> Any:
    kind = slot_kind(data_type)
    match kind:
        case SlotKind.NONE:
            return None
        case SlotKind.FIXED:
            value = _FIXED[type(data_type)].unpack_from(row, slot)[0]
            if isinstance(data_type, t.TimeType) and not 0 <= value < MILLIS_PER_DAY:
                raise _BadSlotError(f"claims the millisecond {value} of a day")
            return value
        case SlotKind.MILLIS:
            return _LONG.unpack_from(row, slot)[0] * NANOS_PER_MILLI
        case SlotKind.DECIMAL:
            return _scaled(data_type, _LONG.unpack_from(row, slot)[0])
        case SlotKind.BYTES if row[slot + 7] & 0x80:
            length = row[slot + 7] & 0x7F
            if length > INLINE_LIMIT:
                raise _BadSlotError(f"claims {length} bytes in its slot")
            return _text_or_bytes(data_type, row[slot : slot + length])
    low, offset = _LENGTH_AND_OFFSET.unpack_from(row, slot)
    size = low if kind is SlotKind.BYTES else _RESERVED[kind]
    if offset < variable_from or offset + size > len(row):
        raise _BadSlotError(f"claims bytes {offset} to {offset + size} of a row of {len(row)} bytes")
    item = row[offset : offset + size]
    if kind is SlotKind.BYTES:
        return _text_or_bytes(data_type, item)
    if kind is SlotKind.WIDE_DECIMAL:
        if not 1 <= low <= WIDE_DECIMAL_SIZE:
            raise _BadSlotError(f"claims a number of {low} bytes")
        return _scaled(data_type, int.from_bytes(item[:low], "big", signed=True))
    if low >= NANOS_PER_MILLI:
        raise _BadSlotError(f"claims {low} nanoseconds beyond a millisecond")
    return _LONG.unpack(item)[0] * NANOS_PER_MILLI + low


def _text_or_bytes(data_type: t.DataType, item: memoryview) -> str | bytes:
    if not is_text(data_type):
        return bytes(item)
    try:
        return str(item, "utf-8")
    except UnicodeDecodeError:
        raise _BadSlotError("is not UTF-8") from None


def _scaled(data_type: t.DataType, unscaled: int) -> Decimal:
    assert isinstance(data_type, t.DecimalType)
    if abs(unscaled) >= 10**data_type.precision:
        raise _BadSlotError("has more digits than that")
    return _EXACT.scaleb(Decimal(unscaled), -data_type.scale)
