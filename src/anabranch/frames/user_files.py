"""Rows from user files: Parquet, CSV or JSON, by name or from standard input."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from anabranch.errors import InvalidInputError, NotFoundError, SchemaError
from anabranch.frames import json_rows
from anabranch.frames.standard_input import standard_input

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
            yield from _read(standard_input().buffer, chosen, schema, "standard input")
            return
        content = standard_input().buffer.read()
        rows = _read(pa.BufferReader(content), chosen, schema, "standard input")
        yield from (
            rows if chosen != "csv" else checked_csv(rows, lambda: io.BytesIO(content), "standard input")
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
        yield from rows if chosen != "csv" else checked_csv(rows, lambda: path.open("rb"), source)


def _read(stream: Any, file_format: str, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    try:
        match file_format:
            case "parquet":
                yield from pa.parquet.ParquetFile(stream).iter_batches()
            case "csv":
                yield from csv_batches(stream, schema)
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


# Rows of CSV files, in the types of the table's columns.
#
# Only a value that is empty and not quoted is null: NA, null and nan are text, or no values of their columns.

_HEXADECIMAL: Final = "^[+-]?0[xX]"
_LONGEST_HEADER: Final = 1 << 20
_INFINITE: Final = "(?i)^[+-]?inf(inity)?$"


def csv_batches(stream: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file with a header; columns that `schema` lacks in types that Arrow guesses.

    Raises `pyarrow.ArrowException` if values do not fit their columns.
    """
    wanted = {f.name: f.type for f in schema if not pa.types.is_nested(f.type)}
    # Arrow takes 0x10 for 16, and makes infinite numbers of those that are too large, which only their text tells apart.
    read_as = {name: pa.string() if _is_number(kind) else kind for name, kind in wanted.items()}
    options = pa.csv.ConvertOptions(
        column_types=read_as, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    blank, names = _header(stream)
    with pa.csv.open_csv(
        stream,
        convert_options=options,
        read_options=pa.csv.ReadOptions(skip_rows=blank),
        parse_options=pa.csv.ParseOptions(
            ignore_empty_lines=names != 1
        ),  # of one column they are rows, of null
    ) as reader:
        for batch in reader:
            columns = [
                _numbers(column, wanted[name], name)
                if name in wanted and _is_number(wanted[name])
                else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _header(stream: Any) -> tuple[int, int]:
    """Number of blank lines at the beginning, and of names in the line after them; the stream is then where it was."""
    begin = stream.tell()
    text = stream.read(_LONGEST_HEADER)
    stream.seek(begin)
    rows = csv.reader(io.StringIO(bytes(text).decode("utf-8-sig", "replace"), newline=""))
    try:
        for blank, row in enumerate(rows):
            if row:
                return blank, len(row)
    except csv.Error:
        return 0, 0  # Arrow says what is wrong
    return 0, 0


def _numbers(text: Any, kind: Any, name: str) -> Any:
    """Text as numbers. Raises `pyarrow.ArrowInvalid` if it is none, or too large."""
    text = pc.utf8_trim_whitespace(text)
    hexadecimal = pc.match_substring_regex(text, _HEXADECIMAL)
    if pc.any(hexadecimal).as_py():
        raise pa.ArrowInvalid(f"column '{name}': {text.filter(hexadecimal)[0]} is no decimal number")
    try:
        numbers = text.cast(kind)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column '{name}': {error}") from error
    if pa.types.is_integer(kind):
        return numbers
    infinite = pc.is_inf(numbers)
    if pc.any(infinite).as_py():
        large = pc.and_(infinite, pc.invert(pc.match_substring_regex(text, _INFINITE)))
        if pc.any(large).as_py():
            raise pa.ArrowInvalid(f"column '{name}': {text.filter(large)[0]} is too large for it")
    return numbers


def checked_csv(
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
