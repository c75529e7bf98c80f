"""Checks of Spark: whether it starts, and what its executors have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.doctor.check import MachineCheck, connector_check
from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import local_root
from anabranch.jobs.local_spark import local_spark
from anabranch.spark.deploy.executors import Executor, ask_executors, check_shared, is_cluster, problem_of
from anabranch.spark.jvm.connectors import Connector, connector_for
from anabranch.storage.open import local_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_checks(warehouse: str, master: str | None, conf: Mapping[str, str]) -> Iterator[MachineCheck]:
    """Check whether Spark starts, which Python executors run, and whether they see what they share with the driver."""
    try:
        with local_spark(
            warehouse, "anabranch doctor", master=master, conf=conf, asks_executors=False
        ) as spark:
            where = spark.sparkContext.master
            yield MachineCheck("Spark", "ok", f"{spark.version} on {where}")
            yield from _executors(spark)
            connector = connector_for(warehouse)
            if connector is not None:
                yield _connector(spark, connector, warehouse)
            yield from _shared(spark, warehouse)
    except AnabranchError as error:
        yield MachineCheck("Spark", "failed", error.message, error.hint)
    except Exception as error:  # of Py4J or of Spark: they have no common base
        yield MachineCheck(
            "Spark",
            "failed",
            f"it does not start: {str(error).strip().partition(chr(10))[0]}",
            "anabranch --debug doctor shows what Spark says.",
        )


def _executors(spark: SparkSession) -> Iterator[MachineCheck]:
    try:
        found = ask_executors(spark)
    except NotFoundError as error:
        yield MachineCheck("executors", "failed", error.message, error.hint)
        return
    problem = problem_of(found)
    if problem is not None:
        yield MachineCheck("executors", "failed", problem.message, problem.hint)
        return
    assert isinstance(found, list), "anything else is a problem"
    for executor in found:
        yield MachineCheck("executors", "ok", _described(executor))


def _described(executor: Executor) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in executor.packages.items())
    return f"{executor.host}: Python {executor.python} ({executor.interpreter}), {packages}"


def _connector(spark: SparkSession, connector: Connector, warehouse: str) -> MachineCheck:
    """Ask the JVM, which knows all jars wherever they come from."""
    scheme = "s3a" if connector.name == "hadoop-aws" else warehouse.partition(":")[0].lower()
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the way to the JVM
    try:
        conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        found = jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
        return connector_check(connector, str(found.getName()), None)
    except Exception:  # of Py4J: there is no such class
        version = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        return connector_check(connector, None, version)


def _shared(spark: SparkSession, warehouse: str) -> Iterator[MachineCheck]:
    """Check whether executors see folders shared with the driver: the warehouse, and checkpoints of stateful jobs."""
    if not is_cluster(spark):
        return
    folder, root = local_folder(warehouse), local_root(warehouse)
    if folder is not None:
        blind = check_shared(spark, folder)
        if blind is None:
            yield MachineCheck("shared disk", "ok", f"executors see the warehouse {folder}")
        else:
            yield MachineCheck(
                "shared disk",
                "failed",
                f"executors on {blind} do not see the folder {folder}, which is the warehouse",
                "let all machines share it (NFS, say), under the same path, or take an object store.",
            )
    elif root is not None:
        there = next(parent for parent in (root, *root.parents) if parent.is_dir())
        blind = check_shared(spark, str(there))
        if blind is None:
            yield MachineCheck("shared disk", "ok", f"executors see the place of checkpoints, {root}")
        else:
            yield MachineCheck(
                "shared disk",
                "warning",
                f"executors on {blind} do not see the place of checkpoints, {root}: jobs without state run, those with state "
                "would keep it each on its own disk and are refused",
                "let ANABRANCH_CHECKPOINTS name a folder that all machines share, or give such jobs --checkpoints "
                "s3a://bucket/folder, with Hadoop's connector.",
            )
