"""Parameters that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from anabranch.errors import InvalidInputError, OptionError
from anabranch.verbs.verb import Option, option

DryRun = Annotated[bool, option("Only say what would be done.")]
Filter = Annotated[str | None, option('SQL text, such as "price > 10".', "--filter", "-f", sql=None)]
Columns = Annotated[str | None, option("Comma-separated columns to read.", "--columns", "-c", sql=None)]
Reason = Annotated[str | None, option("Why, for people who read the log of branches.")]
RequireAudit = Annotated[
    str | None, option("Name of the checks that the branch must have passed as it is now.")
]
Force = Annotated[bool, option("Go on although a check found something.", "--force")]
BranchName = Annotated[str, option("Name of the branch.", "--name", "-n", sql="branch")]
Master = Annotated[str | None, option("Spark master; as Spark is configured if absent.", sql=None)]
Conf = Annotated[list[str] | None, option("Setting of Spark, key=value; may be repeated.", sql=None)]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most rows to show: a number, or None for all."""

    rows: int | None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``10``, ``0`` for none, or ``all``. Raises `ValueError`."""
        if text.strip().lower() == "all":
            return cls(None)
        if not text.strip().isdecimal():
            raise ValueError(f"'{text}' is no number of rows: write a number from 0 on, or all.")
        return cls(int(text))

    def __str__(self) -> str:
        return "all" if self.rows is None else str(self.rows)


def limit(on_terminal: str) -> Option:
    """Describe --limit of a verb that shows so many rows on a terminal, and all elsewhere."""
    return option(
        f"The most rows: a number, 0 for none, or all. {on_terminal} on a terminal, all elsewhere.",
        "--limit",
        "-n",
        parser=Limit.parse,
        metavar="N|all",
        sql=None,
    )


def most_rows(asked: Limit | None, usual: int, *, is_watched: bool) -> int | None:
    """Return the most rows to show: as asked for; on a terminal `usual` if nothing was, and all elsewhere."""
    return asked.rows if asked is not None else usual if is_watched else None


# Of verbs that run jobs.
JobFiles = Annotated[list[str] | None, option("File that declares jobs; may be repeated.", "--jobs")]
Hold = Annotated[bool, option("Stop before publishing, to look at the branches.", sql=None)]
ByHand = Annotated[
    list[str] | None,
    option(
        "Table of which what no job makes again is done on its branch by hand; may be repeated.", sql=None
    ),
]
AcceptEmptyState = Annotated[
    list[str] | None,
    option(
        "Job that may begin without state where none can be had: what was open is wrong then. May be repeated.",
        sql=None,
    ),
]
Checkpoint = Annotated[
    str | None,
    option(
        "Folder of the checkpoint of a single job with a stream, for a correction FOLDER@<branch>; below that of --checkpoints if "
        "absent."
    ),
]
Checkpoints = Annotated[
    str | None,
    option(
        "Folder with the checkpoints of all jobs, <job> for main and <job>@<branch> for a branch; _checkpoints of the warehouse "
        "if absent, for a warehouse in an object store a folder of this machine."
    ),
]
MaxRestarts = Annotated[int, option("Failures in a row after which a job is given up.", min=0, sql=None)]


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


def settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """``key=value`` texts as a dict. Raises `OptionError`."""
    found = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            name = re.split(r"[^\w.-]", pair, maxsplit=1)[0]  # what follows may be a secret
            raise OptionError(f"'{name}' has no '=' behind it", hint="write --option key=value.")
        found[key.strip()] = value.strip()
    return found
