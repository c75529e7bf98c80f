"""Thrift's compact encoding and decoding, as far as Parquet footers need it.

A struct becomes ``{field id: (wire type, value)}`` in the order found, a list ``(wire type, [values])``;
what is decoded and encoded again without a change gives equal bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12


def decode_struct(data: bytes) -> Struct:
    """Decode the struct at the beginning of `data`. Raises `IndexError` or `ValueError` for anything else."""
    return decode_struct_at(data, 0)[0]


def encode_struct(value: Struct) -> bytes:
    """Encode a struct in the form that `decode_struct` returns."""
    out = bytearray()
    _write_struct(out, value)
    return bytes(out)


def decode_struct_at(data: bytes | memoryview, at: int) -> tuple[Struct, int]:
    """Decode the struct that begins there; return also where it ends. Raises as `decode_struct`."""
    fields: Struct = {}
    field_id = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        wire = head & 0x0F
        if head >> 4:
            field_id += head >> 4
        else:
            field_id, at = _read_int(data, at)
        # Wide tables have tens of thousands of these: numbers of one byte and bytes are read here, without a call.
        if I16 <= wire <= I64:
            number = data[at]
            number, at = (number, at + 1) if number <= 0x7F else _read_unsigned(data, at)
            fields[field_id] = (wire, (number >> 1) ^ -(number & 1))
        elif wire == BINARY:
            size = data[at]
            size, at = (size, at + 1) if size <= 0x7F else _read_unsigned(data, at)
            fields[field_id] = (wire, data[at : at + size])
            at += size
        elif wire <= FALSE:
            fields[field_id] = (wire, wire == TRUE)
        else:
            value, at = _read_value(data, at, wire)
            fields[field_id] = (wire, value)


def _read_value(data: bytes | memoryview, at: int, wire: int) -> tuple[Any, int]:
    if I16 <= wire <= I64:
        return _read_int(data, at)
    if wire == BINARY:
        size, at = _read_unsigned(data, at)
        return data[at : at + size], at + size
    if wire == STRUCT:
        return decode_struct_at(data, at)
    if wire in {LIST, SET}:
        head = data[at]
        size, at = (head >> 4, at + 1) if head < 0xF0 else _read_unsigned(data, at + 1)
        items = []
        for _ in range(size):
            item, at = (
                decode_struct_at(data, at) if head & 0x0F == STRUCT else _read_value(data, at, head & 0x0F)
            )
            items.append(item)
        return (head & 0x0F, items), at
    if wire in {TRUE, FALSE, BYTE}:  # the first two only as items of a list
        return data[at], at + 1
    if wire == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    raise ValueError(f"wire type {wire}")


def _read_int(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value, at = _read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1


def _write_struct(out: bytearray, fields: Struct) -> None:
    previous = 0
    for field_id, (found, value) in fields.items():
        wire = found if found > FALSE else (TRUE if value else FALSE)
        if 0 < field_id - previous <= 15:
            out.append((field_id - previous) << 4 | wire)
        else:
            out.append(wire)
            _write_int(out, field_id)
        previous = field_id
        if I16 <= wire <= I64:
            number = value << 1 if value >= 0 else (-value << 1) - 1
            if number <= 0x7F:
                out.append(number)
            else:
                _write_unsigned(out, number)
        elif wire > FALSE:
            _write_value(out, wire, value)
    out.append(0)


def _write_value(out: bytearray, wire: int, value: Any) -> None:
    if I16 <= wire <= I64:
        _write_int(out, value)
    elif wire == BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif wire == STRUCT:
        _write_struct(out, value)
    elif wire in {LIST, SET}:
        item_wire, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | item_wire)
        else:
            out.append(0xF0 | item_wire)
            _write_unsigned(out, len(items))
        for item in items:
            _write_value(out, item_wire, item)
    elif wire == DOUBLE:
        out += struct.pack("<d", value)
    else:
        out.append(value)


def _write_int(out: bytearray, value: int) -> None:
    _write_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_unsigned(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
