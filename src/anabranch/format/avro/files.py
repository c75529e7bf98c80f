"""Rows of Avro files as columns, and small Avro files from records.

Polars decodes Avro by column, but none of the block compressions of these files, and every call costs more
than a small file. So blocks are decompressed here, the rows of all files of one writer schema are put one
after the other into one uncompressed container, and Polars decodes that at once. What it cannot decode goes
through fastavro, file by file; fastavro decides whether a file is damaged.

A file whose blocks hold more or fewer rows than they claim would shift every row behind it. One known row is
appended to each container: it comes out last, and whole, only if everything before it was what it claimed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import fastavro
import numpy as np
import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.avro.container import (
    Block,
    frame_container,
    pack_block,
    read_blocks,
    read_header,
    write_long,
)
from anabranch.format.avro.schema import END_MARK, SchemaProblemError, WriterSchema, writer_schema

Columns: TypeAlias = "Mapping[str, tuple[str, pl.DataType]]"
"""Name of each column wanted, the path of the field it is read from, and its type."""

_BATCH_BYTES = 4 << 20
"""Decompressed rows given to Polars at once: large enough to forget the cost of a call, small for the cache."""

_CHUNK_BYTES = 512 << 10
"""Bytes of files that one thread takes at a time."""

_RECORDS = 10_000
"""Records that are decoded one by one before columns are made of them."""

_MAX_THREADS = 8

_SYNC = bytes(16)
_END_MARKS = (END_MARK, END_MARK.decode())


def read_frame(data: bytes, *, path: str) -> pl.DataFrame:
    """The rows of one Avro file, a column per field.

    A field of a nested record is named by the path to it (``_FILE._FILE_NAME``). Integers are Int64,
    logical types stay the number that is stored. Fields that have no column form (maps, enums, fixed,
    unions of several types) are left out.

    Raises:
        CorruptTableError: the file is damaged or is not an Avro file.
        UnsupportedFeatureError: its compression is not known.
    """
    schema = _parse_schema(read_header(data, path=path).schema, path)
    columns = {
        c.path: (c.path, c.dtype) for c in schema.columns if c.path is not None and c.dtype is not None
    }
    return read_columns([(path, data)], columns)[0]


def read_columns(
    files: Sequence[tuple[str, bytes]], columns: Columns, *, rows: Sequence[int] | None = None
) -> tuple[pl.DataFrame, list[int]]:
    """Some columns of many Avro files, decoded together.

    Args:
        files: path, for messages, and content of each file.
        columns: of each column wanted, the field it is read from, named as in `read_frame`, and its type.
            A field that a file's schema does not have is null in the rows of that file.
        rows: how many rows each file should have, if that is known: a file with more is refused, and what it may
            expand to is bounded by it.

    Returns:
        The rows of all files in the order of the files, and how many each file has.

    Raises:
        CorruptTableError: a file is damaged or has a field of another type.
        UnsupportedFeatureError: the compression of a file is not known.
    """
    chunks = list(_chunks(files, [None] * len(files) if rows is None else rows))
    if len(chunks) <= 1:
        parts = [_read_chunk(chunk, columns) for chunk in chunks]
    else:
        workers = min(len(chunks), os.cpu_count() or 1, _MAX_THREADS)
        with ThreadPoolExecutor(workers, thread_name_prefix="anabranch-avro") as pool:
            parts = list(pool.map(lambda chunk: _read_chunk(chunk, columns), chunks))
    frames = [frame for frame, _ in parts if frame.height]
    counts = [count for _, chunk_counts in parts for count in chunk_counts]
    return (pl.concat(frames, rechunk=False) if frames else _no_rows(columns)), counts


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema to write with.

    Attributes:
        text: the JSON of it as files carry it.
        parsed: the same as fastavro wants it.
    """

    text: bytes
    parsed: Any = field(repr=False)


def write_container(schema: RecordSchema, records: Iterable[Any], *, codec: str = "zstandard") -> bytes:
    """An Avro file of one block with these records; of no block if there are none."""
    out = io.BytesIO()
    rows = 0
    for record in records:
        fastavro.schemaless_writer(out, schema.parsed, record)
        rows += 1
    blocks = [pack_block(Block(rows, out.getvalue()), codec)] if rows else []
    return frame_container(schema.text, blocks, codec)


@dataclass(slots=True)
class _Run:
    """Rows of one file, next to each other in a batch."""

    file: int
    path: str
    rows: int = 0
    payloads: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Batch:
    """Rows of files of one writer schema, to be decoded together."""

    schema: WriterSchema
    size: int = 0
    runs: list[_Run] = field(default_factory=list)

    def add(self, file: int, path: str, block: Block) -> None:
        if not self.runs or self.runs[-1].file != file:
            self.runs.append(_Run(file, path))
        self.runs[-1].rows += block.rows
        self.runs[-1].payloads.append(block.payload)
        self.size += len(block.payload)


_File: TypeAlias = tuple[str, bytes, int | None]
"""Path, content, and how many rows it should have."""


def _chunks(files: Sequence[tuple[str, bytes]], rows: Sequence[int | None]) -> Iterator[Sequence[_File]]:
    chunk: list[_File] = []
    size = 0
    for (path, data), expected in zip(files, rows, strict=True):
        chunk.append((path, data, expected))
        size += len(data)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read_chunk(files: Sequence[_File], columns: Columns) -> tuple[pl.DataFrame, list[int]]:
    counts = [0] * len(files)
    frames: list[pl.DataFrame] = []
    origins: list[int] = []
    lengths: list[int] = []
    for batch in _batches(files, columns):
        frames.append(_decode(batch, columns))
        for run in batch.runs:
            counts[run.file] += run.rows
            origins.append(run.file)
            lengths.append(run.rows)
    if not frames:
        return _no_rows(columns), counts
    return _in_file_order(pl.concat(frames, rechunk=False), origins, lengths), counts


def _batches(files: Sequence[_File], columns: Columns) -> Iterator[_Batch]:
    """Batches of a bounded size; those of one writer schema keep the order of the files."""
    growing: dict[bytes, _Batch] = {}
    for file, (path, data, rows) in enumerate(files):
        header = read_header(data, path=path)
        for block in read_blocks(data, header, path=path, rows=rows):
            batch = growing.get(header.schema)
            if batch is None:
                batch = growing[header.schema] = _Batch(_schema_for(header.schema, columns, path))
            if block.rows * batch.schema.min_size > len(block.payload):
                raise CorruptTableError(
                    f"an Avro block claims {block.rows} rows in {len(block.payload)} bytes; "
                    f"a row takes at least {batch.schema.min_size}",
                    path=path,
                )
            batch.add(file, path, block)
            if batch.size >= _BATCH_BYTES:
                yield growing.pop(header.schema)
    yield from growing.values()


def _schema_for(text: bytes, columns: Columns, path: str) -> WriterSchema:
    """The writer schema of a file, in which the columns wanted have the types wanted."""
    schema = _parse_schema(text, path)
    for field_path, dtype in columns.values():
        at = schema.positions.get(field_path)
        if at is not None and schema.columns[at].dtype != dtype:
            raise CorruptTableError(
                f"expected the field {field_path} as {dtype}, found {schema.columns[at].dtype}", path=path
            )
    return schema


def _parse_schema(text: bytes, path: str) -> WriterSchema:
    try:
        return writer_schema(text)
    except SchemaProblemError as problem:
        raise CorruptTableError(f"its Avro schema cannot be used: {problem}", path=path) from problem


def _decode(batch: _Batch, columns: Columns) -> pl.DataFrame:
    frame = _decode_runs(batch.schema, batch.runs, columns)
    if frame is not None:
        return frame
    return pl.concat([_decode_alone(batch.schema, run, columns) for run in batch.runs])


def _decode_alone(schema: WriterSchema, run: _Run, columns: Columns) -> pl.DataFrame:
    frame = _decode_runs(schema, [run], columns)
    if frame is not None:
        return frame
    try:
        return _decode_records(schema, run, columns)
    except Exception as error:  # whatever damaged bytes make of the decoder
        raise CorruptTableError(
            f"the {run.rows} rows of its Avro blocks cannot be decoded ({type(error).__name__}: {error})",
            path=run.path,
        ) from error


def _decode_runs(schema: WriterSchema, runs: list[_Run], columns: Columns) -> pl.DataFrame | None:
    """The rows of some files in one call of Polars; None if it cannot, or they are not what they claim."""
    if schema.head is None or schema.mark is None:
        return None
    rows = sum(run.rows for run in runs)
    payloads = [payload for run in runs for payload in run.payloads]
    size = sum(map(len, payloads)) + len(schema.end_row)
    container = b"".join(
        [schema.head, _SYNC, write_long(rows + 1), write_long(size), *payloads, schema.end_row, _SYNC]
    )
    found = {name: schema.positions.get(field_path) for name, (field_path, _) in columns.items()}
    needed = {at for at in (*found.values(), schema.mark, *schema.branches) if at is not None}
    try:
        frame = pl.read_avro(io.BytesIO(container), columns=sorted(needed))
    except (Exception, pl.exceptions.PanicException):  # a panic of Polars is no Exception
        return None
    if frame.height != rows + 1 or frame.get_column(f"c{schema.mark}")[rows] not in _END_MARKS:
        return None
    frame = frame.head(rows)
    if any((frame.get_column(f"c{at}") != branch).any() for at, branch in schema.branches.items()):
        return None
    return pl.DataFrame(
        [
            pl.Series(name, [None], dtype).new_from_index(0, rows)
            if (at := found[name]) is None
            else frame.get_column(f"c{at}").alias(name)
            for name, (_, dtype) in columns.items()
        ]
    )


def _decode_records(schema: WriterSchema, run: _Run, columns: Columns) -> pl.DataFrame:
    """The rows of one file, record by record."""
    payload = b"".join(run.payloads)
    source = io.BytesIO(payload)
    frames = []
    for start in range(0, run.rows, _RECORDS):  # records take many times the memory of columns
        count = min(_RECORDS, run.rows - start)
        records = [fastavro.schemaless_reader(source, schema.nested, None) for _ in range(count)]
        frames.append(
            pl.DataFrame(
                [
                    pl.Series(name, [_member(record, field_path.split(".")) for record in records], dtype)
                    for name, (field_path, dtype) in columns.items()
                ]
            )
        )
    if source.tell() != len(payload):
        raise EOFError(f"{len(payload) - source.tell()} bytes are left after the last row")
    return pl.concat(frames)


def _member(value: Any, path: list[str]) -> Any:
    for name in path:
        if value is None:
            return None
        value = value.get(name)
    return value


def _no_rows(columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(schema={name: dtype for name, (_, dtype) in columns.items()})


def _in_file_order(frame: pl.DataFrame, origins: list[int], lengths: list[int]) -> pl.DataFrame:
    """Rows of runs that came batch by batch, in the order of the files the runs are of."""
    if origins == sorted(origins):
        return frame
    ends = np.cumsum(lengths)
    order = np.argsort(origins, kind="stable")
    return frame[np.concatenate([np.arange(ends[i] - lengths[i], ends[i]) for i in order])]
