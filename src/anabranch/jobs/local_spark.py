"""A local Spark for one command, silent on the terminal."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark.context.notices import folder_of_process, remove_abandoned

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
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Variable with options of the JVM that PySpark starts; of those given twice the last one counts."""
_FOLDER = "anabranch-spark-"


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
    """Open a session that knows the warehouse; it is stopped at the end.

    Args:
        warehouse: path or URL.
        name: of the application.
        master: where it runs; Spark's configured one if None. For a remote one the machine's own address is used.
        conf: further settings of Spark.
        quiet: whether output of Spark and its JVM is dropped.
        asks_executors: whether executors of a cluster are first checked for what our tasks need.

    Raises:
        NotFoundError: Java, or the master, is missing.
        UnsupportedFeatureError: executors, or the Python that they run, lack packages.
        InvalidInputError: executors do not see the warehouse, or Spark does not start with these settings.
    """
    from anabranch.spark.deploy.executors import check_executors, check_python_here
    from anabranch.spark.deploy.start import check_local_folders, silent_start
    from anabranch.spark.sessions import session

    is_here = master is not None and master.startswith("local")
    quieting = {k: v for k, v in _QUIET.items() if is_here or not k.startswith("spark.driver.")}
    given: dict[str, Any] = {**quieting, **(conf or {})}
    if quiet:
        for logger in ("py4j", "pyspark", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_told_otherwise)
    check_local_folders(given)
    check_python_here(given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON"))
    remove_abandoned(Path(tempfile.gettempdir()))
    with silent_start() if quiet else nullcontext(), _own_temporary_folder():
        spark = session(warehouse, master=master, app_name=name, **given)
    try:
        spark.sparkContext.setLogLevel(given[_LOG_LEVEL])
        if asks_executors:
            check_executors(spark, warehouse)
        yield spark
    finally:
        _stop(spark)


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Make a JVM that is started in the block keep its temporary files in a folder that goes with this process.

    A JVM that is killed leaves them, and nobody else knows whose they are. Spark's own place is that of the JVM, unless
    ``spark.local.dir`` names another.
    """
    before = os.environ.get(_JVM_OPTIONS)
    own = f"-Djava.io.tmpdir={folder_of_process(_FOLDER)}"
    os.environ[_JVM_OPTIONS] = own if before is None else f"{own} {before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = before


def _is_told_otherwise(record: logging.LogRecord) -> bool:
    """Whether to log something: py4j writes a trace to the root log for every call to a JVM that is gone."""
    return record.msg != "Exception while sending command."


def _stop(spark: SparkSession) -> None:
    """Stop Spark. The work is done by now: a JVM that ended without confirming it changes nothing."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        _LOG.debug("Spark did not say that it stopped: %s", error)
