"""Registration of a data source in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceRegistration

from anabranch.spark.context.running import context_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source` under its name, replacing any source of that name in the session."""
    context = context_of(spark)
    if context is not None:
        DataSourceRegistration(_Session(spark, context)).register(source)  # type: ignore[arg-type]
        return
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        _activate(spark, error)
        spark.dataSource.register(source)


def _activate(spark: SparkSession, error: AnalysisException) -> None:
    """Make this session the active one, if `error` says that a source is known by its name; else raise `error`.

    Spark looks the name up in the active session instead of this one. Making a frame activates this one, and gives it the
    catalogs of the session it was made from.
    """
    if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
        raise error
    spark.createDataFrame([], "a INT")


class _Session:
    """A classic session, as far as registration needs it."""

    def __init__(self, spark: SparkSession, context: SparkContext) -> None:
        self.sparkContext = _Context(context)
        self._jsparkSession = self
        self._spark = spark

    def dataSource(self) -> _Session:  # noqa: N802 - PySpark's name, as the next
        return self

    def registerPython(self, name: str, source: Any) -> None:  # noqa: N802
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - the way into the JVM has no public name
        try:
            session.dataSource().registerPython(name, source)
        except AnalysisException as error:
            _activate(self._spark, error)
            # Not by the same door again: Spark looks among all classes too, and finds the one of
            # `anabranch.spark.catalog.format_tables`, once a session of this JVM has it.
            session.sessionState().dataSourceManager().registerDataSource(name, source)


class _Context:
    """A SparkContext whose environment of Python workers is a map that threads may change at the same time.

    All queries of a data source share the map that it is registered with, and each stream adds to it when it starts. Two
    that add to Spark's plain `HashMap` at once can leave it with a wrong count: no task that carries it is read again
    (`java.io.OptionalDataException`), in any query, until the session ends.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        jvm: Any = context._jvm  # noqa: SLF001 - there is no public word for it
        self.environment = jvm.java.util.concurrent.ConcurrentHashMap(context.environment)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
