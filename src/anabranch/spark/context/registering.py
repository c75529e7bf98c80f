"""Registration of a data source in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceRegistration

from anabranch.spark.context.running import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source` under its name, replacing any source of that name in the session."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looks the name up in the active session instead of this one; making a frame activates this one, and gives it
        # the catalogs of the session it was made from.
        spark.createDataFrame([], "a INT")
        if context_of(spark) is None:
            spark.dataSource.register(source)
        else:
            DataSourceRegistration(_Straight(spark)).register(source)  # type: ignore[arg-type]


class _Straight:
    """A session, as far as registration needs it, that hands a source to the session's registry itself.

    Spark looks first whether there is a source of that name, in the active session instead of this one, and among all
    classes: there it finds the one of `anabranch.spark.catalog.format_tables`, once a session of this JVM has it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.sparkContext = spark.sparkContext
        self._jsparkSession = self
        self._session: Any = spark._jsparkSession  # noqa: SLF001 - the way into the JVM has no public name

    def dataSource(self) -> _Straight:  # noqa: N802 - PySpark's name, as the next
        return self

    def registerPython(self, name: str, source: Any) -> None:  # noqa: N802
        self._session.sessionState().dataSourceManager().registerDataSource(name, source)
