"""The verb correct."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import (
    AcceptEmptyState,
    AsJson,
    ByHand,
    Conf,
    Hold,
    JobFiles,
    Master,
    MaxRestarts,
    Reason,
    TableName,
    Yes,
    confirm,
    settings,
)
from anabranch.cli.cascade import show
from anabranch.cli.job_statuses import ShownStatuses
from anabranch.cli.output import say
from anabranch.errors import InvalidInputError

_FAILED = 1


def register(app: typer.Typer) -> None:
    """Add this verb to the command line."""
    app.command()(correct)


def correct(
    table: TableName,
    from_tag: Annotated[str, typer.Option("--from-tag", help="Tag of the table up to which it is right.")],
    jobs: JobFiles = None,
    checks: Annotated[
        str | None, typer.Option(help="File of checks that the corrected table must pass to be published.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would be done, table by table; the default.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Do it, and publish all tables at once.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what it published.")] = False,
    hold: Hold = False,
    name: Annotated[
        str | None,
        typer.Option(help="Of the branches. Another name begins the same correction anew."),
    ] = None,
    by_hand: ByHand = None,
    accept_empty_state: AcceptEmptyState = None,
    max_restarts: MaxRestarts = 10,
    master: Master = None,
    conf: Conf = None,
    reason: Reason = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Correct a table from a tag, and all that was made from it, and publish them together.

    A branch of each table begins where it was right, the corrected jobs run on it, the checks decide, and one write puts
    all branches in the place of main. Run again after a failure or a kill it goes on where it was.

    Exits with 1 if a job failed or something is to be done by hand, with 3 if something stands against it.
    """
    from anabranch.service import correct as service

    if sum([plan, run, undo]) > 1:
        raise InvalidInputError("--plan, --run and --undo are different things", hint="give one of them.")
    wanted = service.Correction(
        table,
        from_tag,
        jobs or (),
        name,
        checks,
        not hold,
        by_hand or (),
        accept_empty_state or (),
        max_restarts,
        reason,
    )
    if undo:
        confirm(f"take back the correction of {table} in all of its tables?", yes=yes or json)
        made = service.undo(state.warehouse, wanted)
        show(made, service.told_group(made), json=json)
        return
    if not run:
        planned = service.plan(state.warehouse, wanted)
        show(planned.to_dict(), service.told_plan(planned, wanted.files), json=json)
        return
    confirm(f"correct {table} and what was made from it, and publish it?", yes=yes or json or hold)
    with ShownStatuses(json=json, tells_failures=False) as shown:
        result = service.run(
            state.warehouse,
            wanted,
            service.Spark(master, settings(conf), loud=state.debug),
            tell=lambda line: None if json else say(line),
            on_status=lambda statuses: None if json else shown.update(statuses),
            on_event=shown.trace,
        )
    show(result.to_dict(), service.told_result(result, wanted.files), json=json)
    if not result.is_published and (result.failed or result.waiting is not None):
        raise typer.Exit(_FAILED)
