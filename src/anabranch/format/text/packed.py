"""Text packed by zstd, for files of ours that hold much: with a checksum, and never more than it may take to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import zstandard

from anabranch.errors import CorruptTableError
from anabranch.format.text.json_object import JsonObject, describe

_LEVEL: Final = 3
_MAX_BYTES: Final = 1 << 30


def pack(text: str) -> bytes:
    """Compress a text; the same bytes for the same text."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text.encode())


def unpack(data: bytes, *, path: str) -> bytes:
    """Return the UTF-8 bytes of `pack`. Raises `CorruptTableError` naming `path` if they cannot be had."""
    try:
        if zstandard.frame_content_size(data) > _MAX_BYTES:
            raise CorruptTableError("claims to hold more than any file of its kind does", path=path)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_BYTES)
    except zstandard.ZstdError as error:
        raise CorruptTableError("cannot be unpacked", path=path) from error


def pack_json(values: Mapping[str, Any]) -> bytes:
    """Compress a JSON object."""
    return pack(json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def unpack_json(data: bytes, *, path: str) -> JsonObject:
    """Return the object of `pack_json`; without the looks of `JsonObject.parse`, for what is only read.

    Raises `CorruptTableError` naming `path` if it cannot be had.
    """
    try:
        found = json.loads(unpack(data, path=path))
    except (ValueError, RecursionError) as error:
        raise CorruptTableError("is no readable JSON", path=path) from error
    if not isinstance(found, dict):
        raise CorruptTableError(f"holds {describe(found)}, expected a JSON object", path=path)
    return JsonObject(found, path)
