"""Checksums of the pages of a Parquet file, checked without decoding a value.

Arrow checks them when it decodes; this is for decoders that do not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from anabranch.arrow.parquet_footer import ColumnPlace
from anabranch.arrow.thrift import Struct, decode_struct_at

# Field ids of parquet.thrift
_TYPE, _UNPACKED_SIZE, _PACKED_SIZE, _CRC = 1, 2, 3, 4  # PageHeader
_VALUES: Final = 1  # number of values, in the headers of both kinds of data pages
_DATA_HEADERS: Final = {0: 5, 3: 8}
"""Field of a page header that describes its data, by the type of the page."""


def pages_are_intact(data: bytes, places: Iterable[ColumnPlace], rows: int) -> bool:
    """Whether each page of columns has a checksum, and is what it says; False also for what is no page.

    Headers of pages have no checksum. So they must also add up to what the footer, which has one, says of the column.

    Args:
        data: the whole file.
        places: where the pages of the columns of one row group are.
        rows: number of values of each column, nulls included.
    """
    view = memoryview(data)
    try:
        return all(_column_is_intact(data, view, place, rows) for place in places)
    except (LookupError, TypeError, ValueError, RecursionError, struct.error):
        return False


def _column_is_intact(data: bytes, view: memoryview, place: ColumnPlace, rows: int) -> bool:
    at, end = place.start, place.start + place.size
    unpacked = values = 0
    while at < end:
        header, start = decode_struct_at(data, at)
        packed = _number(header, _PACKED_SIZE)
        checksum = _number(header, _CRC) & 0xFFFF_FFFF
        if packed < 0 or crc32(view[start : start + packed]) != checksum:
            return False
        unpacked += start - at + _number(header, _UNPACKED_SIZE)
        described = _DATA_HEADERS.get(_number(header, _TYPE))
        if described is not None:
            values += _number(header[described][1], _VALUES)
        at = start + packed
    return (at, unpacked, values) == (end, place.unpacked, rows)


def _number(fields: Struct, field_id: int) -> int:
    return int(fields[field_id][1])
