"""Rows from files that users hand in: Parquet, CSV or JSON, by name or from standard input."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from anabranch.errors import InvalidInputError, NotFoundError, SchemaError
from anabranch.service import json_maps

FORMATS = ("parquet", "csv", "json")


def read_rows(source: str, file_format: str | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of a file, or of standard input for ``-``, text read in the types of `schema`.

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
        content = sys.stdin.buffer.read()
        rows = _read(pa.BufferReader(content), chosen, schema, "standard input")
        yield from rows if chosen != "csv" else _checked(rows, lambda: io.BytesIO(content), "standard input")
        return
    path = Path(source)
    if not path.is_file():
        raise NotFoundError(f"file '{source}' does not exist")
    # Arrow's own file: its threads, which may read ahead when the program ends, need nothing of Python.
    with pa.OSFile(str(path)) as stream:
        rows = _read(stream, chosen, schema, source)
        yield from rows if chosen != "csv" else _checked(rows, lambda: path.open("rb"), source)


def _checked(
    rows: Iterator[pa.RecordBatch], again: Callable[[], IO[bytes]], name: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, which are refused at their end if a quote that is not closed has swallowed some.

    Arrow reads on to the next quote, wherever that is. It is seen by line breaks in values; only then is the file read
    once more, strictly.
    """
    is_suspicious = False
    for batch in rows:
        is_suspicious = is_suspicious or any(map(_has_line_break, batch.columns))
        yield batch
    if not is_suspicious:
        return
    limit = csv.field_size_limit(2**31 - 1)
    try:
        with io.TextIOWrapper(again(), "utf-8", errors="replace", newline="") as text:
            reader = csv.reader(text, strict=True)
            start = 1
            try:
                for _ in reader:
                    start = reader.line_num + 1
            except csv.Error as error:
                raise SchemaError(
                    f"'{name}' has a quote that is not closed, or closed where no value ends, in the row that begins in "
                    f"line {start}: {error}",
                    hint='write "" for a quote inside of quotes, and quote whole values only.',
                ) from error
    finally:
        csv.field_size_limit(limit)


def _has_line_break(column: pa.Array) -> bool:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if not (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_binary(column.type)
    ):
        return False
    return bool(pc.any(pc.match_substring(column, "\n")).as_py())


def _read(stream: Any, file_format: str, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    try:
        match file_format:
            case "parquet":
                yield from pa.parquet.ParquetFile(stream).iter_batches()
            case "csv":
                types = {f.name: f.type for f in schema if not pa.types.is_nested(f.type)}
                convert = pa.csv.ConvertOptions(
                    column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
                )
                with pa.csv.open_csv(stream, convert_options=convert) as reader:
                    yield from reader
            case _:
                yield from _json(stream, schema).to_batches()
    except (pa.ArrowException, ValueError, TypeError) as error:
        if file_format == "json" and "Empty" in str(error):
            return
        raise SchemaError(
            f"'{name}' cannot be read as {file_format} with the table's columns: {error}",
            hint="compare it with `anabranch schema`; CSV needs a header line, JSON one object a line.",
        ) from error


def _json(stream: Any, schema: pa.Schema) -> pa.Table:
    if not any(json_maps.has_map(f.type) for f in schema):
        parse = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
        return pa.json.read_json(stream, parse_options=parse)
    text = json_maps.text_without_maps(stream.read(), schema)
    parse = pa.json.ParseOptions(
        explicit_schema=json_maps.without_maps(schema), unexpected_field_behavior="infer"
    )
    return json_maps.with_maps(pa.json.read_json(pa.BufferReader(text), parse_options=parse), schema)
