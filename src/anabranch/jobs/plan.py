"""Several jobs as a pipeline: which of them feeds which, and in what order they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from anabranch.errors import InvalidInputError, NotFoundError, did_you_mean
from anabranch.jobs.job import Job


def chosen(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Return the jobs of these names, in the order of their declaration; all of them if none are named.

    Raises `NotFoundError` naming those there are.
    """
    known = {job.name: job for job in jobs}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"declared are: {', '.join(known)}.")
            raise NotFoundError(f"there is no job '{name}'", hint=hint)
    return [job for job in jobs if not names or job.name in names]


def feeds(jobs: Sequence[Job]) -> dict[str, frozenset[str]]:
    """Return, by the name of a job, those whose sinks it reads."""
    writers: dict[str, list[str]] = {}
    for job in jobs:
        writers.setdefault(job.sink, []).append(job.name)
    return {
        job.name: frozenset(name for table in job.tables for name in writers.get(table, ())) for job in jobs
    }


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs so that each comes after those that feed it, otherwise as they were declared.

    Raises `InvalidInputError` if jobs feed each other in a circle.
    """
    by_name: Mapping[str, Job] = {job.name: job for job in jobs}
    place = {job.name: number for number, job in enumerate(jobs)}
    sorter = TopologicalSorter(feeds(jobs))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = error.args[1]
        named = " -> ".join(circle)
        what = "reads its own sink" if len(circle) == 2 else f"feed each other in a circle: {named}"
        who = str(by_name[circle[0]]) if len(circle) == 2 else "jobs"
        raise InvalidInputError(
            f"{who} {what}", hint="what a job writes would come back to it for ever: write to another table."
        ) from None
    ordered: list[Job] = []
    ready = list(sorter.get_ready())
    while ready:
        ready.sort(key=place.__getitem__)
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
        ready += sorter.get_ready()
    return ordered
