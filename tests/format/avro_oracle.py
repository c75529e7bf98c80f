"""Avro files read and written with fastavro alone, to compare with."""

from __future__ import annotations

import io
import json
import struct
import zlib

import fastavro
import pyarrow as pa
import zstandard

HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
SYNC = b"a marker of tests"[:16]


def read(data: bytes, reader_schema=None):
    """The writer schema of a container and its records."""
    source = io.BytesIO(data)
    header = fastavro.schemaless_reader(source, HEADER, None)
    schema = json.loads(header["meta"]["avro.schema"])
    codec = header["meta"].get("avro.codec", b"null").decode()
    parsed = fastavro.parse_schema(schema)
    records = []
    while source.tell() < len(data):
        rows = fastavro.schemaless_reader(source, "long", None)
        payload = io.BytesIO(decompress(codec, fastavro.schemaless_reader(source, "bytes", None)))
        records += [fastavro.schemaless_reader(payload, parsed, reader_schema) for _ in range(rows)]
        assert not payload.read()
        assert source.read(16) == header["sync"]
    return schema, records


def write(schema, records, *, codec="null", rows_per_block=1000, claim=0) -> bytes:
    """A container; each block claims `claim` more rows than it has."""
    parsed = fastavro.parse_schema(schema)
    blocks = []
    for start in range(0, len(records), rows_per_block):
        block = records[start : start + rows_per_block]
        out = io.BytesIO()
        for record in block:
            fastavro.schemaless_writer(out, parsed, record)
        blocks.append((len(block) + claim, compress(codec, out.getvalue())))
    return frame(schema, blocks, codec=codec)


def frame(schema, blocks, *, codec="null") -> bytes:
    """A container of (rows, compressed payload)."""
    out = io.BytesIO()
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = {"avro.schema": text, "avro.codec": codec.encode()}
    fastavro.schemaless_writer(out, HEADER, {"magic": b"Obj\x01", "meta": meta, "sync": SYNC})
    for rows, packed in blocks:
        fastavro.schemaless_writer(out, "long", rows)
        fastavro.schemaless_writer(out, "bytes", packed)
        out.write(SYNC)
    return out.getvalue()


def compress(codec: str, payload: bytes) -> bytes:
    match codec:
        case "null":
            return payload
        case "deflate":
            return zlib.compress(payload)[2:-4]
        case "snappy":
            return pa.compress(payload, codec="snappy", asbytes=True) + struct.pack(">I", zlib.crc32(payload))
        case "zstandard":
            return zstandard.ZstdCompressor().compress(payload)
        case "zstandard-streaming":
            packer = zstandard.ZstdCompressor().compressobj()
            return packer.compress(payload) + packer.flush()
    raise AssertionError(codec)


def decompress(codec: str, packed: bytes) -> bytes:
    match codec:
        case "null":
            return packed
        case "deflate":
            return zlib.decompress(packed, wbits=-15)
        case "snappy":
            claimed = fastavro.schemaless_reader(io.BytesIO(packed), "long", None)
            size = (claimed << 1) ^ (claimed >> 63)  # snappy's number is not zigzag
            return pa.decompress(packed[:-4], size, codec="snappy", asbytes=True)
        case "zstandard":
            return zstandard.ZstdDecompressor().stream_reader(packed).read()
    raise AssertionError(codec)
