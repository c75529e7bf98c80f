"""The job of this process in the threads of Spark, which do not know what Python's threads do.

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
    """What the properties say of a run."""

    job: str
    run: str
    code: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """A thread that works for a run."""

    run: JobRun
    thread: Any
    """That of the JVM, in which Spark does what the thread of Python asks for."""
    ident: int
    """Number of the thread of Python."""


WORKERS: Final[list[Worker]] = []
"""The threads that work for runs of this process now."""


@contextmanager
def marked(spark: SparkSession, run: JobRun) -> Iterator[None]:
    """Let what this thread does with a classic session be found to belong to a run."""
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
    """Take part in the run for which Spark calls this process back, if there is one."""
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
    """The run that a task of Spark belongs to, by its ``TaskContext``."""
    return mark_of(task.getLocalProperty(_PROPERTY))


def mark_of(text: str | None) -> Mark | None:
    """What a property says; None if there is none, or it is not ours."""
    try:
        value = json.loads(text or "")
        return Mark(str(value["job"]), str(value["run"]), value["code"])
    except (ValueError, KeyError, TypeError):
        return None
