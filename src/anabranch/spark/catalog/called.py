"""The declared verbs as procedures: what Spark's own CALL and that of `lake.sql` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.catalog import FilesystemCatalog
from anabranch.table import Table
from anabranch.verbs.caller import Session
from anabranch.verbs.registry import PROCEDURES, call, procedure
from anabranch.verbs.verb import Parameter, Verb, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.lake import Lake

__all__ = ["PROCEDURES", "TABLE", "CalledIn", "Parameter", "Verb", "arguments", "called", "procedure"]

TABLE: Final = Parameter("table", str, option("the table, db.t"))
"""First argument of every procedure about a table."""


@dataclass(frozen=True)
class CalledIn:
    """The warehouse that a procedure was called for, and in which session."""

    spark: SparkSession
    files: FilesystemCatalog
    options: Mapping[str, str]

    def lake(self) -> Lake:
        """Open the lake with the session."""
        from anabranch.lake import Lake

        # The thread that Spark calls in has no session yet, by which it would find data sources.
        self.spark.createDataFrame([], "a INT")
        return Lake(self.files.storage, spark=self.spark, options=self.options)


def arguments(verb: Verb) -> tuple[Parameter, ...]:
    """Return the arguments of a procedure, in their order."""
    has_table = any(parameter.name == TABLE.name for parameter in verb.parameters)
    return (TABLE, *verb.of_procedure) if has_table else verb.of_procedure


def called(
    verb: Verb, table: Table | None, place: CalledIn, given: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Call a procedure, and return its rows. Raises what the verb raises."""
    return call(verb, Session(place.lake, table), given)
