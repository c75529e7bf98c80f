"""Carrying out statements about a lake in the session it was opened with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.catalog import Identifier
from anabranch.errors import SqlError, UnsupportedFeatureError
from anabranch.spark.catalog import catalog_name
from anabranch.spark.engine import context_of
from anabranch.spark.native.raised import raised_as
from anabranch.spark.sql.create import CreateTable, create_table
from anabranch.spark.sql.rewrites import rewritten
from anabranch.spark.tables import catalog_of
from anabranch.spec.ddl import parse_column_list
from anabranch.spec.watermark import with_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SWITCHING = threading.RLock()
"""Which catalog is current is known to the whole session."""
_DEFAULT_DATABASE = "default"


class Statements:
    """Statements about one warehouse in one session. Safe for threads."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        """Begin in database ``default``, which need not exist.

        Args:
            spark: the session.
            options: warehouse and credentials.
        """
        self._spark = spark
        self._options = dict(options)
        self._database = _DEFAULT_DATABASE

    def run(self, statement: str) -> DataFrame:
        """Carry out one statement, with the lake as the current catalog.

        The session's own current catalog is as before afterwards. USE holds for later statements of the lake.

        Args:
            statement: in Spark's SQL, or in that of the proposals: see the page on SQL.

        Returns:
            Its rows; none for a statement that has no answer.

        Raises:
            AnabranchError: what Anabranch refuses, as itself. Spark's own errors are those of PySpark.
        """
        if context_of(self._spark) is None:
            raise UnsupportedFeatureError(
                "statements about a lake need a classic Spark session, not one of Spark Connect",
                feature="sql-through-connect",
                hint="read and write with format('anabranch'), and define tables with lake.create_table().",
            )
        text = rewritten(statement)
        new = create_table(text)
        if new is not None and self._create(new):
            return self._spark.createDataFrame([], "done BOOLEAN").drop("done")
        with self._current():
            try:
                return self._spark.sql(text)
            except Exception as error:
                ours = raised_as(error)
                if ours is None:
                    raise
                raise ours from None

    def _create(self, new: CreateTable) -> bool:
        """Make the table; False if its name says that it is not of this lake."""
        *above, name = new.name
        if len(above) > 1 and above[0] != catalog_name(self._spark, self._options):
            return False
        connector = new.options.get("connector")
        if connector is not None:
            raise UnsupportedFeatureError(
                f"a table with the connector '{connector}' is not kept in the warehouse",
                feature="connector-tables",
                hint="read topics of Kafka with spark.readStream.format('anabranch-kafka').",
            )
        if len(above) > 2:
            raise SqlError(f"'{'.'.join(new.name)}' names no table", hint="write database.table.")
        database = above[-1] if above else self._database
        columns = parse_column_list(new.columns)
        catalog_of(self._options).create_table(
            Identifier.parse(f"{database}.{name}"),
            columns.fields,
            partition_by=new.partition_by,
            options=with_watermark(columns.fields, columns.watermark, new.options),
            comment=new.comment,
            if_not_exists=new.if_not_exists,
        )
        return True

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The lake and its database as the session's current ones, meanwhile."""
        catalog = catalog_name(self._spark, self._options)
        manager = self._spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001 - Python has no other way
        with _SWITCHING:
            before = manager.currentCatalog().name(), manager.currentNamespace()
            manager.setCurrentCatalog(catalog)
            try:
                if self._database in catalog_of(self._options).databases():
                    manager.setCurrentNamespace(self._levels([self._database]))
                yield
            finally:
                levels = (
                    list(manager.currentNamespace()) if manager.currentCatalog().name() == catalog else []
                )
                self._database = str(levels[0]) if levels else self._database
                manager.setCurrentCatalog(before[0])
                manager.setCurrentNamespace(before[1])

    def _levels(self, names: list[str]) -> Any:
        from anabranch.spark.catalog.java import strings
        from anabranch.spark.native.proxy import Jvm

        return strings(Jvm(self._spark), names)
