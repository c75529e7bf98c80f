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
    ways = spark.dataSource if context is None else DataSourceRegistration(_Session(spark, context))  # type: ignore[arg-type]
    try:
        ways.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looks the name up in the active session instead of this one; making a frame activates this one, and gives it
        # the catalogs of the session it was made from.
        spark.createDataFrame([], "a INT")
        if context is None:
            ways.register(source)
        else:
            DataSourceRegistration(_Session(spark, context, is_straight=True)).register(source)  # type: ignore[arg-type]


class _Session:
    """A session, as far as registration needs it.

    Args:
        is_straight: hand the source to the session's registry itself. Spark looks first whether there is a source of that
            name, in the active session instead of this one, and among all classes: there it finds the one of
            `anabranch.spark.catalog.format_tables`, once a session of this JVM has it.
    """

    def __init__(self, spark: SparkSession, context: SparkContext, *, is_straight: bool = False) -> None:
        self.sparkContext = _Context(context)
        self._jsparkSession = self
        self._session: Any = spark._jsparkSession  # noqa: SLF001 - the way into the JVM has no public name
        self._is_straight = is_straight

    def dataSource(self) -> _Session:  # noqa: N802 - PySpark's name, as the next
        return self

    def registerPython(self, name: str, source: Any) -> None:  # noqa: N802
        if self._is_straight:
            self._session.sessionState().dataSourceManager().registerDataSource(name, source)
        else:
            self._session.dataSource().registerPython(name, source)


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
