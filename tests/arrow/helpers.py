"""Writing rows of a table and reading them back, without commits."""

import numpy as np
import pyarrow as pa

from anabranch.arrow.reader import ReadContext, read_batches, read_table
from anabranch.arrow.writer import WriteContext, file_paths, write
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.storage.memory import MemoryStorage


def make_schema(columns, *, partition_keys=(), **options):
    """A new table's schema; `columns` are DDL text or fields."""
    fields = parse_columns(columns) if isinstance(columns, str) else columns
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    return TableSchema.create(fields, partition_keys=partition_keys, options=named, time_millis=0)


def context_of(schema, storage=None, **how):
    return WriteContext(storage or MemoryStorage(), schema, **how)


def rows_of(schema, columns):
    """A table of these columns, in the types of the schema."""
    arrow = to_arrow_schema(schema.fields)
    return pa.table([pa.array(columns[f.name], f.type) for f in arrow], schema=arrow)


def split_of(message, context):
    files = [
        SplitFile(path, file.file_size, file.row_count, file.schema_id, path.rpartition(".")[2])
        for path, file in zip(file_paths(message, context), message.new_files, strict=True)
    ]
    return Split(message.partition, message.bucket, tuple(files))


def splits_of(messages, context):
    return [split_of(message, context) for message in messages]


def reading(context, schema=None, **how):
    """How the files of `context` are read in the columns of `schema`, else of their own."""
    return ReadContext(context.storage, (schema or context.schema).fields, lambda _: context.schema, **how)


def filtered(schema, text):
    return bind(parse(text), schema.fields)


def round_trip(schema, table, **how):
    context = context_of(schema, **how)
    return read_table(splits_of(write([table], context), context), reading(context))


def stored_paths(storage):
    return sorted(info.path for info in storage.list("", recursive=True, include_temporary=True))


__all__ = [
    "context_of",
    "filtered",
    "make_schema",
    "read_batches",
    "read_table",
    "reading",
    "round_trip",
    "rows_of",
    "split_of",
    "splits_of",
    "stored_paths",
    "write",
]


def numbers(schema, count, start=0):
    ids = np.arange(start, start + count)
    return rows_of(schema, {"id": ids, "v": [f"value {i}" for i in ids]})


SCALABLE = make_schema("id BIGINT NOT NULL, v STRING")


def files_of(messages):
    return [file for message in messages for file in message.new_files]


def read_written(messages, context):
    return read_table(splits_of(messages, context), reading(context))
