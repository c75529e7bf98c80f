"""Warehouse a session was attached to, for functions that get only a DataFrame and a table name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from anabranch.errors import NotFoundError
from anabranch.options import PATH
from anabranch.spark.context.tables import open_table
from anabranch.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIONS: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


def remember(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Set the options with which the session's tables are found, replacing earlier ones."""
    _OPTIONS[spark] = options


def known_options(spark: SparkSession) -> Mapping[str, str]:
    """Return the options with which the session's tables are found; none if it knows no warehouse."""
    return _OPTIONS.get(spark, {})


def table_of(spark: SparkSession, name: str) -> Table:
    """Return the table of that name, ``db.t``, or of that path.

    Raises:
        NotFoundError: there is no such table, or the session knows no warehouse.
    """
    return open_table({**options_of(spark, name), PATH.key: name})


def options_of(spark: SparkSession, name: str) -> Mapping[str, str]:
    """Return the options with which the session finds the table of that name or path.

    Raises `NotFoundError` if the session knows no warehouse that could have it.
    """
    options = _OPTIONS.get(spark)
    if options is None and "/" not in name:
        raise NotFoundError(
            f"the session knows no warehouse that could have the table '{name}'",
            hint="open one with anabranch.spark.attach(spark, warehouse), or give the table itself: "
            "lake.table('db.t'). Sessions made from another one, as foreachBatch has them, are attached anew.",
        )
    return options or {}
