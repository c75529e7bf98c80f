"""TIMESTAMP(7) to TIMESTAMP(9) as Parquet's INT96, the only form that every Paimon reader and Spark decode.

PyArrow writes either all or none of a file's timestamps as INT96, and those before 1970 with a negative time
of day; it reads them with silent overflow outside of the years 1677 to 2262. So the 12 bytes (nanosecond of
the day, then Julian day, little-endian) are made and taken apart here. To PyArrow they are a fixed-length
column, whose pages are the same bytes; only the footer names the type (see `parquet_footer`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.format.types.buffers import array_of, fixed_width, validity
from anabranch.format.types.values import NANOS_PER_UNIT

INT96: Final = pa.binary(12)

_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_DAY: Final = _SECONDS_PER_DAY * 1_000_000_000
_JULIAN_EPOCH: Final = 2_440_588
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def to_int96(array: pa.Array) -> pa.Array:
    """Encode nanosecond timestamps as INT96 values."""
    nanos = fixed_width(array, "<i8")
    days = nanos // _NANOS_PER_DAY
    stored = np.empty(len(array), _LAYOUT)
    stored["nanos"] = nanos - days * _NANOS_PER_DAY
    stored["day"] = days + _JULIAN_EPOCH
    return array_of(INT96, stored, validity(array))


def from_int96(array: pa.Array, unit: str) -> pa.Array:
    """Decode INT96 values to timestamps without a zone, rounded down where digits are lost.

    The time of day may be negative, as some writers have it before 1970.

    Raises:
        OverflowError: a value is out of the range of 64 bits of that unit.
    """
    stored = fixed_width(array, f"V{INT96.byte_width}").view(_LAYOUT)
    present = validity(array)
    per_unit = NANOS_PER_UNIT[unit]
    per_second = NANOS_PER_UNIT["s"] // per_unit
    days = stored["day"].astype(np.int64) - _JULIAN_EPOCH
    seconds, nanos = np.divmod(stored["nanos"], NANOS_PER_UNIT["s"])
    seconds += days * _SECONDS_PER_DAY
    units = seconds * per_second + nanos // per_unit
    if (units // per_second != seconds)[present].any():
        raise OverflowError(f"a timestamp that 64 bits of {unit} cannot express")
    return array_of(pa.timestamp(unit), units, present)
