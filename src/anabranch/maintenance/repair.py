"""Repairs a table: verify, name the steps, carry them out, verify again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anabranch.engine import Engine
from anabranch.format.records.layout import ORPHANS_FOLDER, snapshot_id_of
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import is_main_known, main_as_far_as_known
from anabranch.kernel.repair.found import Act, Kind, Problem, RepairStep
from anabranch.kernel.repair.main_gone import plan_main
from anabranch.kernel.repair.mend_records import plan_bits, plan_forks, plan_records
from anabranch.kernel.repair.mend_refs import plan_refs, plan_schemas
from anabranch.kernel.repair.pointers import plan_pointers
from anabranch.kernel.repair.repair import (
    Repair,
    files_to_restore,
    plan_branch,
    plan_pins,
)
from anabranch.maintenance.verify import looked_over

Progress = Callable[[str], None]


def repair(
    context: TableContext,
    *,
    dry_run: bool = False,
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
) -> Repair:
    """Fix what `verify` finds in a table. See `Table.repair`."""
    steps: list[RepairStep] = []
    found, looked = looked_over(context, engine=engine, progress=progress)
    if looked is None:
        return Repair(context.name, (), found.problems, dry_run)
    problems = list(found.problems)
    lost: list[Problem] = []

    def refs(context: TableContext, problems: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
        return plan_refs(context, () if looked is None else looked.states, problems)

    def main_again(context: TableContext, _: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
        return plan_main(context, () if looked is None else looked.states, lost)

    def records(context: TableContext, problems: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
        return plan_records(context, () if looked is None else looked.states, problems)

    def schemas(context: TableContext, problems: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
        return plan_schemas(context, () if looked is None else looked.states, problems)

    for plan in (_files, plan_bits, plan_pointers, plan_forks, refs, main_again, schemas, records):
        done = _carried_out(plan(context, problems), steps, dry_run=dry_run)
        if dry_run and plan in (_files, plan_bits):
            # The file will be what it was, and a repair that looks again finds nothing more to do about it.
            mended = {step.path for step in steps}
            problems = [problem for problem in problems if problem.path not in mended]
        if done:
            context = main_as_far_as_known(context.on_branch(None))
            found, looked = looked_over(context, engine=engine, progress=progress)
            problems = list(found.problems)
            assert looked is not None, "it had a schema before"
        if plan is plan_pointers and not is_main_known(context):
            # What belongs to main and what does not is not known before, so nothing else is done.
            mended = {step.path for step in steps}
            return Repair(
                context.name, tuple(steps), tuple(p for p in problems if p.path not in mended), dry_run
            )
    main = main_as_far_as_known(context)
    for name in dict.fromkeys([main.branch, None, *branch_names(main)]):
        branch = main if name == main.branch else main.on_branch(name)
        plans = plan_branch(branch, looked, problems)
        _carried_out(plans, steps, dry_run=dry_run)
    _carried_out(plan_pins(main, problems), steps, dry_run=dry_run)
    if dry_run:
        mended = {step.path for step in steps}
        left = tuple(p for p in problems if p.path not in mended)
    else:
        left = (
            looked_over(main_as_far_as_known(context), engine=engine, progress=progress)[0].problems
            if steps
            else found.problems
        )
    return Repair(context.name, tuple(steps), (*lost, *_still_gone(main, problems, steps), *left), dry_run)


def _still_gone(main: TableContext, problems: list[Problem], steps: list[RepairStep]) -> Iterator[Problem]:
    """Yield problems of newest snapshots that could not be recreated: with the hint reset, nothing else shows them."""
    for problem in problems:
        if problem.kind is not Kind.HEAD_GONE or problem.snapshot_id is None:
            continue
        branch = main if problem.branch == main.branch else main.on_branch(problem.branch)
        head = branch.snapshots.head()
        folder = f"{branch.layout.snapshot_folder}/"
        restored = (snapshot_id_of(step.path) or 0 for step in steps if step.path.startswith(folder))
        newest = max((0 if head is None else head.id, *restored))
        if newest < problem.snapshot_id:
            first, last = newest + 1, problem.snapshot_id
            gone = f"snapshot {last}" if first == last else f"snapshots {first} to {last}"
            message = (
                f"{gone} of '{branch.title}' cannot be made again, too little is left; unless the hint to the newest "
                "snapshot was wrong, what was committed there is lost"
            )
            yield replace(problem, message=message, repair=None)


def _carried_out(plans: Iterator[tuple[RepairStep, Act]], steps: list[RepairStep], *, dry_run: bool) -> bool:
    """Carry out steps; return whether anything was done. A plan builds on the steps before, so each runs when named."""
    done = False
    for step, act in plans:
        if dry_run or act():
            steps.append(step)
            done = not dry_run
    return done


def _files(context: TableContext, problems: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    for step, moves in files_to_restore(context, problems, ORPHANS_FOLDER):

        def act(moves: dict[str, str] = dict(moves)) -> bool:  # noqa: B006
            context.storage.move_many(moves)
            return True

        yield step, act
