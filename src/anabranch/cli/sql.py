"""The verb sql."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Limit, limit_option
from anabranch.cli.output import limited, on_terminal, say


def register(app: typer.Typer) -> None:
    """Add this verb to the command line."""
    app.command()(sql)


def sql(
    statement: Annotated[
        str | None,
        typer.Argument(help="One statement, or several with semicolons between; - for standard input."),
    ] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A file of statements.")] = None,
    limit: Annotated[Limit | None, limit_option("100 of each statement")] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="duckdb or spark; auto is DuckDB, which starts at once, for scripts that only read, else Spark."
        ),
    ] = "auto",
    json: AsJson = False,
) -> None:
    """Carry out statements in SQL; with --json one object a row. Those that only read need no Spark.

    Without a statement, a terminal gets a shell with completion and a history.

    Tables are db.t, or t in database default. INSERT from a stream, such as a topic, runs until it is interrupted.
    """
    from anabranch.cli.sql_rows import show_result
    from anabranch.service.sql import carry_out, script_of

    most = limited(None if limit is None else limit.rows, is_given=limit is not None, usual=100)
    if statement is None and file is None and not json and on_terminal() and sys.stdin.isatty():
        from anabranch.cli.shell import converse

        converse(most, engine)
        return
    try:
        for found in carry_out(state.warehouse, script_of(statement, file), limit=most, engine=engine):
            show_result(found, json=json)
    except KeyboardInterrupt:
        say("interrupted; the same statement goes on from here", err=True)
