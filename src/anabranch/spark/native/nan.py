"""Columns for which Spark may not use the bounds in the footers of Parquet files.

Some writers, Arrow's among them, leave NaN out of these bounds; to Spark NaN is greater than every number, and it
would skip row groups that hold rows of a query. Our own files have no bounds where there is NaN; of files of
others the manifests say whether there may be.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as fn

from anabranch.expr.bound import BoundColumn, NaNTest, disjunction
from anabranch.format.types.data_types import DataType, DoubleType, Field, FloatType, RowType
from anabranch.kernel.scan.request import ScanRequest
from anabranch.spark.native.generations import Generation

if TYPE_CHECKING:
    from pyspark.sql import Column

    from anabranch.scan.scan import Scan


_MOST_FILES = 20_000
"""Number of files above which looking up their statistics costs more than skipping row groups saves."""


def shielded(scan: Scan, generation: Generation, asked: Collection[str] | None = None) -> frozenset[str]:
    """Return the generation's column names whose footer statistics must not be used.

    Of a field inside of a row the manifests know nothing; elements of arrays and maps Spark does not look for.

    Args:
        scan: whose files they are.
        generation: what is read of them.
        asked: the only columns that may be asked for; all if None.
    """
    keys = {f.id for f in generation.schema.partition_fields}
    data = [f for f in generation.fields if f.id not in keys and (asked is None or f.name in asked)]
    floats = [f for f in data if isinstance(f.type, FloatType | DoubleType)]
    names = {f.name for f in data if isinstance(f.type, RowType) and _holds_floats(f.type)}
    if floats and _may_hold_nan(scan, generation, floats):
        names.update(f.name for f in floats)
    return frozenset(names)


def shield(column: Column, data_type: DataType) -> Column:
    """Wrap a column so that Spark does not look at its footer statistics; our planner sees through it."""
    if isinstance(data_type, FloatType | DoubleType):
        nan = fn.lit(float("nan"))
        return fn.nanvl(column, nan.cast("float") if isinstance(data_type, FloatType) else nan)
    return fn.when(column.isNotNull(), column)


def _may_hold_nan(scan: Scan, generation: Generation, floats: list[Field]) -> bool:
    """Whether a column may hold NaN, as do files without bounds in the manifests."""
    if scan.plan().files.height > _MOST_FILES:
        return True
    test = disjunction(NaNTest(BoundColumn((f,))) for f in floats)
    plan = ScanRequest(scan.context, scan.snapshot, generation.schema, test, None, scan.options).plan()
    return not plan.files.filter(pl.col("schema_id").is_in(sorted(generation.schema_ids))).is_empty()


def _holds_floats(data_type: DataType) -> bool:
    if isinstance(data_type, RowType):
        return any(_holds_floats(f.type) for f in data_type.fields)
    return isinstance(data_type, FloatType | DoubleType)
