"""Link between a job of this process and the threads of Spark, which know nothing of Python's threads.

A run that was begun with `Lake.job` is marked in the local properties of Spark's context. Spark hands these from a
thread to those that it starts and to tasks, so that a call back from the JVM finds the run, and a task its name.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark import TaskContext

from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry
from anabranch.lineage.recording import JobRun, current, is_any_open, open_run
from anabranch.options import CODE_VERSION, JOB, LINEAGE_ENTRY
from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.proxy import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "anabranch.job"


@dataclass(frozen=True, slots=True)
class Mark:
    """Job, run and code version as stored in Spark's local properties."""

    job: str
    run: str
    code: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """A thread that works for a run."""

    run: JobRun
    thread: Any
    """JVM thread in which Spark executes the calls of the Python thread."""
    ident: int
    """Identifier of the Python thread."""


WORKERS: Final[list[Worker]] = []
"""Threads that currently work for runs of this process."""


@contextmanager
def marked(spark: SparkSession, run: JobRun) -> Iterator[None]:
    """Mark this thread's work with a classic session as belonging to a run."""
    context = context_of(spark)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_PROPERTY)
    context.setLocalProperty(_PROPERTY, json.dumps({"job": run.name, "run": run.run, "code": run.code}))
    worker = Worker(run, Jvm(spark).of("java.lang.Thread").currentThread(), threading.get_ident())
    WORKERS.append(worker)
    try:
        yield
    finally:
        WORKERS.remove(worker)
        context.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type] # None takes it away


@contextmanager
def taking_part(spark: SparkSession) -> Iterator[JobRun | None]:
    """Join the run for which Spark calls this process back, if there is one."""
    run = current()
    if run is None and is_any_open():
        context = context_of(spark)
        mark = None if context is None else mark_of(context.getLocalProperty(_PROPERTY))
        found = None if mark is None else open_run(mark.run)
        if found is not None:
            with found.joined():
                yield found
            return
    yield run


def mark_of_task(task: Any) -> Mark | None:
    """Return the run that a task of Spark belongs to, by its ``TaskContext``."""
    return mark_of(task.getLocalProperty(_PROPERTY))


def mark_of(text: str | None) -> Mark | None:
    """Parse the mark in a property; None if it is missing or not ours."""
    try:
        value = json.loads(text or "")
        return Mark(str(value["job"]), str(value["run"]), value["code"])
    except (ValueError, KeyError, TypeError):
        return None


# Lineage of a write through the Python data source, as far as its processes know it.
#
# Spark plans and commits such a write in processes of their own, which do not see the plan. What the driver knew travels
# in an option; else the job and the application are known from the tasks, and the sources are not.

_LOG = logging.getLogger(__name__)
_NOT_TOLD = (
    "the rows were written with format('anabranch'), which is not told what they were computed from: "
    "df.writeTo('lake.db.t') is"
)


@dataclass(frozen=True, slots=True)
class Where:
    """Run that a task works for, as far as the task knows."""

    application: str | None
    mark: Mark | None


def here() -> Where | None:
    """Return what this process knows of its run, if it is a task's process."""
    task = TaskContext.get()
    return None if task is None else Where(task.getLocalProperty("spark.app.id"), mark_of_task(task))


@dataclass(frozen=True, slots=True)
class PortableOrigin:
    """Lineage known when a write through the Python data source begins."""

    told: str | None
    """Lineage entry as JSON, if the driver knew it."""
    job: str | None
    code: str | None
    application: str | None
    """Name of the application."""

    @classmethod
    def of(cls, options: Mapping[str, str], application: str | None) -> PortableOrigin:
        """Read it from the options of the write."""
        return cls(LINEAGE_ENTRY.of(options), JOB.of(options), CODE_VERSION.of(options), application)

    def properties(self, where: Where | None) -> Mapping[str, str]:
        """Return the properties for the commit.

        Args:
            where: what one of the tasks knows; None if there was none.
        """
        if self.told is not None:
            return {LINEAGE_PROPERTY: self.told}
        mark = None if where is None else where.mark
        job = self.job or (None if mark is None else mark.job) or self.application or "spark"
        application = None if where is None else where.application
        run = application if mark is None else mark.run
        code = self.code or (None if mark is None else mark.code)
        # Each write has a process of its own, so a warning could not be given once only.
        _LOG.info("lineage of job '%s' is incomplete: %s", job, _NOT_TOLD)
        engine = Engine("spark", pyspark.__version__, application)
        return {LINEAGE_PROPERTY: LineageEntry(job, run, code, engine, (), (_NOT_TOLD,)).to_json()}
