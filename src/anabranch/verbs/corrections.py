"""Verbs that correct several tables as one: from a tag, after a replacement of main, and by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.errors import InvalidInputError
from anabranch.verbs.answer import Answer
from anabranch.verbs.caller import Caller
from anabranch.verbs.corrected import COLUMNS, Told, planned
from anabranch.verbs.groups import CORRECTIONS, groups_made
from anabranch.verbs.parameters import (
    AcceptEmptyState,
    ByHand,
    Checkpoint,
    Checkpoints,
    Conf,
    Hold,
    JobFiles,
    Master,
    MaxRestarts,
    Reason,
    settings,
)
from anabranch.verbs.subject import TABLE_NAME
from anabranch.verbs.verb import Called, Confirm, argument, option, verb

if TYPE_CHECKING:
    from anabranch.cascade import CascadePlan, CascadeResult
    from anabranch.jobs.job import Job
    from anabranch.jobs.underway import Underway
    from anabranch.kernel.replacement.result import GroupResult
    from anabranch.lake import Lake
    from anabranch.runtime import Runtime


Plan = Annotated[
    bool, option("Only say what would be done, table by table; the default.", "--plan", sql=None)
]
Run = Annotated[bool, option("Do it, and publish all tables at once.", "--run")]
# Not in SQL: whoever sends statements must not run commands on the driver.
HookCommand = Annotated[
    str | None,
    option(
        "Run this when it is published, taken back or has failed; what happened is in ANABRANCH_EVENT.",
        "--hook",
        metavar="COMMAND",
        sql=None,
    ),
]


@verb(CORRECTIONS, "Lake.correct", columns=COLUMNS, changes=True, shows_itself=True)
def correct(
    table: Annotated[str, TABLE_NAME],
    from_tag: Annotated[str, option("Tag of the table up to which it is right.", "--from-tag")],
    jobs: JobFiles = None,
    checks: Annotated[
        str | None, option("File of checks that the corrected table must pass to be published.")
    ] = None,
    plan: Plan = False,
    run: Run = False,
    name: Annotated[
        str | None, option("Of the branches. Another name begins the same correction anew.")
    ] = None,
    undo: Annotated[bool, option("Take back what it published.", "--undo")] = False,
    hold: Hold = False,
    by_hand: ByHand = None,
    checkpoint: Checkpoint = None,
    checkpoints: Checkpoints = None,
    accept_empty_state: AcceptEmptyState = None,
    max_restarts: MaxRestarts = 10,
    master: Master = None,
    conf: Conf = None,
    reason: Reason = None,
    hook: HookCommand = None,
    only: Annotated[
        list[str] | None,
        option("Do nothing if main of another table than these would change; may be repeated.", "--only"),
    ] = None,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Correct a table from a tag, and all that was made from it, and publish them together.

    A branch of each table begins where it was right, the corrected jobs run on it, the checks decide, and one write puts
    all branches in the place of main. Run again after a failure or a kill it goes on where it was.

    Exits with 1 if a job failed or something is to be done by hand, with 3 if something stands against it, with 4 if another process
    carries it out.
    """
    from anabranch.cascade import (
        CascadeOptions,
        check_options,
        plan_correction,
        run_correction,
        undo_correction,
    )

    if sum([plan, run, undo]) > 1:
        raise InvalidInputError("--plan, --run and --undo are different things", hint="give one of them.")
    lake, told = caller.lake(), Told(table, hook)
    with told.of_errors() if run or undo else nullcontext():
        if undo:
            ask(f"take back the correction of {table} in all of its tables?")
            return told.undone(undo_correction(lake, table, from_tag, name=name, by=caller.by, reason=reason))
        if caller.is_of_sql and not jobs:
            raise InvalidInputError(
                f"'{table}' cannot be corrected without jobs",
                hint="write jobs => 'jobs.py', the corrected jobs.",
            )
        checked = [
            *(("--checks", checks) if checks else ()),
            *(word for one in only or () for word in ("--only", one)),
        ]
        kept = _kept(checkpoint, checkpoints)
        declared = _declared(caller, jobs, master if run else None, conf if run else None)

        def plan_now() -> CascadePlan:
            return plan_correction(
                *(lake, table, from_tag, declared), name=name, checkpoint=checkpoint, checkpoints=checkpoints
            )

        if not run:
            return planned(plan_now(), jobs, [*checked, *kept])
        if not hold:
            ask(f"correct {table} and what was made from it, and publish it?")
        options = CascadeOptions(
            publish=not hold,
            by_hand=tuple(by_hand or ()),
            accept_empty_state=tuple(accept_empty_state or ()),
            by=caller.by,
            reason=reason,
            only=only,
            checkpoint=checkpoint,
            checkpoints=checkpoints,
        )

        def carry_out(lake: Lake, **how: Any) -> CascadeResult:
            return run_correction(lake, table, from_tag, declared, options, name=name, checks=checks, **how)

        check_options(to_do := plan_now(), options)
        made = _on_spark(caller, f"correct {table}", carry_out, (master, conf, max_restarts), to_do)
        return told.corrected(made, jobs, checked, kept)


@verb(CORRECTIONS, "Lake.correct", columns=COLUMNS, changes=True, shows_itself=True)
def cascade(
    table: Annotated[
        str | None,
        argument("The table that was corrected: its main was replaced.", "[DB.TABLE]", sql=None),
    ] = None,
    jobs: JobFiles = None,
    plan: Plan = False,
    run: Run = False,
    undo: Annotated[
        str | None,
        option("Take back what was published: its number, or 'last'.", "--undo", metavar="GROUP", sql=None),
    ] = None,
    undone: Annotated[
        bool, option("Take back what was published, in all tables at once.", sql="undo", in_command=False)
    ] = False,
    groups: Annotated[
        bool, option("List what was published in several tables at once.", "--groups", sql=None)
    ] = False,
    hold: Hold = False,
    by_hand: ByHand = None,
    audit: Annotated[
        list[str] | None,
        option("db.table=checks.yml: checks that its branch must pass; may be repeated.", sql=None),
    ] = None,
    checkpoint: Checkpoint = None,
    checkpoints: Checkpoints = None,
    accept_empty_state: AcceptEmptyState = None,
    max_restarts: MaxRestarts = 10,
    master: Master = None,
    conf: Conf = None,
    reason: Reason = None,
    hook: HookCommand = None,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Correct what was made from a table after its main was replaced: each table on a branch, published all at once.

    Run again after a failure it goes on where it was.

    Exits with 1 if a job failed or something is to be done by hand, with 3 if something stands against it, with 4 if another process
    carries it out.
    """
    from anabranch.cascade import CascadeOptions, check_options, plan_cascade, run_cascade

    if sum([plan, run, undo is not None or undone, groups]) > 1:
        raise InvalidInputError(
            "--plan, --run, --undo and --groups are different things", hint="give one of them."
        )
    lake, told = caller.lake(), Told(table, hook)
    with told.of_errors() if run or undo is not None or undone else nullcontext():
        if groups:
            return groups_made(lake)
        if undo is not None or undone:
            return told.undone(_undo(lake, table, "last" if undo is None else undo, reason, ask, caller))
        if table is None:
            raise InvalidInputError(
                "it is not said which table was corrected", hint="name it: cascade db.orders."
            )
        kept = _kept(checkpoint, checkpoints)
        declared = _declared(caller, jobs, master if run else None, conf if run else None)

        def plan_now() -> CascadePlan:
            return plan_cascade(lake, table, declared, checkpoint=checkpoint, checkpoints=checkpoints)

        if not run:
            return planned(plan_now(), jobs, kept)
        if not hold:
            ask(f"correct what was made from {table}, and publish it?")
        options = CascadeOptions(
            *(not hold, tuple(by_hand or ()), settings(audit), tuple(accept_empty_state or ())),
            *(caller.by, reason),
            checkpoint=checkpoint,
            checkpoints=checkpoints,
        )

        def carry_out(lake: Lake, **how: Any) -> CascadeResult:
            return run_cascade(lake, table, declared, options, **how)

        check_options(to_do := plan_now(), options)
        made = _on_spark(caller, f"cascade {table}", carry_out, (master, conf, max_restarts), to_do)
        return told.corrected(made, jobs, kept=kept)


def _kept(checkpoint: str | None, checkpoints: str | None) -> list[str]:
    """Return the words by which commands are told where checkpoints are."""
    given = {"--checkpoint": checkpoint, "--checkpoints": checkpoints}
    return [word for flag, value in given.items() if value is not None for word in (flag, value)]


def planned_correction(warehouse: str, table: str, tag: str, files: Sequence[str]) -> CascadePlan:
    """Return what a correction would do. Raises what `plan_correction` raises, and what loading the files does."""
    from anabranch.cascade import plan_correction  # loads Spark's Python, which most pages never need

    caller = Caller(warehouse)
    return plan_correction(caller.lake(), table, tag, _declared(caller, files, None, None))


def underway(lake: Lake, runtime: Runtime) -> list[Underway]:
    """Return the corrections that processes carry out now; see `anabranch.jobs.underway`."""
    from anabranch.jobs.underway import underway as found

    return found(lake, runtime)


def _undo(
    lake: Lake,
    table: str | None,
    number: str,
    reason: str | None,
    ask: Callable[[str], None],
    caller: Caller,
) -> GroupResult:
    from anabranch.cascade import undo_cascade

    if number != "last" and not number.isdigit():
        raise InvalidInputError(
            f"'{number}' is no number of a group",
            hint="`anabranch cascade --groups` lists them; or write 'last'.",
        )
    ask(f"take back group {number} in all of its tables?")
    group = None if number == "last" else int(number)
    return undo_cascade(lake, group, table=table, by=caller.by, reason=reason)


def _declared(
    caller: Caller, files: Sequence[str] | None, master: str | None, conf: Sequence[str] | None
) -> list[Job]:
    """Return the jobs of some files; Spark is started for those that cannot be loaded without it."""
    from anabranch.jobs.command import Spark, declared

    spark = Spark(master, settings(conf), loud=caller.is_loud)
    return declared(files, warehouse=caller.warehouse, spark=spark) if files else []


def _on_spark(
    caller: Caller,
    what: str,
    carry_out: Callable[..., CascadeResult],
    how: tuple[str | None, Sequence[str] | None, int],
    to_do: CascadePlan,
) -> CascadeResult:
    """Carry it out in the session of a procedure, or with a Spark that is started if a job is to run.

    Raises `JobTakenError`: another process carries it out.
    """
    if to_do.is_done or caller.is_of_sql:
        return carry_out(caller.lake())
    from anabranch.cascade import on_spark
    from anabranch.jobs.command import check_spark
    from anabranch.jobs.local_spark import local_spark
    from anabranch.jobs.signals import stopping
    from anabranch.jobs.task import Policy
    from anabranch.jobs.underway import CorrectionScope, carried_out
    from anabranch.lake import connect

    check_spark()
    master, conf, max_restarts = how
    what_for = CorrectionScope(to_do.name, to_do.table, to_do.tag, to_do.tables)
    with (  # held before Spark starts, which takes seconds
        carried_out(caller.lake(), what_for, caller.say) as tell,
        caller.statuses(changes=False) as shown,
        stopping() as stop,
        local_spark(
            caller.warehouse,
            f"anabranch {what}",
            master=master,
            conf=settings(conf),
            quiet=not caller.is_loud,
        ) as session,
    ):
        policy = Policy(most=max_restarts)
        runner = on_spark(stop, policy=policy, on_status=shown.update, on_event=shown.trace)
        return carry_out(connect(caller.warehouse, spark=session), runner=runner, stop=stop, tell=tell)
