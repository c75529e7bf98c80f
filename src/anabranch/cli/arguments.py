"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.errors import OptionError

TableName = Annotated[str, typer.Argument(metavar="DB.TABLE", help="The table, or db.table$branch_<name>.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Branch = Annotated[str | None, typer.Option(help="Branch to work on; main if absent.")]
At = Annotated[str | None, typer.Option(help="Moment to read: a snapshot id, snapshot.N or a tag.")]
Filter = Annotated[str | None, typer.Option("--filter", "-f", help='SQL text, such as "price > 10".')]
Columns = Annotated[str | None, typer.Option("--columns", "-c", help="Comma-separated columns to read.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def names(text: str | None) -> list[str] | None:
    """Comma-separated names as a list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def settings(pairs: list[str] | None) -> dict[str, str]:
    """``key=value`` texts as a dict. Raises `OptionError`."""
    found = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"'{pair}' is no option", hint="write --option key=value.")
        found[key.strip()] = value.strip()
    return found
