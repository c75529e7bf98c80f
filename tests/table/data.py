"""Rows, and what a table and a folder hold, for tests of what comes in."""

import os

import pyarrow as pa

from anabranch.errors import SchemaError

ARROW = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", None]})


def breaking():
    """Batches of a source that breaks off."""
    yield from ARROW.to_batches()
    raise SchemaError("the source broke")


def columns_of(table):
    return {f.name: str(f.type) for f in table.schema.fields}


def files_below(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
