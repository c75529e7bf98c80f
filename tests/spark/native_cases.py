"""What native reading gives, held against the embedded engine's rows in a local frame of Spark's."""

import itertools
import random
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from anabranch.spark.arrow_values import to_schema
from anabranch.spark.types import arrow_schema, spark_schema
from tests.kernel.test_evolution_model import LAYOUTS, Model
from tests.support.tables import make_table

_numbers = itertools.count()


def bag(rows):
    """Rows in any order; NaN is one value, 0.0 and -0.0 are two."""
    return sorted(repr(tuple(row)) for row in rows)


def in_spark(spark, scan):
    """The rows of a scan as the embedded engine reads them, in a frame that holds them itself."""
    fields = scan.reader.fields if scan.columns is None else [scan.schema.field(n) for n in scan.columns]
    batch = pa.Table.to_batches(scan.to_arrow().combine_chunks())
    wanted = arrow_schema(fields)
    rows = pa.Table.from_batches([to_schema(b, wanted) for b in batch], wanted)
    return spark.createDataFrame(rows, spark_schema(fields))


def answers(frame, filters):
    """For each filter, a Spark SQL text, the bag of rows it keeps; by one job for all of them."""
    tagged = [frame.filter(f).select(fn.lit(i).alias("_case"), "*") for i, f in enumerate(filters)]
    kept = [[] for _ in filters]
    for number, *row in reduce(DataFrame.unionAll, tagged).collect():
        kept[number].append(row)
    return [bag(rows) for rows in kept]


def check(spark, native, scan, filters):
    """Native reading keeps the same rows as the embedded engine's would be kept by each filter."""
    expected = answers(in_spark(spark, scan), filters)
    found = answers(native, filters)
    for text, rows, wanted in zip(filters, found, expected, strict=True):
        assert rows == wanted, f"{text}: {len(rows)} rows, expected {len(wanted)}\n{rows[:3]}\n{wanted[:3]}"


class LocalModel(Model):
    """The random histories of the kernel's own tests, in a folder that Spark reaches."""

    def __init__(self, seed, folder, columns):
        self.random = random.Random(seed)
        layout = self.random.choice(LAYOUTS)
        self.table = make_table(f"{folder}/{next(_numbers)}", schema=columns, **layout)
        self.rows = []
        self.stale = []
        self.refused = 0
        self.filters = 0
        self.most_schemas = 0
