"""Link between a job of this process and the threads of Spark, which know nothing of Python's threads.

A run that was begun with `Lake.job` is marked in the local properties of Spark's context. Spark hands these from a
thread to those that it starts and to tasks, so that a call back from the JVM finds the run, and a task its name.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.lineage.recording import JobRun, current, is_any_open, open_run
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
