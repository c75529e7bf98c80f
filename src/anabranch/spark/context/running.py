"""What a session says of the Spark behind it, classic or through Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's SparkContext; None through Spark Connect."""
    return getattr(spark, "sparkContext", None)


def is_running(spark: SparkSession) -> bool:
    """Whether the session was not stopped."""
    context = context_of(spark)
    if context is None:
        return not spark.is_stopped  # type: ignore[attr-defined] # only these sessions have it
    return context._jsc is not None  # noqa: SLF001 - Spark itself looks there, and has no public word for it


def slots_of(spark: SparkSession) -> int:
    """How many tasks the cluster runs side by side, as far as Spark knows."""
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    # A client of Spark Connect is not told; but this is how many parts Spark makes of numbers.
    return int(spark.range(10_000).selectExpr("spark_partition_id() AS part").distinct().count())
