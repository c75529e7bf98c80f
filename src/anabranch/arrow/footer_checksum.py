"""Checksum over the footer of a Parquet file.

Parquet has checksums of pages, none of the footer, where names, places and statistics are. Our files have one as a
key-value of the footer: CRC-32 over the whole footer with the checksum's own eight digits as zeros. Other readers
see a key that they do not know; files of other writers have none and are not checked.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from anabranch.arrow.thrift import BINARY, LIST, STRUCT, Struct, decode_struct, encode_struct

KEY: Final = b"anabranch.footer-crc32"

_KEY_VALUES: Final = 5  # FileMetaData
_NAME, _VALUE = 1, 2  # KeyValue
_BLANK: Final = b"0" * 8
UNSEALED: Final = {KEY: _BLANK}
"""Key-values of a footer whose checksum is filled in later."""
_MARK: Final = KEY + bytes([(_VALUE - _NAME) << 4 | BINARY, len(_BLANK)])
"""Encoded key, up to where the digits of the value begin."""


def sealed(footer: Struct) -> bytes:
    """Encode a footer together with a checksum of itself."""
    entry = {_NAME: (BINARY, KEY), _VALUE: (BINARY, _BLANK)}
    _, others = footer.get(_KEY_VALUES, (LIST, (STRUCT, [])))
    values = [*(other for other in others[1] if other.get(_NAME) != entry[_NAME]), entry]
    return _filled_in(encode_struct(dict(sorted((footer | {_KEY_VALUES: (LIST, (STRUCT, values))}).items()))))


def sealed_as_it_is(footer: bytes) -> bytes | None:
    """Fill in the checksum of an encoded footer that was written with `UNSEALED`; None for any other.

    It is what `sealed` makes of it, without decoding and encoding what wide tables have thousands of.
    """
    return _filled_in(footer) if _MARK + _BLANK in footer else None


def _filled_in(encoded: bytes) -> bytes:
    at = encoded.rindex(_MARK) + len(_MARK)  # the last: statistics before it may hold the same bytes
    return encoded[:at] + b"%08x" % crc32(encoded) + encoded[at + len(_BLANK) :]


def is_intact(footer: bytes) -> bool:
    """Whether a footer is unchanged, or has no checksum. Raises as `decode_struct`."""
    at = footer.rfind(_MARK) + len(_MARK)
    if at < len(_MARK):
        return True
    end = at + len(_BLANK)
    found = crc32(footer[end:], crc32(_BLANK, crc32(footer[:at])))
    if footer[at:end] == b"%08x" % found:
        return True
    # Only a key counts: statistics of another writer's file may hold the same bytes as a value.
    _, (_, values) = decode_struct(footer).get(_KEY_VALUES, (LIST, (STRUCT, [])))
    return all(value.get(_NAME) != (BINARY, KEY) for value in values)
