"""Verbs that compare moments of a table, and check a branch before it goes anywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Columns, Filter, TableName, names
from anabranch.cli.output import console, printable, show_json, show_only_on_main, show_pairs, show_table


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.command()(diff)
    app.command()(audit)


def diff(
    table: TableName,
    sides: Annotated[
        str,
        typer.Argument(
            metavar="A..B",
            help="What to compare: main..fix, or moments of branches: fix@good..fix, main@snapshot.5..main.",
        ),
    ],
    rows: Annotated[
        int, typer.Option("--rows", "-n", help="Show so many of the rows that differ.", min=0)
    ] = 0,
    count: Annotated[
        bool, typer.Option("--count", help="Say how many rows differ; reads changed files.")
    ] = False,
    filter: Filter = None,
    columns: Columns = None,
    json: AsJson = False,
) -> None:
    """Compare two moments of a table: files, columns, counts of each partition and, if asked for, rows."""
    from anabranch.service import comparing as service

    found = service.open_diff(state.warehouse, table, sides)
    info = service.describe(found, count=count, limit=rows, filter=filter, columns=names(columns))
    if json:
        show_json(info)
        return
    sides_shown = printable(f"{info.left}..{info.right} of {info.table}")
    console.print(sides_shown, style="bold", markup=False, highlight=False)
    about = [
        (info.left, _snapshot(info.left_snapshot)),
        (info.right, _snapshot(info.right_snapshot)),
        (
            "files",
            f"{info.files_added:,} added, {info.files_removed:,} removed, {info.files_shared:,} shared",
        ),
        ("schema", "; ".join(info.schema) or "the same"),
    ]
    if info.rows is not None:
        about.append(("rows", f"{info.rows.inserted:,} inserted, {info.rows.deleted:,} deleted"))
    show_pairs(about)
    show_only_on_main(info.only_on_main)
    if info.partitions:
        console.print()
        keys = (
            "partition",
            "rows_left",
            "rows_right",
            "rows_removed",
            "rows_added",
            "files_removed",
            "files_added",
        )
        titles = [key.replace("_", " ") for key in keys]
        show_table(titles, [[partition[key] for key in keys] for partition in info.partitions])
    if info.changes:
        console.print()
        show_table([*info.changes[0]], [[*row.values()] for row in info.changes], grouped=False)


def audit(
    table: TableName,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[BRANCH] CHECKS", help="The branch, main if left out, and a file of checks in YAML."
        ),
    ],
    by: Annotated[str | None, typer.Option(help="Who audits, for the record.")] = None,
    json: AsJson = False,
) -> None:
    """Check a branch and record the verdict, which merge-branch and replace-main-branch can require; 1 if it failed."""
    from anabranch.service import comparing as service
    from anabranch.service.refs import open_branch

    if len(arguments) > 2:
        raise typer.BadParameter(f"expected [BRANCH] CHECKS, found {' '.join(arguments)}")
    branch = arguments[0] if len(arguments) == 2 else None
    verdict = open_branch(state.warehouse, table, branch).audit(arguments[-1], by=by)
    info = service.describe_verdict(verdict)
    if json:
        show_json(info)
    else:
        console.print(
            printable(
                f"audit {info.audit} '{info.checks}' of {info.table} at snapshot {info.snapshot}: "
                + ("passed" if info.passed else "failed")
            ),
            style="green" if info.passed else "red",
            markup=False,
            highlight=False,
        )
        show_table(
            ["", "check", "expected", "found"],
            [(_mark(result), result["name"], result["expected"], result["found"]) for result in info.results],
        )
        for result in info.results:
            for row in result["sample"] if not result["passed"] else ():
                name = printable(f"  {result['name']}: ")
                console.print(name, style="dim", end="", markup=False, highlight=False)
                show_json(row)
    if not info.passed:
        raise typer.Exit(1)


def _snapshot(number: int | None) -> str:
    return "no snapshot" if number is None else f"snapshot {number}"


def _mark(result: object) -> str:
    assert isinstance(result, dict)
    return "passed" if result["passed"] else "failed" if result["blocking"] else "warning"
