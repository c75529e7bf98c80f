"""Anabranch on Spark. Importing this package does not start Spark."""

from anabranch.spark.bounded import await_bounded
from anabranch.spark.clustering import cluster
from anabranch.spark.session import attach, session
from anabranch.spark.streams import read_stream

__all__ = ["attach", "await_bounded", "cluster", "read_stream", "session"]
