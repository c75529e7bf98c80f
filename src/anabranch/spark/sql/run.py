"""Execution of statements about a lake in the session it was opened with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.engine import LocalEngine
from anabranch.spark.catalog import catalog_name
from anabranch.spark.context.running import context_of
from anabranch.spark.context.tables import catalog_of
from anabranch.spark.jvm.raised import raised_as
from anabranch.spark.sql.create import create, create_table
from anabranch.spark.sql.frames import Frames
from anabranch.spark.sql.insert import insert
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.queries import start
from anabranch.spark.sql.rewrites import rewritten
from anabranch.table import Table, upkeep_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SWITCHING = threading.RLock()
"""Lock around changes of the current catalog, which the whole session shares."""
_DEFAULT_DATABASE = "default"


class Statements:
    """Executor of statements about one warehouse in one session. Thread-safe."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        """Start in database ``default``, which need not exist."""
        self._spark = spark
        self._options = dict(options)
        self._database = _DEFAULT_DATABASE

    def run(self, statement: str) -> DataFrame | StreamingQuery:
        """Execute one statement, with the lake as the current catalog.

        The session's own current catalog is as before afterwards. USE holds for later statements of the lake.

        Args:
            statement: in Spark's SQL, or in that of the proposals: see the page on SQL.

        Returns:
            Its rows; none for a statement that has no answer. For INSERT of rows that come from a stream the query
            that was started.

        Raises:
            AnabranchError: what Anabranch refuses, as itself. Spark's own errors are those of PySpark.
        """
        text = rewritten(statement)
        names = Names(self._catalog, catalog_of(self._options), self._database)
        told = upkeep_statements.answer(statement, lambda parts: _opened(names, parts))
        if told is not None:
            return self._spark.createDataFrame(told)
        if context_of(self._spark) is None:
            return self._through_connect(text, names)
        new = create_table(text)
        if new is not None and create(new, names):
            return nothing(self._spark)
        frames = Frames(self._spark, self._options, everything=False)
        written = insert(text)
        with self._current():
            try:
                if written is not None and frames.has_stream(written.query, names):
                    return start(written, frames, names, self._options)
                return frames.query(text, names)
            except Exception as error:
                ours = raised_as(error)
                if ours is None:
                    raise
                raise ours from None

    @property
    def _catalog(self) -> str:
        """Catalog name of the lake in the session."""
        return catalog_name(self._spark, self._options)

    def _through_connect(self, text: str, names: Names) -> DataFrame | StreamingQuery:
        from anabranch.spark.sql.connect import Portable

        portable = Portable(self._spark, self._options, names)
        try:
            return portable.run(text)
        finally:
            self._database = names.database

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make the lake and its database the session's current ones during the block."""
        catalog = self._catalog
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
        from anabranch.spark.jvm.proxy import Jvm

        return strings(Jvm(self._spark), names)


def _opened(names: Names, parts: Sequence[str]) -> Table:
    name = names.identifier(parts)
    return Table(names.files.open(name), engine=LocalEngine())


def nothing(spark: SparkSession) -> DataFrame:
    """Return a frame without rows and columns."""
    return spark.createDataFrame([], "done BOOLEAN").drop("done")
