"""Checksums of the pages of a Parquet file, checked without decoding a value.

Arrow checks them when it decodes; this is for decoders that do not.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from anabranch.arrow.thrift import Struct, decode_struct_at

# Field ids of parquet.thrift
_TYPE, _UNPACKED_SIZE, _PACKED_SIZE, _CRC = 1, 2, 3, 4  # PageHeader
_VALUES: Final = 1  # number of values, in the headers of both kinds of data pages
_DATA_HEADERS: Final = {0: 5, 3: 8}
"""Field of a page header that describes its data, by the type of the page."""


def pages_are_intact(column: memoryview, unpacked_size: int, rows: int) -> bool:
    """Whether each page of a column has a checksum, and is what it says; False also for what are no pages.

    Headers of pages have no checksum. So they must also add up to what the footer, which has one, says of the column.

    Args:
        column: the pages of one column of one row group.
        unpacked_size: bytes of them uncompressed, with the headers.
        rows: number of values, nulls included.
    """
    at = unpacked = values = 0
    try:
        while at < len(column):
            header, start = decode_struct_at(column, at)
            packed = _number(header, _PACKED_SIZE)
            if packed < 0 or crc32(column[start : start + packed]) != _number(header, _CRC) & 0xFFFF_FFFF:
                return False
            unpacked += start - at + _number(header, _UNPACKED_SIZE)
            described = _DATA_HEADERS.get(_number(header, _TYPE))
            if described is not None:
                values += _number(header[described][1], _VALUES)
            at = start + packed
    except (LookupError, TypeError, ValueError, RecursionError, struct.error):
        return False
    return (at, unpacked, values) == (len(column), unpacked_size, rows)


def _number(fields: Struct, field_id: int) -> int:
    return int(fields[field_id][1])
