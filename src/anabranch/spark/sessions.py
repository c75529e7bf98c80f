"""A SparkSession that knows the tables of a warehouse."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import NotFoundError, UnsupportedFeatureError
from anabranch.spark.catalog import register_catalog
from anabranch.spark.context.attached import remember
from anabranch.spark.context.registering import register
from anabranch.spark.context.running import context_of
from anabranch.spark.context.tables import absolute
from anabranch.spark.deploy.start import check_master, no_jvm_left
from anabranch.spark.kafka.source import kafka_source_with
from anabranch.spark.lineage.lookups import answer
from anabranch.spark.source.data_source import source_with
from anabranch.spark.tasks.stream_compaction import watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_SCHEDULING = "spark.scheduler.mode"
_PYTHON = "spark.pyspark.python"
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MASTER = re.compile(r"local(\[[^-]*\])?")
_PYTHON_VARIABLE = "PYSPARK_PYTHON"
_CHECKED: set[str] = set()
_CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc.error_details_pb2": "googleapis-common-protos",
    "zstandard": "zstandard",
}
"""Modules that clients of Spark Connect import, and the packages that provide them."""
_DEFAULTS = {
    _SCHEDULING: "FAIR",
    _PYTHON: sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A driver that is killed while it writes the offsets of its first batch leaves the file it was writing. Spark would
    # take that for the checkpoint of another query, and never start this one again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}


def session(
    warehouse: str,
    *,
    catalog: str = "lake",
    master: str | None = None,
    remote: str | None = None,
    app_name: str | None = None,
    options: Mapping[str, str] | None = None,
    **conf: str,
) -> SparkSession:
    """Start a SparkSession, or take the running one, and open the warehouse in it.

    Spark's Python processes run the interpreter that calls this, unless ``PYSPARK_PYTHON`` says otherwise:
    by itself Spark starts whatever ``python3`` it finds, which need not have Anabranch. The setting ``spark.pyspark.python``
    comes before both. The time zone of
    the session stays as it is: TIMESTAMP WITH LOCAL TIME ZONE columns are instants in any zone. Jobs are
    scheduled fairly, so that compaction does not come before the batches of streams. A query whose first batch was
    killed while it began may be started again. With a local master, checkpoints on a local disk are written by a class of ours, which
    is faster than Spark's own and leaves the same files (`spark.sql.streaming.checkpointFileManagerClass`).

    Args:
        warehouse: path or URL of the warehouse.
        catalog: name under which SQL knows the tables: ``lake.db.t``. Through Spark Connect it does not: there
            they are reached through ``format("anabranch")``.
        master: Spark master, for example ``local[4]``; Spark's own default if None.
        remote: address of a Spark Connect server, or ``local[*]`` to start one; excludes `master`.
        app_name: name of the application.
        options: credentials and endpoint of the store.
        conf: further Spark settings, for example ``**{"spark.sql.shuffle.partitions": "8"}``.

    Raises:
        NotFoundError: there is no Java to run Spark on, or nothing listens at the address of the master.
        UnsupportedFeatureError: what Spark Connect needs is not installed.
    """
    from pyspark.sql import SparkSession

    if remote is not None:
        _check_connect()

    builder = SparkSession.builder
    if remote is not None:
        builder = builder.remote(remote)
    if master is not None:
        builder = builder.master(master)
    if app_name is not None:
        builder = builder.appName(app_name)
    if remote is None or remote.startswith("local"):
        _check_java()
    check_master(master or conf.get("spark.master"))
    os.environ.setdefault(_PYTHON_VARIABLE, sys.executable)
    for key, value in {**(_DEFAULTS if remote is None else {}), **conf}.items():
        builder = builder.config(key, value)
    with _python_of_tasks(conf.get(_PYTHON)), no_jvm_left():
        spark = builder.getOrCreate()
    attach(spark, warehouse, catalog=catalog, options=options)
    _speed_up_checkpoints(spark)
    return spark


def _speed_up_checkpoints(spark: SparkSession) -> None:
    """Let queries of a session without executors of their own keep checkpoints on a local disk by our class."""
    context = context_of(spark)
    if (
        context is None
        or not _LOCAL_MASTER.fullmatch(context.master or "")
        or spark.conf.get(_CHECKPOINT_FILES, None)
    ):
        return
    from anabranch.spark.jvm.proxy import Jvm
    from anabranch.spark.native.compiled import NotCompiledError, driver_class

    try:
        spark.conf.set(_CHECKPOINT_FILES, driver_class(Jvm(spark), "LocalCheckpointFiles").getName())
    except NotCompiledError as error:
        _LOG.info("checkpoints are kept as Spark does: %s", error)


@contextmanager
def _python_of_tasks(python: str | None) -> Iterator[None]:
    """Make a session that is started in the block run its tasks with this interpreter.

    Of a session that a program starts PySpark looks at the environment alone, whatever the setting says.
    """
    before = os.environ.get(_PYTHON_VARIABLE)
    if python is not None:
        os.environ[_PYTHON_VARIABLE] = python
    try:
        yield
    finally:
        if python is not None and before is not None:
            os.environ[_PYTHON_VARIABLE] = before


def attach(
    spark: SparkSession,
    warehouse: str,
    *,
    catalog: str = "lake",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """Open the warehouse in a session that exists, classic or of Spark Connect, and return the session.

    Afterwards SQL knows the tables as ``lake.db.t`` (see the page on SQL), and ``format("anabranch")`` reads and writes its tables, and the option ``warehouse`` may be left
    out; ``format("anabranch-kafka")`` reads topics of Kafka. Spark's Python processes must have Anabranch
    installed. Copies that streams make of the session for their batches know its catalogs, and what ``newSession`` makes
    knows the first that was attached. Attaching again replaces the warehouse.

    From now on this process compacts the tables that streams of the session write to, beside their batches and
    unless the option ``write-only`` is set: see `anabranch.spark.tasks.stream_compaction`.

    Args:
        spark: the session.
        warehouse: path or URL of the warehouse.
        catalog: see `session`.
        options: credentials and endpoint of the store.
    """
    known = {**(options or {}), "warehouse": absolute(warehouse)}
    application = spark.conf.get("spark.app.name", None)
    notices = watch(spark)
    answer(spark, notices)
    source = source_with(known, notices=notices, slots=_slots(spark), application=application)
    register(spark, source)
    register(spark, kafka_source_with(known))
    remember(spark, known)
    if context_of(spark) is not None:
        # Made of what needs Py4J, which clients of Spark Connect do not have.
        from anabranch.spark.catalog.format_tables import register_format
        from anabranch.spark.sql.rewrites import understand_hints

        register_format(spark, known)
        understand_hints(spark)
    register_catalog(spark, catalog, known)
    _check_scheduling(spark)
    return spark


def _slots(spark: SparkSession) -> int | None:
    """Return the number of parallel tasks; None through Spark Connect, which does not say."""
    context = context_of(spark)
    return None if context is None else int(context.defaultParallelism)


def _check_scheduling(spark: SparkSession) -> None:
    """Warn, once per application, if compaction may take precedence over the batches it runs beside."""
    context = context_of(spark)
    if context is None or context.applicationId in _CHECKED:
        return
    _CHECKED.add(context.applicationId)
    if context.getConf().get(_SCHEDULING, "FIFO") != "FAIR":
        _LOG.warning(
            "Spark runs its jobs first in, first out: batches of streams that write to Anabranch tables may have to "
            "wait for tasks of compaction. Start Spark with %s=FAIR, as anabranch.spark.session() does, or write with "
            "the option 'write-only' and compact in a job of its own.",
            _SCHEDULING,
        )


def _check_connect() -> None:
    """Check the packages of Spark Connect: without them Spark ends an interactive process as if all were well."""
    for module, package in _CONNECT_PACKAGES.items():
        try:
            import_module(module)
        except ImportError as error:
            raise UnsupportedFeatureError(
                f"Spark Connect needs the package {package}, which is not installed ({error})",
                feature="spark-connect",
                hint="pip install 'pyspark[connect]', or leave out remote=... for a classic session.",
            ) from error


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        program = Path(home) / "bin" / ("java.exe" if os.name == "nt" else "java")
        if not program.is_file():
            raise NotFoundError(
                f"Spark needs Java: JAVA_HOME is '{home}', but there is no {program}",
                hint="point JAVA_HOME at a Java 17 or newer, or unset it if 'java' is on the PATH.",
            )
    elif shutil.which("java") is None:
        raise NotFoundError(
            "Spark needs Java: JAVA_HOME is not set, and no 'java' is on the PATH",
            hint="install Java 17 or newer (Debian: apt install openjdk-17-jre-headless; macOS: brew install "
            "openjdk@17; conda: conda install openjdk=17), or work without Spark: anabranch.connect(warehouse).",
        )
