"""Check of executors: their interpreter, their packages, and which of the driver's folders they see.

They are asked by a function that takes its code along and needs nothing but Python and Spark, so that executors
without Anabranch can say so.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.runtime import SYSTEM
from anabranch.spark.context.running import context_of
from anabranch.spark.tasks.task_engine import reason_in
from anabranch.storage.open import local_folder
from anabranch.version import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

PACKAGES = ("anabranch", "pyarrow", "polars", "obstore", "fastavro")
"""Packages that tasks import."""
PATIENCE_SECONDS = 8.0
"""Seconds to wait for an executor before the log reports the delay."""
_LOOK_SECONDS = 0.2
_MOST_TASKS = 64
_TAG = "anabranch-executors"
_LOCAL = re.compile(r"local(\[.*)?$")
_ARCHIVE = (
    "send an environment along (--conf spark.archives=environment.tar.gz#environment --conf "
    "spark.pyspark.python=./environment/bin/python)"
)
_ALONG = (
    "send it along (--conf spark.submit.pyFiles=anabranch.zip --conf spark.files=anabranch.zip, or spark-submit --py-files "
    "anabranch.zip)"
)


@dataclass(frozen=True, slots=True)
class Executor:
    """Environment of one Python process of an executor."""

    host: str
    interpreter: str
    python: str
    """Python version."""
    packages: Mapping[str, str]
    """Package versions, by name."""
    missing: Mapping[str, str]
    """Import errors, by package name."""
    unseen: tuple[str, ...]
    """Requested files that the executor does not see."""


Answer = list[Executor] | UnsupportedFeatureError
"""Environments of the executors; or the reason why Spark could not run Python in them."""


def is_cluster(spark: SparkSession) -> bool:
    """Whether tasks run in processes other than the driver, perhaps on other machines; False if unknown."""
    context = context_of(spark)
    return context is not None and _LOCAL.match(str(context.master)) is None


def check_executors(spark: SparkSession, warehouse: str) -> None:
    """Raise an error naming the remedy if executors cannot run our tasks, or do not see the warehouse.

    Asks nothing of a Spark in one process. Where no executor comes, the log says so, and one is waited for, as Spark's
    own jobs would do.

    Raises:
        UnsupportedFeatureError: they lack packages, or cannot run the Python that they are told to.
        InvalidInputError: the warehouse is a folder that is not theirs too.
    """
    if not is_cluster(spark):
        return
    folder = local_folder(warehouse)
    with _marked(folder) as mark:
        asked = _Question(spark, [] if mark is None else [mark])
        found = asked.answer(PATIENCE_SECONDS)
        if found is None:
            _LOG.warning("%s; it is waited for", asked.no_executor)
            found = asked.answer(None)
    assert found is not None, "it was waited for without end"
    problem = problem_of(found)
    if problem is not None:
        raise problem
    blind = _blind(found)
    if blind is not None:
        raise InvalidInputError(
            f"the warehouse is the folder {folder} of this machine, and executors on {blind.host} do not see it: they would "
            "write to disks of their own",
            hint="let all machines share the folder (NFS, say), under the same path, or take an object store: -w "
            "s3://bucket/lake.",
        )


def check_shared(spark: SparkSession, folder: str, *, patience: float = PATIENCE_SECONDS) -> str | None:
    """Return the host of an executor that does not see the driver's folder; None if all that answered do.

    Of a Spark in one process nothing is asked. Raises as `ask_executors`, and what stands against running tasks at all.
    """
    if not is_cluster(spark):
        return None
    with _marked(folder) as mark:
        found = ask_executors(spark, [] if mark is None else [mark], patience=patience)
    problem = problem_of(found)
    if problem is not None:
        raise problem
    blind = _blind(found)
    return None if blind is None else blind.host


@contextmanager
def _marked(folder: str | None) -> Iterator[str | None]:
    """Create a marker file in a folder for the duration of the block; None if that is not possible."""
    mark = None if folder is None else Path(folder, f".anabranch-executors-{SYSTEM.ids.uuid()}")
    try:
        if mark is not None:
            mark.touch()
    except OSError:
        mark = None
    try:
        yield None if mark is None else str(mark.absolute())
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)


def _blind(found: Answer) -> Executor | None:
    executors = found if isinstance(found, list) else []
    return next((executor for executor in executors if executor.unseen), None)


def ask_executors(
    spark: SparkSession, files: Sequence[str] = (), *, patience: float = PATIENCE_SECONDS
) -> Answer:
    """Return the environments of the executors.

    Args:
        spark: a classic session.
        files: of the driver's machine, of which executors say whether they see them.
        patience: seconds to wait for an executor.

    Raises `NotFoundError`: none came in time.
    """
    asked = _Question(spark, files)
    found = asked.answer(patience)
    if found is None:
        asked.cancel()
        raise NotFoundError(
            asked.no_executor,
            hint="the web page of the cluster shows what its workers have; ask for less, such as --conf "
            "spark.executor.memory=1g --conf spark.executor.cores=1, or wait until something is free.",
            retryable=True,
        )
    return found


def problem_of(found: Answer) -> UnsupportedFeatureError | None:
    """Return the error that keeps executors from running our tasks, or None."""
    if isinstance(found, UnsupportedFeatureError):
        return found
    for executor in found:
        if executor.missing:
            return _lacks(executor)
        if executor.packages["anabranch"] != __version__:
            return _differs(executor)
    return None


class _Question:
    """A question to executors, which may answer late; its own thread asks it at once."""

    def __init__(self, spark: SparkSession, files: Sequence[str]) -> None:
        from pyspark import InheritableThread

        context = context_of(spark)
        assert context is not None, "a classic session has one"
        self._context = context
        self._files = tuple(files)
        self._found: Answer | None = None
        self._cancelled = False
        self._thread = InheritableThread(target=self._ask, daemon=True, name=_TAG)
        self._thread.start()

    def answer(self, patience: float | None) -> Answer | None:
        """Return the answer; None if no executor has come within `patience` seconds (None: wait on)."""
        clock = SYSTEM.clock
        deadline = None if patience is None else clock.monotonic() + patience
        while self._thread.is_alive():
            if deadline is not None and clock.monotonic() > deadline and not self._has_executors:
                return None
            self._thread.join(_LOOK_SECONDS)
        return self._found or []

    @property
    def no_executor(self) -> str:
        """Message for users that no executor has come."""
        conf = self._context.getConf()
        keys = ("spark.executor.memory", "spark.executor.cores", "spark.cores.max")
        told = ", ".join(f"{key}={conf.get(key)}" for key in keys if conf.get(key) is not None)
        return (
            f"{self._context.master} has given no executor: none may be free, or none of its workers has what is asked for "
            f"({told or 'the default size'})"
        )

    @property
    def _has_executors(self) -> bool:
        status = self._context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - Python has no word for it
        return int(status.size()) > 1  # the driver is one of them

    def cancel(self) -> None:
        """Cancel the question."""
        self._cancelled = True
        self._context.cancelJobsWithTag(_TAG)

    def _ask(self) -> None:
        context = self._context
        try:
            context.addJobTag(_TAG)
            context.setLocalProperty("spark.job.description", "anabranch: what executors have")
            tasks = max(1, min(int(context.defaultParallelism), _MOST_TASKS))
            look = _look(PACKAGES, self._files)
            answers = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
        except Exception as error:  # of Py4J or of Spark: they have no root in common
            self._found = [] if self._cancelled else _not_run(error, context)
        else:
            self._found = _distinct(answers)


def _distinct(answers: Sequence[Mapping[str, Any]]) -> list[Executor]:
    """Return one executor per machine and interpreter, keeping the answer in which most files are unseen."""
    found: dict[tuple[str, str], Executor] = {}
    for answer in sorted(answers, key=lambda one: (one["host"], one["interpreter"], len(one["unseen"]))):
        executor = Executor(**{**answer, "unseen": tuple(answer["unseen"])})
        found[executor.host, executor.interpreter] = executor
    return list(found.values())


def _look(packages: Sequence[str], files: Sequence[str]) -> Any:
    """Return the function that inspects an executor. It is nested so that it is pickled with its code."""

    def look(_: Iterator[int]) -> Iterator[dict[str, Any]]:
        import importlib
        import importlib.metadata
        import pathlib
        import platform
        import socket
        import sys

        versions, missing = {}, {}
        for name in packages:
            try:
                module = importlib.import_module(name)
            except Exception as error:
                missing[name] = f"{type(error).__name__}: {error}"
                continue
            try:  # of the code that runs: a folder in PYTHONPATH comes before what is installed
                versions[name] = str(getattr(module, "__version__", "")) or importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = "unknown version"
        yield {
            "host": socket.gethostname(),
            "interpreter": sys.executable,
            "python": platform.python_version(),
            "packages": versions,
            "missing": missing,
            "unseen": [file for file in files if not pathlib.Path(file).exists()],
        }

    return look


def check_python_here(python: str | None) -> None:
    """Raise `UnsupportedFeatureError` if the Python that Spark is told to run cannot do our work on the driver's machine.

    Spark starts it there too, to plan what data sources of Python read and write. Asked before Spark is started.

    Args:
        python: path or command; nothing is asked of the one that runs this.
    """
    if python is None or python == sys.executable:
        return
    try:
        done = subprocess.run(  # noqa: S603 - the Python that Spark would start
            [python, "-c", _LOOK_HERE, *PACKAGES],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS_HERE,
        )
        found = json.loads(done.stdout)
    except OSError as error:
        raise UnsupportedFeatureError(
            f"Spark cannot start {python} on this machine ({error.strerror}), where it plans reads and writes by it as "
            "executors run tasks by it",
            feature="executors",
            hint="name a Python that is there on every machine, this one included: --conf spark.pyspark.python=..., or "
            "PYSPARK_PYTHON.",
        ) from None
    except (subprocess.TimeoutExpired, ValueError):
        _LOG.warning("%s could not be asked what it has", python)
        return
    here = Executor(socket.gethostname(), python, found["python"], {}, found["missing"], ())
    wanted = ".".join(platform.python_version_tuple()[:2])
    if not found["python"].startswith(f"{wanted}."):
        raise UnsupportedFeatureError(
            f"Spark is told to run tasks by {python}, which is Python {found['python']}, and this is Python {wanted}: it needs "
            "the same on both sides",
            feature="executors",
            hint=f"name a Python {wanted}: --conf spark.pyspark.python=..., or PYSPARK_PYTHON.",
        )
    if here.missing:
        raise _lacks(here, is_here=True)


_SECONDS_HERE = 30
_LOOK_HERE = """
import importlib, json, platform, sys
missing = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        missing[name] = f"{type(error).__name__}: {error}"
print(json.dumps({"python": platform.python_version(), "missing": missing}))
"""


def _lacks(executor: Executor, *, is_here: bool = False) -> UnsupportedFeatureError:
    names = sorted(executor.missing, key=PACKAGES.index)
    told = "; ".join(f"{name}: {executor.missing[name]}" for name in names)
    install = f"{executor.interpreter} -m pip install {' '.join(_wanted(names))}"
    ways = [f"install there: {install}"]
    if not is_here:
        ways.insert(0, _ARCHIVE)
    if names == ["anabranch"] and not is_here:
        ways.insert(0, _ALONG)
    return UnsupportedFeatureError(
        f"Spark's Python processes cannot do the work of Anabranch: {executor.interpreter} (Python {executor.python}) on "
        f"{executor.host} has no {', '.join(names)} ({told})",
        feature="executors",
        hint=f"{'; or '.join(ways)}.",
    )


def _differs(executor: Executor) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Spark's Python processes run anabranch {executor.packages['anabranch']} ({executor.interpreter} on {executor.host}), and "
        f"this process runs {__version__}: it needs the same on both sides",
        feature="executors",
        hint=f"{_ARCHIVE}; or install there: {executor.interpreter} -m pip install {' '.join(_wanted(['anabranch']))}. A folder in "
        "PYTHONPATH comes before what is installed.",
    )


def _wanted(names: Sequence[str]) -> list[str]:
    return [f"anabranch=={__version__}" if name == "anabranch" else name for name in names]


_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        r'Cannot run program "(?P<one>[^"]+)"',
        "executors cannot start {one}, which is the Python they are told to run",
        "name one that is there on every machine: --conf spark.pyspark.python=/usr/bin/python3, say, or PYSPARK_PYTHON; or "
        + _ARCHIVE
        + ".",
    ),
    (
        r"different version: (?P<one>[\d.]+) than that in driver:? (?P<two>[\d.]+)",
        "executors run Python {one}, and the driver Python {two}: Spark needs the same on both",
        "name one of the driver's version: --conf spark.pyspark.python=/usr/bin/python{two}, say, or PYSPARK_PYTHON; or "
        + _ARCHIVE
        + ".",
    ),
    (
        r"No module named '?(?P<one>pyspark|py4j)",
        "the Python of executors does not find Spark's own package {one}",
        "let SPARK_HOME on the workers be a whole Spark, or pip install pyspark for the Python that they run.",
    ),
)


def _not_run(error: Exception, context: SparkContext) -> Answer:
    """Return why Spark could not run Python in executors; no executors if that is unknown."""
    text = str(error)
    for pattern, message, hint in _FAILURES:
        match = re.search(pattern, text)
        if match is not None:
            found = match.groupdict()
            return UnsupportedFeatureError(
                message.format(**found), feature="executors", hint=hint.format(**found)
            )
    _LOG.warning("executors of %s could not be asked what they have: %s", context.master, reason_in(error))
    return []
