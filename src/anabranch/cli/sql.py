"""The verb sql."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Limit, limit_option
from anabranch.cli.output import limited, say, say_cut, show_json, show_rows

if TYPE_CHECKING:
    from anabranch.service.sql import Rows


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

    Tables are db.t, or t in database default. INSERT from a stream, such as a topic, runs until it is interrupted.
    """
    from anabranch.service.sql import Started, carry_out, script_of

    most = limited(None if limit is None else limit.rows, is_given=limit is not None, usual=100)
    try:
        for found in carry_out(state.warehouse, script_of(statement, file), limit=most, engine=engine):
            if isinstance(found, Started):
                if json:
                    show_json({"query": found.name, "id": found.id})
                else:
                    say(f"started {found.name}; press Ctrl-C to end it")
            else:
                _show(found, json=json)
    except KeyboardInterrupt:
        say("interrupted; the same statement goes on from here", err=True)


def _show(found: Rows, *, json: bool) -> None:
    if json:
        for row in found.rows:
            show_json(dict(zip(found.columns, map(_plain, row), strict=True)))
    elif found.columns:
        show_rows(found.columns, (tuple(map(_plain, row)) for row in found.rows))
    if found.more:
        say_cut(len(found.rows))


def _plain(value: Any) -> Any:
    """Rows inside rows as dicts, bytes as they are."""
    if hasattr(value, "asDict"):
        return {key: _plain(inner) for key, inner in value.asDict().items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
