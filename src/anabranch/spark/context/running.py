"""Properties of the Spark behind a session, classic or through Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's SparkContext; None through Spark Connect."""
    return getattr(spark, "sparkContext", None)


def is_running(spark: SparkSession) -> bool:
    """Whether the session has not been stopped."""
    context = context_of(spark)
    if context is None:
        return not spark.is_stopped  # type: ignore[attr-defined] # only these sessions have it
    return context._jsc is not None  # noqa: SLF001 - Spark itself looks there, and has no public word for it


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM of a classic session is there and its context is not stopped; True through Spark Connect."""
    context = context_of(spark)
    if context is None:
        return True
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001 - there is no public word for it
    except Exception:  # py4j has many ways to say that nobody answers
        return False


def slots_of(spark: SparkSession) -> int:
    """Return how many tasks the cluster runs in parallel, as far as Spark knows."""
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    # Spark Connect does not tell its clients; but spark.range has this many partitions by default.
    return int(spark.range(10_000).selectExpr("spark_partition_id() AS part").distinct().count())
