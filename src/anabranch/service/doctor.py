"""Whether this machine has what Anabranch needs, and what to do where it has not."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.storage.open import open_storage

OLDEST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: ``ok``, ``missing`` (an optional part) or ``failed``."""

    name: str
    status: str
    found: str
    remedy: str | None = None


def examine(warehouse: str) -> list[Check]:
    """Look at Python, the libraries, Java, Spark and the warehouse. Writes one probe object and removes it."""
    probes: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _libraries,
        _java,
        _spark,
        lambda: _warehouse(warehouse),
    )
    return [check for probe in probes for check in probe()]


def _python() -> Iterator[Check]:
    version = platform.python_version()
    fine = sys.version_info >= (3, 11)
    yield Check(
        "Python", "ok" if fine else "failed", version, None if fine else "install Python 3.11 or newer."
    )


def _libraries() -> Iterator[Check]:
    for name in ("anabranch", "pyarrow", "polars", "obstore", "fastavro"):
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, "failed", "not installed", f"pip install {name}")


def _java() -> Iterator[Check]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"Spark needs Java {OLDEST_JAVA} or newer: install a JRE, or set JAVA_HOME to one."
    if java is None or not Path(java).exists():
        yield Check("Java", "missing", f"no java {'in JAVA_HOME' if home else 'on the PATH'}", remedy)
        return
    answer = subprocess.run(  # noqa: S603 - the java that Spark would start
        [java, "-version"], capture_output=True, text=True, check=False, timeout=30
    )
    match = re.search(r'version "(\d+)[^"]*"', answer.stderr + answer.stdout)
    fine = match is not None and int(match[1]) >= OLDEST_JAVA
    yield Check(
        "Java", "ok" if fine else "failed", match[0] if match else "unknown version", None if fine else remedy
    )


def _spark() -> Iterator[Check]:
    if util.find_spec("pyspark") is None:
        yield Check("PySpark", "missing", "not installed", "pip install 'anabranch[spark]'")
        return
    version = metadata.version("pyspark") if _has("pyspark") else "unknown version"
    fine = version.startswith(("4.1.", "4.2.", "4.3."))
    yield Check("PySpark", "ok" if fine else "failed", version, None if fine else "use PySpark 4.1 to 4.3.")


def _has(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _warehouse(warehouse: str) -> Iterator[Check]:
    path = ".anabranch-doctor"
    try:
        storage = open_storage(warehouse)
        storage.put(path, b"probe")
        readable = storage.get(path) == b"probe"
        storage.delete(path)
    except AnabranchError as error:
        yield Check(
            "warehouse", "failed", error.message, error.hint or "check the address and your permissions."
        )
        return
    yield Check("warehouse", "ok" if readable else "failed", f"{storage.url} can be read and written")
