"""Anabranch on Spark. Importing this package does not start Spark."""

from anabranch.spark.clustering import cluster
from anabranch.spark.session import attach, session

__all__ = ["attach", "cluster", "session"]
