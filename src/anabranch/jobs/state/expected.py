"""Predicts, before Spark is started, how a job will most likely get its state."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.jobs.checkpoint import checkpoints_of
from anabranch.jobs.job import Job
from anabranch.jobs.state.held import held_state, query_of
from anabranch.jobs.state.point import Point


def expected_state(warehouse: str, options: Mapping[str, str], job: Job, point: Point | None) -> str | None:
    """Return how a job gets the state for a point; None if it seems to keep none.

    The operators of the job are known once it runs: only then it is certain whether they are the same.
    """
    if point is None:
        return None
    former = next(
        (one for one in checkpoints_of(warehouse, job.name, options) if query_of(one.storage) == point.query),
        None,
    )
    if former is None:
        return "if it keeps state: rebuilt from its sources, because its former checkpoint is not there"
    if next(iter(former.storage.list_folders("state")), None) is None:
        return None
    if job.mode == "complete":
        return "from the beginning: all rows are made again"
    held = held_state(former.storage, point.batch)
    if isinstance(held, str):
        return f"rebuilt from its sources: {held}"
    return f"carried from batch {point.batch}, or rebuilt from its sources if the operators with state have changed"
