"""Concatenation of Parquet files by their footers.

Row groups are encoded apart from each other, on all cores, each as a small file in memory. One file of all
of them is their column chunks one after the other and one footer in which every chunk has its new place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

from anabranch.arrow.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, decode_struct, encode_struct

MAGIC: Final = b"PAR1"

# Field ids of parquet.thrift
_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 2, 3, 4, 5  # FileMetaData
_TYPE, _TYPE_LENGTH, _CONVERTED_TYPE, _LOGICAL_TYPE = 1, 2, 6, 10  # SchemaElement
_COLUMNS, _ROW_GROUP_OFFSET, _ORDINAL = 1, 5, 7  # RowGroup
_FILE_OFFSET, _META_DATA = 2, 3  # ColumnChunk
_UNPACKED_SIZE, _PACKED_SIZE = 6, 7  # ColumnMetaData
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 9, 10, 11  # ColumnMetaData
_PAGE_OFFSETS: Final = (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE)
_INT96, _FIXED = 3, 7  # Type
_INT96_SIZE = 12


class JoinedFile:
    """Footer of a file that grows by whole small files."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the joined file so far, without its footer."""
        self._first: bytes | None = None
        """The footer of the first small file."""
        self._footer: Struct | None = None
        """The same decoded, with what the others have; None as long as there are none."""

    def add(self, part: memoryview) -> memoryview:
        """Add a small file; return the part of it to write next."""
        end = len(part) - 8
        start = end - int.from_bytes(part[end : end + 4], "little")
        footer = bytes(part[start:end])
        piece = part[0 if self._first is None else len(MAGIC) : start]
        if self._first is None:
            self._first = footer
        else:
            self._append(decode_struct(footer), shift=self.size - len(MAGIC))
        self.size += len(piece)
        return piece

    def tail(self) -> bytes:
        """Return the end of the file. Fixed-length columns without a logical type become INT96."""
        assert self._first is not None, "a file without row groups"
        whole = sealed_as_it_is(self._first) if self._footer is None else None
        if whole is not None:
            return with_length(whole)
        footer = self._decoded()
        _retype(footer, _is_plain_fixed, _to_int96)
        return with_length(sealed(footer))

    def _decoded(self) -> Struct:
        if self._footer is None:
            assert self._first is not None, "a file without row groups"
            self._footer = decode_struct(self._first)
        return self._footer

    def _append(self, other: Struct, *, shift: int) -> None:
        whole = self._decoded()
        groups = _items(whole, _ROW_GROUPS)
        for group in _items(other, _ROW_GROUPS):
            group.pop(_ORDINAL, None)  # it is the position in the list, and optional
            _shift(group, _ROW_GROUP_OFFSET, shift)
            for chunk in _items(group, _COLUMNS):
                if chunk[_FILE_OFFSET][1]:
                    _shift(chunk, _FILE_OFFSET, shift)
                for field in _PAGE_OFFSETS:
                    _shift(chunk[_META_DATA][1], field, shift)
            groups.append(group)
        whole[_NUM_ROWS] = (I64, whole[_NUM_ROWS][1] + other[_NUM_ROWS][1])


class ColumnPlace(NamedTuple):
    """Location of the pages of one column of one row group."""

    start: int
    size: int
    """Size in the file, in bytes."""
    unpacked: int
    """Uncompressed size in bytes."""


def column_places(footer: bytes) -> list[list[ColumnPlace]]:
    """Return the locations of all columns, by row group. Raises as `decode_struct`, and `KeyError`, if damaged.

    PyArrow tells the same, but aborts the whole process for some footers that are damaged.
    """
    return [
        [_place(chunk[_META_DATA][1]) for chunk in _items(group, _COLUMNS)]
        for group in _items(decode_struct(footer), _ROW_GROUPS)
    ]


def _place(column: Struct) -> ColumnPlace:
    start = int(column[_DATA_PAGE][1])
    dictionary = column.get(_DICTIONARY_PAGE, (I64, 0))[1]
    return ColumnPlace(
        min(start, dictionary) if dictionary > 0 else start,
        int(column[_PACKED_SIZE][1]),
        int(column[_UNPACKED_SIZE][1]),
    )


def with_int96_as_bytes(footer: bytes) -> bytes:
    """Return a footer with INT96 columns declared as fixed-length bytes."""
    fields = decode_struct(footer)
    # Removed, as readers would trust the Arrow types noted there.
    fields.pop(_KEY_VALUES, None)
    _retype(fields, lambda leaf: leaf[_TYPE][1] == _INT96, _to_fixed)
    return encode_struct(fields)


def with_length(footer: bytes) -> bytes:
    """Return an encoded footer with the length and magic number that follow it."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _is_plain_fixed(leaf: Struct) -> bool:
    return leaf[_TYPE][1] == _FIXED and _CONVERTED_TYPE not in leaf and _LOGICAL_TYPE not in leaf


def _to_int96(leaf: Struct) -> Struct:
    return {field: value for field, value in leaf.items() if field != _TYPE_LENGTH} | {_TYPE: (I32, _INT96)}


def _to_fixed(leaf: Struct) -> Struct:
    rest = {field: value for field, value in leaf.items() if field != _TYPE}
    return {_TYPE: (I32, _FIXED), _TYPE_LENGTH: (I32, _INT96_SIZE)} | rest


def _retype(footer: Struct, which: Callable[[Struct], bool], change: Callable[[Struct], Struct]) -> None:
    """Change the schema elements of columns that `which` selects, and their column chunks."""
    schema = _items(footer, _SCHEMA)
    leaves = [position for position, element in enumerate(schema) if _TYPE in element]
    for column, position in enumerate(leaves):
        if which(schema[position]):
            schema[position] = change(schema[position])
            for group in _items(footer, _ROW_GROUPS):
                _items(group, _COLUMNS)[column][_META_DATA][1][_TYPE] = schema[position][_TYPE]


def _items(fields: Struct, field_id: int) -> list[Struct]:
    """Return the structs of a list field; changing them changes the footer."""
    _, (wire, items) = fields[field_id]
    if wire != STRUCT:
        raise ValueError(f"field {field_id} is a list of wire type {wire}")
    structs: list[Struct] = items
    return structs


def _shift(fields: Struct, field_id: int, shift: int) -> None:
    if field_id in fields:
        wire, offset = fields[field_id]
        fields[field_id] = (wire, offset + shift)


# Checksum over the footer of a Parquet file.
#
# Parquet has checksums of pages, none of the footer, where names, places and statistics are. Our files have one as a
# key-value of the footer: CRC-32 over the whole footer with the checksum's own eight digits as zeros. Other readers
# see a key that they do not know; files of other writers have none and are not checked.

KEY: Final = b"anabranch.footer-crc32"

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
