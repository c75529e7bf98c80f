"""Continuous compaction by rounds, without the thread that a stream compacts in."""

from anabranch.kernel.compaction.coordinator import TaskEnd
from anabranch.maintenance.compact import CompactionResult
from anabranch.maintenance.rewrites import carry_out


def compact_round(context, coordinator, engine):
    """One round of continuous compaction: whatever is worth it now, if anything."""
    coordinator.observe()
    tasks = coordinator.tasks(None)
    if not tasks:
        return CompactionResult()
    try:
        outcome = carry_out(context, {}, tasks, engine=engine, description={"compaction": "continuous"})
    except BaseException:
        for task in tasks:
            coordinator.done(task, TaskEnd.FAILED)
        raise
    for one in outcome.committed:
        coordinator.done(one.task, TaskEnd.COMMITTED)
    for task in outcome.given_up:
        coordinator.done(task, TaskEnd.GIVEN_UP)
    return CompactionResult.of(outcome)
