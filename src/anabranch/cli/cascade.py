"""The verb cascade."""

from __future__ import annotations

from collections.abc import Iterable
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
    Yes,
    confirm,
    settings,
)
from anabranch.cli.job_statuses import ShownStatuses
from anabranch.cli.output import say, show_json
from anabranch.errors import InvalidInputError

_FAILED = 1


def register(app: typer.Typer) -> None:
    """Add this verb to the command line."""
    app.command()(cascade)


def cascade(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[DB.TABLE]", help="The table that was corrected: its main was replaced."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what has to be done, table by table; the default.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Do it, and publish all tables at once.")] = False,
    undo: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Take back what was published: its number, or 'last'."),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="List what was published in several tables at once.")
    ] = False,
    jobs: JobFiles = None,
    hold: Hold = False,
    by_hand: ByHand = None,
    audit: Annotated[
        list[str] | None,
        typer.Option(help="db.table=checks.yml: checks that its branch must pass; may be repeated."),
    ] = None,
    accept_empty_state: AcceptEmptyState = None,
    max_restarts: MaxRestarts = 10,
    master: Master = None,
    conf: Conf = None,
    reason: Reason = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Correct what was made from a table after its main was replaced: each table on a branch, published all at once.

    Run again after a failure it goes on where it was.

    Exits with 1 if a job failed or something is to be done by hand, with 3 if something stands against it.
    """
    from anabranch.service import cascade as service

    _check_one([plan, run, undo is not None, groups])
    if groups:
        found = service.groups(state.warehouse)
        show(found, service.told_groups(found), json=json)
        return
    if undo is not None:
        confirm(f"take back group {undo} in all of its tables?", yes=yes or json)
        made = service.undo(state.warehouse, table, undo, reason=reason)
        show(made, service.told_group(made), json=json)
        return
    if table is None:
        raise InvalidInputError(
            "it is not said which table was corrected", hint="name it: cascade db.orders."
        )
    files = jobs or []
    if not run:
        planned = service.plan(state.warehouse, table, files)
        show(planned.to_dict(), service.told_plan(planned, files), json=json)
        return
    confirm(f"correct what was made from {table}, and publish it?", yes=yes or json or hold)
    how = service.How(
        files, not hold, by_hand or (), settings(audit), max_restarts, reason, accept_empty_state or ()
    )
    spark = service.Spark(master, settings(conf), loud=state.debug)
    with ShownStatuses(json=json, tells_failures=False) as shown:
        result = service.run(
            state.warehouse,
            table,
            how,
            spark,
            tell=lambda line: None if json else say(line),
            on_status=lambda statuses: None if json else shown.update(statuses),
            on_event=shown.trace,
        )
    show(result.to_dict(), service.told_result(result, files), json=json)
    if not result.is_published and (result.failed or result.waiting is not None):
        raise typer.Exit(_FAILED)


def _check_one(asked: Iterable[bool]) -> None:
    if sum(asked) > 1:
        raise InvalidInputError(
            "--plan, --run, --undo and --groups are different things", hint="give one of them."
        )


def show(value: object, lines: Iterable[str], *, json: bool) -> None:
    """Print a value as JSON, or lines for people."""
    if json:
        show_json(value)
        return
    for line in lines:
        say(line)
