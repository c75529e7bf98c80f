"""Anabranch on Spark. Importing this package does not start Spark."""

from typing import TYPE_CHECKING

from anabranch.lazy import lazy_names

if TYPE_CHECKING:
    from anabranch.spark.sessions import attach, session
    from anabranch.spark.source.clustering import cluster
    from anabranch.spark.streams.bounded import await_bounded
    from anabranch.spark.streams.read_stream import read_stream

__all__ = ["attach", "await_bounded", "cluster", "read_stream", "session"]

_HOMES = {
    "attach": "anabranch.spark.sessions",
    "await_bounded": "anabranch.spark.streams.bounded",
    "cluster": "anabranch.spark.source.clustering",
    "read_stream": "anabranch.spark.streams.read_stream",
    "session": "anabranch.spark.sessions",
}


if not TYPE_CHECKING:  # to which it would mean that there is every name
    __getattr__ = lazy_names(__name__, _HOMES, packages=("kafka",))
