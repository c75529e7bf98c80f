"""Arguments and options that several verbs share."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from anabranch.errors import InvalidInputError, OptionError

TableName = Annotated[str, typer.Argument(metavar="DB.TABLE", help="The table, or db.table$branch_<name>.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Branch = Annotated[str | None, typer.Option(help="Branch to work on; main if absent.")]
At = Annotated[
    str | None,
    typer.Option(
        help="Moment to read: a snapshot id, snapshot.N, savepoint.N, watermark-N, a tag, or a time such as "
        "'2026-01-31 12:00:00'."
    ),
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Refuse an answer to --at by time or watermark that is not certain."),
]
Published = Annotated[
    bool,
    typer.Option("--published", help="With --at TIME, what readers saw then, whatever was corrected since."),
]
Filter = Annotated[str | None, typer.Option("--filter", "-f", help='SQL text, such as "price > 10".')]
Columns = Annotated[str | None, typer.Option("--columns", "-c", help="Comma-separated columns to read.")]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most rows to show: a number, or None for all."""

    rows: int | None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``10``, ``0`` for none, or ``all``. Raises `typer.BadParameter`."""
        if text.strip().lower() == "all":
            return cls(None)
        if not text.strip().isdecimal():
            raise typer.BadParameter(f"'{text}' is no number of rows: write a number from 0 on, or all.")
        return cls(int(text))

    def __str__(self) -> str:
        return "all" if self.rows is None else str(self.rows)


def limit_option(on_terminal: str) -> Any:
    """The option --limit of a verb that shows so many rows on a terminal, and all elsewhere."""
    return typer.Option(
        "--limit",
        "-n",
        parser=Limit.parse,
        metavar="N|all",
        help=f"The most rows: a number, 0 for none, or all. {on_terminal} on a terminal, all elsewhere.",
        show_default=False,
    )


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Reason = Annotated[str | None, typer.Option(help="Why, for people who read the log of branches.")]

# Of verbs that run jobs.
JobFiles = Annotated[
    list[str] | None, typer.Option("--jobs", help="File that declares jobs; may be repeated.")
]
Hold = Annotated[bool, typer.Option("--hold", help="Stop before publishing, to look at the branches.")]
ByHand = Annotated[
    list[str] | None,
    typer.Option(
        help="Table of which what no job makes again is done on its branch by hand; may be repeated."
    ),
]
AcceptEmptyState = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-empty-state",
        help="Job that may begin without state where none can be had: what was open is wrong then. May be repeated.",
    ),
]
MaxRestarts = Annotated[int, typer.Option(help="Failures in a row after which a job is given up.", min=0)]
Master = Annotated[str | None, typer.Option(help="Spark master; as Spark is configured if absent.")]
Conf = Annotated[list[str] | None, typer.Option(help="Setting of Spark, key=value; may be repeated.")]


def names(text: str | None) -> list[str] | None:
    """Comma-separated names as a list; None if there is no text. Raises `InvalidInputError` if it names nothing."""
    if text is None:
        return None
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise InvalidInputError(
            f"'{text}' names no column", hint="write names with commas, or leave the option out."
        )
    return found


def settings(pairs: list[str] | None) -> dict[str, str]:
    """``key=value`` texts as a dict. Raises `OptionError`."""
    found = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            name = re.split(r"[^\w.-]", pair, maxsplit=1)[0]  # what follows may be a secret
            raise OptionError(f"'{name}' has no '=' behind it", hint="write --option key=value.")
        found[key.strip()] = value.strip()
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless the answer was given beforehand; without a terminal nobody is asked."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)
