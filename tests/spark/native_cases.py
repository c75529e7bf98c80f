"""What native reading gives, held against the embedded engine's rows in a local frame of Spark's."""

import itertools
import random
import time
from functools import reduce
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from anabranch.spark.catalog import java
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.scan_builder import ScanBuilder
from anabranch.spark.types.arrow_values import to_schema
from anabranch.spark.types.columns import arrow_schema, spark_schema
from tests.kernel.evolution_model import LAYOUTS, Model
from tests.support.tables import make_table

_numbers = itertools.count()


def bag(rows):
    """Rows in any order; NaN is one value, 0.0 and -0.0 are two."""
    return sorted(repr(tuple(row)) for row in rows)


def in_spark(spark, scan):
    """The rows of a scan as the embedded engine reads them, in a frame that holds them itself."""
    fields = scan.reader.fields if scan.columns is None else [scan.schema.field(n) for n in scan.columns]
    wanted = arrow_schema(fields)
    # PySpark takes no table without any batch.
    batches = scan.to_arrow().combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], wanted)]
    rows = pa.Table.from_batches([to_schema(b, wanted) for b in batches], wanted)
    return spark.createDataFrame(rows, spark_schema(fields))


def answers(frame, filters, columns=("*",), at_once=10):
    """For each filter, a Spark SQL text, the bag of rows it keeps; by one job for some of them."""
    tagged = [frame.filter(f).select(fn.lit(i).alias("_case"), *columns) for i, f in enumerate(filters)]
    kept = [[] for _ in filters]
    for start in range(0, len(tagged), at_once):
        for number, *row in _union(tagged[start : start + at_once]).collect():
            kept[number].append(row)
    return [bag(rows) for rows in kept]


def _union(frames):
    """In pairs: Spark looks at all of a frame again with each one that is added to it."""
    while len(frames) > 1:
        frames = [reduce(DataFrame.unionAll, frames[i : i + 2]) for i in range(0, len(frames), 2)]
    return frames[0]


def expected(spark, scan, filters, columns=("*",)):
    """For each filter the bag of rows it keeps, of the embedded engine's rows; by one job without files."""
    frame = in_spark(spark, scan)
    kept = [[] for _ in filters]
    for row in frame.select(*columns, fn.array(*(fn.expr(f) for f in filters)).alias("_kept")).collect():
        *values, flags = row
        for rows, flag in zip(kept, flags, strict=True):
            if flag:
                rows.append(values)
    return [bag(rows) for rows in kept]


def check(spark, native, scan, filters, columns=("*",)):
    """Native reading keeps the same rows as the embedded engine's would be kept by each filter."""
    for text, rows, wanted in zip(
        filters, answers(native, filters, columns), expected(spark, scan, filters, columns), strict=True
    ):
        assert rows == wanted, f"{text}: {len(rows)} rows, expected {len(wanted)}\n{rows[:3]}\n{wanted[:3]}"


def eventually(condition, seconds=120):
    """Wait until something is so that nobody tells of."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


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


def files_read(frame, under=""):
    """Files that the executed plan of a frame has read, of scans in whose text `under` stands."""
    found = 0
    for scan in _leaves_of(frame._jdf.queryExecution().executedPlan()):
        text = scan.simpleString(1000)
        if under in text and "anabranch" in text:
            found += int(text.partition(" files")[0].rpartition(" ")[2])
        elif under in text and text.startswith("FileScan"):
            found += int(scan.metrics().apply("numFiles").value())
    return found


def _leaves_of(plan):
    leaves = plan.collectLeaves()
    for leaf in (leaves.apply(i) for i in range(leaves.length())):
        kind = leaf.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            yield from _leaves_of(leaf.executedPlan())
        elif kind.endswith("QueryStageExec"):
            yield from _leaves_of(leaf.plan())
        else:
            yield leaf


_CATALOG = "org.apache.spark.sql.connector.catalog"


class PlainTable(JavaProxy):
    """As little as a table of a catalog can be."""

    class Java:
        implements: ClassVar = [f"{_CATALOG}.SupportsRead"]

    def __init__(self, jvm, scan):
        self.jvm = jvm
        self.scan = scan

    def name(self):
        return self.scan.context.title

    def id(self):
        return None

    def version(self):
        return None

    def schema(self):
        return self.jvm.struct(spark_schema(self.scan.schema.fields))

    def columns(self):
        return java.columns(self.jvm, self.schema())

    def partitioning(self):
        return self.jvm.array("org.apache.spark.sql.connector.expressions.Transform", [])

    def properties(self):
        return self.jvm.map({})

    def constraints(self):
        return self.jvm.array(f"{_CATALOG}.constraints.Constraint", [])

    def capabilities(self):
        found = self.jvm.of("java.util.HashSet")()
        found.add(self.jvm.of(f"{_CATALOG}.TableCapability").BATCH_READ)
        return found

    def newScanBuilder(self, options):
        return ScanBuilder(self.jvm, lambda: self.scan)


def v2_frame(spark, scan):
    """A scan by `ScanBuilder`, without a catalog around it."""
    start_callbacks(spark)
    jvm = Jvm(spark)
    nothing = jvm.of("org.apache.spark.sql.util.CaseInsensitiveStringMap")(jvm.map({}))
    relations = jvm.of("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    relation = relations.create(PlainTable(jvm, scan), jvm.none(), jvm.none(), nothing, jvm.none())
    made = jvm.of("org.apache.spark.sql.classic.Dataset").ofRows(jvm.session, relation)
    return DataFrame(made, spark)
