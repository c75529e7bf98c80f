"""Avro object container files: framing and codecs.

A container is a header (magic, a map of metadata, a 16-byte sync marker) followed by blocks (row count, byte
length, compressed rows, the sync marker). Nothing in a file is believed: a length is compared with the bytes
that are there before anything is allocated for it, and what a file may expand to is bounded by an `Allowance`:
by its size, by the rows that others say it has, and absolutely.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import zstandard

from anabranch.errors import CorruptTableError, UnsupportedFeatureError

MAX_EXPANSION = 1_000
"""How many times its own size a small container may hold; the densest real manifests stay below 500."""

MIN_EXPANDED = 16 << 20
"""Bytes that even the smallest container may hold."""

MAX_EXPANDED = 256 << 20
"""Bytes from which on a container may hold no more than `LARGE_EXPANSION` times its size."""

LARGE_EXPANSION = 30
"""Real manifests of many entries hold 5 to 25 times their size: file names and sizes repeat but in part."""

MAX_BLOCK = 64 << 20
"""Bytes that one block may hold; writers end theirs after less than 1 MB."""

MAX_ROW = 256 << 10
"""Bytes that a row may take on average where the number of rows is known beforehand."""

_MOST_ROWS_PER_BYTE = 2
"""Rows that differ in a counter alone take a little more than a byte each when they are compressed together."""
_LEAST_ROWS = 1_000

ZSTD_LEVEL = 1

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_MAX_SCHEMA_SIZE = 1 << 20
_ZSTD_MAX_RATIO = 128 << 10  # a block of one repeated byte takes about as little as 1 byte for 128 KiB
_SNAPPY_MAX_RATIO = 22  # a copy of 64 bytes takes 3


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a container, decompressed: how many, and their encoding one after the other."""

    rows: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a container.

    Attributes:
        schema: the writer schema, JSON text exactly as found.
        codec: Avro's name of the compression of its blocks.
        sync: the 16 bytes that end the header and every block.
        size: bytes the header takes.
    """

    schema: bytes
    codec: str
    sync: bytes
    size: int


class Allowance:
    """Remaining size to which a container may expand.

    Args:
        size: of the container.
        rows: how many rows it holds, if something else says so.
    """

    def __init__(self, size: int, rows: int | None = None) -> None:
        most = min(MAX_EXPANSION * size, max(MAX_EXPANDED, LARGE_EXPANSION * size))
        if rows is not None:
            most = min(most, MAX_ROW * rows)
        self.bytes = max(MIN_EXPANDED, most)
        self.rows = None if rows is None else min(rows, max(_LEAST_ROWS, size * _MOST_ROWS_PER_BYTE))

    def spend(self, block: Block) -> None:
        """Take a block from what is left. Raises `ValueError` if it has more rows than are."""
        self.bytes -= len(block.payload)
        if self.rows is not None:
            self.rows -= block.rows
            if self.rows < 0:
                raise ValueError("it holds more rows than it should have")


def read_header(data: bytes, *, path: str) -> Header:
    """The header of a container.

    Raises:
        CorruptTableError: the bytes do not start with a header, or it is cut short.
        UnsupportedFeatureError: the blocks are compressed with a codec this version cannot undo.
    """
    if not data.startswith(_MAGIC):
        raise CorruptTableError(
            f"expected an Avro container file, found {bytes(data[:4])!r} at its start", path=path
        )
    try:
        metadata, end = _read_metadata(data)
    except (IndexError, ValueError) as error:
        raise CorruptTableError(
            "the header of the Avro container is cut short or garbled", path=path
        ) from error
    schema = metadata.get(b"avro.schema")
    if schema is None or len(schema) > _MAX_SCHEMA_SIZE:
        raise CorruptTableError("the Avro container has no usable avro.schema in its header", path=path)
    codec = metadata.get(b"avro.codec", b"null").decode("utf-8", "replace")
    if codec not in _CODECS:
        raise UnsupportedFeatureError(
            f"its blocks are compressed with {codec!r}; one of {', '.join(_CODECS)} can be read",
            feature="manifest-compression",
            path=path,
        )
    return Header(schema, codec, data[end : end + _SYNC_SIZE], end + _SYNC_SIZE)


def read_blocks(data: bytes, header: Header, *, path: str, rows: int | None = None) -> Iterator[Block]:
    """The blocks of a container, in order, those without rows left out.

    Args:
        data: the container.
        header: of it.
        path: of it, for messages.
        rows: how many rows it holds, if something else says so; more are refused.

    Raises `CorruptTableError`.
    """
    decompress = _CODECS[header.codec][1]
    allowance = Allowance(len(data), rows)
    sync, at, end = header.sync, header.size, len(data)
    while at < end:
        try:
            count, at = read_long(data, at)
            size, at = read_long(data, at)
            stop = at + size
            if count < 0 or size < 0 or data[stop : stop + _SYNC_SIZE] != sync:
                raise ValueError(
                    f"a block claims {count} rows in {size} bytes and does not end in the sync marker"
                )
            block = Block(count, decompress(data[at:stop], min(allowance.bytes, MAX_BLOCK)))
            allowance.spend(block)
        except Exception as error:  # each codec has errors of its own
            raise CorruptTableError(f"damaged Avro block before byte {at}: {error}", path=path) from error
        at = stop + _SYNC_SIZE
        if count:
            yield block
        elif block.payload:
            raise CorruptTableError(f"an Avro block of no rows holds {len(block.payload)} bytes", path=path)


def pack_block(block: Block, codec: str) -> bytes:
    """A block as it stands in a container, without the sync marker behind it."""
    packed = _CODECS[codec][0](block.payload)
    return b"".join([write_long(block.rows), write_long(len(packed)), packed])


def frame_container(schema: bytes, packed_blocks: Sequence[bytes], codec: str) -> bytes:
    """The container file of blocks that `pack_block` made with the same codec.

    The sync marker is a digest of all the rest, so equal content gives equal bytes.
    """
    head = container_head(schema, codec)
    digest = hashlib.blake2b(head, digest_size=_SYNC_SIZE)
    for packed in packed_blocks:
        digest.update(packed)
    sync = digest.digest()
    return b"".join([head, sync, *(piece for packed in packed_blocks for piece in (packed, sync))])


@functools.lru_cache(maxsize=32)
def container_head(schema: bytes, codec: str) -> bytes:
    """A container up to its first sync marker."""
    entries = ((b"avro.codec", codec.encode()), (b"avro.schema", schema))
    pairs = (write_long(len(key)) + key + write_long(len(value)) + value for key, value in entries)
    return b"".join([_MAGIC, write_long(len(entries)), *pairs, write_long(0)])


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag number at a position and the position after it.

    Raises IndexError at the end of the data, ValueError for more than 64 bits.
    """
    value, at = _read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def write_long(value: int) -> bytes:
    """A number as Avro writes int and long."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if shift > 63 or value >> 64:
            raise ValueError("a number of more than 64 bits")
        shift += 7
    return value, at + 1


def _read_metadata(data: bytes) -> tuple[dict[bytes, bytes], int]:
    metadata: dict[bytes, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = read_long(data, at)
        if count == 0:
            break
        if count < 0:  # followed by the bytes the entries take, for readers that skip
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            key, at = _read_bytes(data, at)
            metadata[key], at = _read_bytes(data, at)
    if at + _SYNC_SIZE > len(data):
        raise IndexError
    return metadata, at


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise IndexError
    return data[at : at + size], at + size


class _Zstd(threading.local):
    """One context per thread: making one costs more than unpacking a small block."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def _compress_zstd(payload: bytes) -> bytes:
    return _zstd.compressor.compress(payload)


def _decompress_zstd(packed: bytes, budget: int) -> bytes:
    claimed = zstandard.frame_content_size(packed)
    _check_budget(claimed, budget)
    if claimed >= 0:
        return _zstd.decompressor.decompress(packed, allow_extra_data=False)
    # Streaming writers, Java's among them, do not say how much a frame holds: it is fed in pieces of which none can
    # expand far beyond what is left of the budget.
    unpacking = _zstd.decompressor.decompressobj()
    pieces: list[bytes] = []
    at = total = 0
    while at < len(packed) and not unpacking.eof:
        step = max(64, (budget - total) // _ZSTD_MAX_RATIO)
        piece = unpacking.decompress(packed[at : at + step])
        at += step
        total += len(piece)
        if total > budget:
            raise ValueError(f"it expands to more than the {budget} bytes its file justifies")
        pieces.append(piece)
    if not unpacking.eof or unpacking.unused_data or at < len(packed):
        raise ValueError("the zstd frame does not end where the block does")
    return b"".join(pieces)


def _compress_deflate(payload: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(payload) + packer.flush()


def _decompress_deflate(packed: bytes, budget: int) -> bytes:
    unpacking = zlib.decompressobj(wbits=-15)
    payload = unpacking.decompress(packed, budget + 1)
    _check_budget(len(payload), budget)
    if not unpacking.eof:  # what follows the end is ignored: fastavro leaves a part of zlib's checksum there
        raise ValueError("the deflate stream does not end in the block")
    return payload


def _compress_snappy(payload: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(payload, asbytes=True)
    return packed + zlib.crc32(payload).to_bytes(4, "big")


def _decompress_snappy(packed: bytes, budget: int) -> bytes:
    body, checksum = packed[:-4], packed[-4:]
    claimed, _ = _read_unsigned(body, 0)
    _check_budget(claimed, min(budget, _SNAPPY_MAX_RATIO * len(body)))
    payload: bytes = pa.Codec("snappy").decompress(body, decompressed_size=claimed, asbytes=True)
    if zlib.crc32(payload).to_bytes(4, "big") != checksum:
        raise ValueError("the checksum of the block does not match")
    return payload


def _check_budget(size: int, budget: int) -> None:
    if size > budget:
        raise ValueError(f"it would expand to {size} bytes, more than the {budget} its file justifies")


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    "null": (lambda payload: payload, lambda packed, _budget: packed),
    "deflate": (_compress_deflate, _decompress_deflate),
    "snappy": (_compress_snappy, _decompress_snappy),
    "zstandard": (_compress_zstd, _decompress_zstd),
}
