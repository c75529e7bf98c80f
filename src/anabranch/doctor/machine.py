"""Checks whether this machine, the warehouse and Spark are ready for a deployment, and suggests remedies."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anabranch
from anabranch.doctor.check import MachineCheck, connector_check
from anabranch.doctor.warehouse import checkpoint_checks, warehouse_checks
from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import local_root
from anabranch.jobs.local_spark import local_spark
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spark.deploy.executors import Executor, ask_executors, check_shared, is_cluster, problem_of
from anabranch.spark.jvm.connectors import Connector, connector_for, hadoop_version, jars_of_spark
from anabranch.storage.open import local_folder
from anabranch.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST_JAVA = 17
_NEEDED = ("pyarrow", "polars", "numpy", "obstore", "fastavro")
_OPTIONAL = ("pandas", "duckdb", "sqlglot", "confluent-kafka", "boto3")
_JAVA_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Examination:
    """What to examine."""

    warehouse: str
    """Path or URL."""
    read_only: bool = False
    """Whether nothing may be written to the warehouse."""
    master: str | None = None
    """Where to try Spark; it is skipped if neither this nor ``spark.master`` in the settings is given."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""

    @property
    def tries_spark(self) -> bool:
        return self.master is not None or "spark.master" in self.conf


def examine(asked: Examination, *, runtime: Runtime = SYSTEM) -> Iterator[MachineCheck]:
    """Check the system, Python, the libraries, Java, Spark, the warehouse and the place of checkpoints, one after another.

    Some small objects are written to the warehouse and removed again, unless it is read-only.
    """
    yield MachineCheck("system", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield from _python()
    yield from _libraries()
    java = list(_java())
    pyspark = list(_spark())
    yield from (*java, *pyspark)
    yield from warehouse_checks(asked.warehouse, read_only=asked.read_only, runtime=runtime)
    if not asked.read_only:
        yield from checkpoint_checks(asked.warehouse)
    if not asked.tries_spark:
        yield from _connector(asked.warehouse)
    elif all(check.status == "ok" for check in (*java, *pyspark)):
        yield from spark_checks(asked.warehouse, asked.master, asked.conf)
    else:
        yield MachineCheck(
            "Spark", "failed", "not tried, for what it needs is not there", "see Java and PySpark above."
        )


def _python() -> Iterator[MachineCheck]:
    version = platform.python_version()
    fine = sys.version_info >= (3, 11)
    yield MachineCheck(
        "Python", "ok" if fine else "failed", version, None if fine else "install Python 3.11 or newer."
    )


def _libraries() -> Iterator[MachineCheck]:
    yield MachineCheck("anabranch", "ok", build_name())
    for name in _NEEDED:
        version = _version_of(name)
        if version is None:
            yield MachineCheck(name, "failed", "not installed", f"pip install {name}")
        else:
            yield MachineCheck(name, "ok", version)
    for name in _OPTIONAL:
        version = _version_of(name)
        if version is not None:
            yield MachineCheck(name, "ok", version)


def _java() -> Iterator[MachineCheck]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"Spark needs Java {OLDEST_JAVA} or newer: install a JRE, or set JAVA_HOME to one."
    if java is None or not Path(java).exists():
        yield MachineCheck("Java", "missing", f"no java {'in JAVA_HOME' if home else 'on the PATH'}", remedy)
        return
    try:
        answer = subprocess.run(  # noqa: S603 - the java that Spark would start
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield MachineCheck("Java", "failed", f"{java} cannot be run: {error}", remedy)
        return
    match = re.search(r'version "(\d+)[^"]*"', answer.stderr + answer.stdout)
    fine = match is not None and int(match[1]) >= OLDEST_JAVA
    yield MachineCheck(
        "Java", "ok" if fine else "failed", match[0] if match else "unknown version", None if fine else remedy
    )


def _spark() -> Iterator[MachineCheck]:
    if util.find_spec("pyspark") is None:
        yield MachineCheck("PySpark", "missing", "not installed", "pip install 'anabranch[spark]'")
        return
    version = _version_of("pyspark") or "unknown version"
    fine = version.startswith(("4.1.", "4.2.", "4.3."))
    yield MachineCheck(
        "PySpark", "ok" if fine else "failed", version, None if fine else "use PySpark 4.1 to 4.3."
    )


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _connector(warehouse: str) -> Iterator[MachineCheck]:
    """Check whether Spark's Parquet reader reaches the warehouse: optional, judged by the jars in Spark's folder."""
    connector, jars = connector_for(warehouse), jars_of_spark()
    if connector is None or jars is None:
        return
    found = sorted(jars.glob(f"{connector.name}-*.jar"))
    yield connector_check(connector, found[0].name if found else None, hadoop_version(jars))


_SHOWN = 12
"""Digits of a commit that are shown."""


def build_name() -> str:
    """Return the version; between releases with the commit, where pip or the clone that the code runs from tells it."""
    commit = (_of_pip() or _of_clone()) if ".dev" in __version__ else None
    return f"{__version__} (commit {commit[:_SHOWN]})" if commit else __version__


def _of_pip() -> str | None:
    """Return the commit that pip installed from a repository (PEP 610)."""
    try:
        text = metadata.distribution("anabranch").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    return commit if isinstance(commit, str) else None


def _of_clone() -> str | None:
    """Return what HEAD of the clone is, without a program; None if the package is not in one."""
    root = Path(anabranch.__file__).parents[2]
    try:
        if not (root / "pyproject.toml").is_file():
            return None
        git = root / ".git"
        if git.is_file():  # a work tree beside the clone
            git = root / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        if (shared / name).is_file():
            return (shared / name).read_text().strip()
        packed = (line.split() for line in (shared / "packed-refs").read_text().splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), None)
    except (OSError, UnicodeDecodeError):
        return None


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
                yield _connector_found(spark, connector, warehouse)
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


def _connector_found(spark: SparkSession, connector: Connector, warehouse: str) -> MachineCheck:
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
