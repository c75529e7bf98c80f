"""Corrections from a tag, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.cascade import on_spark, plan_correction, run_correction, undo_correction
from anabranch.cascade.run import CascadeOptions
from anabranch.jobs.run import stopping
from anabranch.jobs.supervise import Policy
from anabranch.kernel.replacement.group_result import GroupResult
from anabranch.lake import connect
from anabranch.service.branches import user
from anabranch.service.cascade import (
    CascadePlan,
    CascadeResult,
    command_of,
    told_group,
    told_plan,
    told_result,
)
from anabranch.service.jobs import JobStatus, Spark, check_spark, declared
from anabranch.service.local_spark import local_spark

if TYPE_CHECKING:
    from anabranch.jobs.status import RunEvent

__all__ = [
    "Correction",
    "Spark",
    "command_of",
    "plan",
    "run",
    "told_group",
    "told_plan",
    "told_result",
    "undo",
]


@dataclass(frozen=True, slots=True)
class Correction:
    """What to correct, and how."""

    table: str
    from_tag: str
    files: Sequence[str] = ()
    """Files that declare the jobs."""
    name: str | None = None
    """Name of the branches."""
    checks: str | None = None
    publish: bool = True
    by_hand: Sequence[str] = ()
    accept_empty_state: Sequence[str] = ()
    max_restarts: int = 10
    reason: str | None = None


def plan(warehouse: str, wanted: Correction) -> CascadePlan:
    """Return what the correction would do. Raises what `plan_correction` and `load` raise."""
    jobs = declared(wanted.files, warehouse=warehouse) if wanted.files else []
    return plan_correction(connect(warehouse), wanted.table, wanted.from_tag, jobs, name=wanted.name)


def run(
    warehouse: str,
    wanted: Correction,
    spark: Spark,
    *,
    tell: Callable[[str], None],
    on_status: Callable[[Sequence[JobStatus]], None],
    on_event: Callable[[RunEvent], None] = lambda _: None,
) -> CascadeResult:
    """Run it in the name of the logged-in user; Spark is started only if needed. Raises as `run_correction`."""
    jobs = declared(wanted.files, warehouse=warehouse, spark=spark) if wanted.files else []
    options = CascadeOptions(
        publish=wanted.publish,
        by_hand=tuple(wanted.by_hand),
        accept_empty_state=tuple(wanted.accept_empty_state),
        by=user(),
        reason=wanted.reason,
    )
    table, tag, name = wanted.table, wanted.from_tag, wanted.name
    if plan_correction(connect(warehouse), table, tag, jobs, name=name).is_done:
        return run_correction(connect(warehouse), table, tag, jobs, options, name=name)
    check_spark()
    with (
        stopping() as stop,
        local_spark(
            warehouse,
            f"anabranch correct {table}",
            master=spark.master,
            conf=spark.conf,
            quiet=not spark.loud,
        ) as session,
    ):
        policy = Policy(most=wanted.max_restarts)
        runner = on_spark(stop, policy=policy, on_status=on_status, on_event=on_event)
        lake = connect(warehouse, spark=session)
        return run_correction(
            lake,
            table,
            tag,
            jobs,
            options,
            name=name,
            checks=wanted.checks,
            runner=runner,
            stop=stop,
            tell=tell,
        )


def undo(warehouse: str, wanted: Correction) -> GroupResult:
    """Undo it, in the name of the logged-in user. Raises as `undo_correction`."""
    return undo_correction(
        connect(warehouse),
        wanted.table,
        wanted.from_tag,
        name=wanted.name,
        by=user(),
        reason=wanted.reason,
    )
