"""Streaming readers as Spark uses them, without Spark."""

import json
import pickle

from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types.columns import arrow_schema


def reader_of(table, *columns, **options):
    options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}
    fields = [table.schema.field(name) for name in columns] or table.schema.fields
    return stream_reader(table, arrow_schema(fields), options)


def through_log(offset):
    """As it comes back from the checkpoint."""
    return json.loads(json.dumps(offset))


def latest(reader, start):
    if not HAS_READ_LIMITS:
        reader.partitions(start, start)  # how Spark 4.1 tells where a query stands
        return reader.latestOffset()
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def rows_read(reader, start, end):
    executor = pickle.loads(pickle.dumps(reader))
    partitions = pickle.loads(pickle.dumps(reader.partitions(through_log(start), through_log(end))))
    return [row for p in partitions for batch in executor.read(p) for row in batch.to_pylist()]


def ids(reader, start, end):
    return sorted(row["id"] for row in rows_read(reader, start, end))
