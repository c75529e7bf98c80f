"""Making a data source known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source` under its name, in place of what the session knew by that name before."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looks for the name in the active session instead of this one. Making a frame activates this.
        spark.createDataFrame([], "a INT")
        spark.dataSource.register(source)
