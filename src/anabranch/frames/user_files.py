"""Rows from user files: Parquet, CSV or JSON, by name or from standard input."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from anabranch.errors import InvalidInputError, NotFoundError, SchemaError
from anabranch.frames import csv_rows, json_rows

FORMATS = ("parquet", "csv", "json")


def read_rows(source: str, file_format: str | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read batches of a file, or of standard input for ``-``, parsing text in the types of `schema`.

    Raises:
        InvalidInputError: the format is unknown and the name does not tell it.
        NotFoundError: there is no such file.
        SchemaError: the content cannot be read in that format or those types.
    """
    chosen = file_format or Path(source).suffix.lstrip(".").lower()
    if chosen in ("jsonl", "ndjson"):
        chosen = "json"
    if chosen not in FORMATS:
        raise InvalidInputError(
            f"cannot tell the format of '{source}'",
            hint=f"give --format, one of {', '.join(FORMATS)}.",
        )
    if source == "-":
        if chosen == "json":
            yield from _read(sys.stdin.buffer, chosen, schema, "standard input")
            return
        content = sys.stdin.buffer.read()
        rows = _read(pa.BufferReader(content), chosen, schema, "standard input")
        yield from (
            rows if chosen != "csv" else csv_rows.checked(rows, lambda: io.BytesIO(content), "standard input")
        )
        return
    path = Path(source)
    if not path.is_file():
        raise NotFoundError(f"file '{source}' does not exist")
    if chosen == "json":
        with path.open("rb") as lines:
            yield from _read(lines, chosen, schema, source)
        return
    # Arrow's own file: its threads, which may read ahead when the program ends, need nothing of Python.
    with pa.OSFile(str(path)) as stream:
        rows = _read(stream, chosen, schema, source)
        yield from rows if chosen != "csv" else csv_rows.checked(rows, lambda: path.open("rb"), source)


def _read(stream: Any, file_format: str, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    try:
        match file_format:
            case "parquet":
                yield from pa.parquet.ParquetFile(stream).iter_batches()
            case "csv":
                yield from csv_rows.batches(stream, schema)
            case _:
                yield from json_rows.batches(stream, schema)
    except MemoryError:
        raise  # of Arrow's exceptions too, and nothing is wrong with the file
    except (pa.ArrowException, ValueError, TypeError, SchemaError) as error:
        said, hint = (error.message, error.hint) if isinstance(error, SchemaError) else (str(error), None)
        raise SchemaError(
            f"'{name}' cannot be read as {file_format} with the table's columns: {said}",
            hint=hint
            or "compare it with `anabranch schema`; CSV needs a header line, JSON one object a line.",
        ) from error
