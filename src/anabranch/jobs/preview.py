"""What a start of jobs would do: their order, and whether each goes on with its checkpoint. Nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.jobs.deployment import StartChanges, changes, deployed, deployment_of, renew_hint
from anabranch.jobs.frames import SourceReading, made_by
from anabranch.jobs.job import Job
from anabranch.jobs.prepare import Run, goes_on_at, sink_of
from anabranch.jobs.starts import resumed
from anabranch.lake import Lake, connect
from anabranch.lineage.code_version import code_version


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job, in start order."""

    job: str
    sink: str
    sources: tuple[str, ...]
    after: tuple[str, ...]
    """Jobs that feed it."""
    trigger: str
    place: str
    changes: tuple[str, ...] = ()
    """What has changed since its last start, and where it begins if it does not go on with a checkpoint."""
    fits: bool = True
    """Whether it can start: False if its checkpoint does not fit it any more."""
    hint: str | None = None
    """What to do if it does not."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known of a job's next start."""

    changes: StartChanges
    is_renewed: bool = False
    needs_spark: bool = False
    """Whether only its plan in Spark tells if the operators with state are the same."""


def planned_job(job: Job, after: Collection[str], found: Preview) -> PlannedJob:
    """Put together what is told of a job."""
    fits = found.changes.fits or found.is_renewed
    return PlannedJob(
        job.name,
        job.sink,
        tuple(f"{name}: {source}" for name, source in job.sources.items()),
        tuple(sorted(after)),
        str(job.trigger),
        str(job.place),
        found.changes.told,
        fits,
        None if fits else renew_hint(job.name),
    )


def preview(job: Job, warehouse: str, how: Run, spark_lake: Lake | None = None) -> Preview:
    """Compare a job with its last start.

    Args:
        warehouse: path or URL; it need not be there yet.
        how: branch and checkpoint.
        spark_lake: the warehouse with a session, to see the operators with state; None to look without.
    """
    try:
        lake = connect(warehouse)
        checkpoint = goes_on_at(job, lake, how)
        if not checkpoint.is_in_use:
            return Preview(StartChanges((_beginning(job, lake, how, checkpoint.location),)))
        before = deployed(checkpoint)
        if before is None:
            return Preview(StartChanges(("it is not known what it was when it last started",)))
        now = deployment_of(job, lake, code_version(Path(job.place.file)), None)
    except NotFoundError as error:  # the start may make a branch, and somebody a table before it
        return Preview(StartChanges((f"still to be made: {error.message}",)))
    is_other = before.definition is None or before.definition != now.definition
    if spark_lake is not None:
        now = replace(now, state=_state(job, spark_lake, how))
    found = changes(before, now, knows_state=spark_lake is not None)
    if is_other and spark_lake is None and found.fits:
        told = (*found.told, "whether its operators with state are the same, only Spark can tell")
        return Preview(replace(found, told=told), job.name in how.renew, needs_spark=True)
    return Preview(found, job.name in how.renew)


def _state(job: Job, lake: Lake, how: Run) -> tuple[str, ...] | None:
    from anabranch.jobs.state.operators import operators_of

    rows = made_by(job, SourceReading(lake, how.source_branches)).rows
    return deployment_of(job, lake, None, operators_of(rows, None)).state


def _beginning(job: Job, lake: Lake, how: Run, place: str) -> str:
    """Return where a job without a checkpoint begins."""
    if how.from_tag is not None:
        return f"it begins at the source positions of tag '{how.from_tag}'"
    sink = sink_of(job, lake, replace(how, create_branch=False))
    if job.name in how.start_anew:
        return "it begins as it is declared"
    try:
        found = resumed(job, lake, sink, how.places, place, since_fork=False)
    except InvalidInputError as error:
        return f"it cannot start: {error.message}"
    except AnabranchError as error:
        return f"where it begins is not known: {error.message}"
    return "it begins as it is declared" if found is None else "; ".join(found.notices)
