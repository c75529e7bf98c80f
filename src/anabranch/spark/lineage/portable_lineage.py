"""Lineage of a write through the Python data source, as far as its processes know it.

Spark plans and commits such a write in processes of their own, which do not see the plan. What the driver knew travels
in an option; else the job and the application are known from the tasks, and the sources are not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pyspark
from pyspark import TaskContext

from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry
from anabranch.options import CODE_VERSION, JOB, LINEAGE_ENTRY
from anabranch.spark.lineage.job_marks import Mark, mark_of_task

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
