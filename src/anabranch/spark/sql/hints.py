"""Lets plain `spark.sql` understand hints such as `FROM lake.db.t /*+ OPTIONS('k' = 'v') */`.

Spark's parser is replaced by one of ours that rewrites them first. Where that is not possible, or another extension has put its
own parser there, such a hint stays a syntax error of Spark's, and `lake.sql` understands it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import NotCompiledError, driver_class, made_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_OF_SPARK: Final = "org.apache.spark.sql.execution.SparkSqlParser"


def understand_hints(spark: SparkSession) -> None:
    """Let a classic session understand hints with options. Does nothing where that is not possible."""
    jvm = Jvm(spark)
    try:
        state = jvm.session.sessionState()
        if str(state.sqlParser().getClass().getName()) != _OF_SPARK:
            return
        parser = made_by(jvm, driver_class(jvm, "HintParser", part="parser").getConstructors()[0])
        field = state.getClass().getDeclaredField("sqlParser")
        field.setAccessible(True)
        field.set(state, parser)
    except (NotCompiledError, Py4JError) as error:
        _LOG.info("hints are for lake.sql only: %s", error)
