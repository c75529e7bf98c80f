"""Anabranch on Spark. Importing this package does not start Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.spark.bounded import await_bounded
    from anabranch.spark.clustering import cluster
    from anabranch.spark.sessions import attach, session
    from anabranch.spark.streams import read_stream

__all__ = ["attach", "await_bounded", "cluster", "read_stream", "session"]

_HOMES = {
    "attach": "anabranch.spark.sessions",
    "await_bounded": "anabranch.spark.bounded",
    "cluster": "anabranch.spark.clustering",
    "read_stream": "anabranch.spark.streams",
    "session": "anabranch.spark.sessions",
}


def __getattr__(name: str) -> Any:
    """Spark starts many processes of Python, each of which needs a few modules of this package only."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
