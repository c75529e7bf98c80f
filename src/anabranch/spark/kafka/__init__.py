"""Topics of Kafka in Spark, without a jar: ``format("anabranch-kafka")``.

`anabranch.spark.session` and `anabranch.spark.attach` register it; without a warehouse, `register` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.spark.context import registering
from anabranch.spark.kafka.source import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KafkaSource", "register"]


def register(spark: SparkSession) -> SparkSession:
    """Make ``format("anabranch-kafka")`` known to a session, and return the session.

    Spark's Python processes must have ``anabranch[kafka]`` installed.
    """
    registering.register(spark, KafkaSource)
    return spark
