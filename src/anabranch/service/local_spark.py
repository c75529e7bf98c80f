"""A Spark of this machine for one command, which says nothing on the terminal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_QUIET: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "4",
}
_LOG_LEVEL = "spark.log.level"


@contextmanager
def local_spark(
    warehouse: str,
    name: str,
    *,
    master: str | None = "local[*]",
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
    asks_executors: bool = True,
) -> Iterator[SparkSession]:
    """A session that knows the warehouse; it is stopped in the end.

    Args:
        warehouse: path or URL.
        name: of the application.
        master: where it runs; what Spark is configured to if None. Elsewhere than here the machine's own address is used.
        conf: further settings of Spark.
        quiet: whether what Spark and its JVM say goes nowhere.
        asks_executors: whether those of a cluster are asked first if they can run tasks of ours.

    Raises:
        NotFoundError: there is no Java, or no master.
        UnsupportedFeatureError: executors, or the Python that they run, lack packages.
        InvalidInputError: executors do not see the warehouse.
    """
    from anabranch.spark.deploy.executors import check_executors, check_python_here
    from anabranch.spark.sessions import session

    is_here = master is not None and master.startswith("local")
    quieting = {k: v for k, v in _QUIET.items() if is_here or not k.startswith("spark.driver.")}
    given: dict[str, Any] = {**quieting, **(conf or {})}
    if quiet:
        for logger in ("py4j", "pyspark", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
    check_python_here(given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON"))
    with _standard_error_elsewhere() if quiet else nullcontext():
        spark = session(warehouse, master=master, app_name=name, **given)
    try:
        spark.sparkContext.setLogLevel(given[_LOG_LEVEL])
        if asks_executors:
            check_executors(spark, warehouse)
        yield spark
    finally:
        _stop(spark)


def _stop(spark: SparkSession) -> None:
    """What was asked for is done by now: that the JVM ended before it said so changes nothing."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        _LOG.debug("Spark did not say that it stopped: %s", error)


@contextmanager
def _standard_error_elsewhere() -> Iterator[None]:
    """What the JVM says on its way up is for nobody; it keeps the descriptor that it is started with."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
