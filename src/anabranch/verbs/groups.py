"""Verbs about replacements of main in several tables at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from anabranch.verbs.answer import Answer
from anabranch.verbs.legible import Unread
from anabranch.verbs.parameters import DryRun, Force, Reason, RequireAudit, settings
from anabranch.verbs.subject import InLake
from anabranch.verbs.verb import Called, Confirm, Group, argument, option, verb

if TYPE_CHECKING:
    from anabranch.kernel.replacement.result import GroupResult
    from anabranch.lake import Lake

CORRECTIONS: Group = "Jobs and corrections"
_GROUP = (
    "group_number BIGINT, table STRING, branch STRING, replacement BIGINT, outcome STRING, made_millis BIGINT, "
    "made_by STRING, reason STRING, undoes BIGINT, problem STRING"
)
DAMAGED_GROUP = (
    "Put the file back from a copy of the warehouse. The tables that were replaced together are read as it was decided: "
    "each has a copy of the decision, which `anabranch verify` of the table looks at."
)
"""What to do about a damaged record of tables that were replaced together."""
_MADE = "group_number BIGINT, table STRING, branch STRING, replacement BIGINT"


@verb(CORRECTIONS, "Lake.groups", columns=_GROUP)
def groups(lake: InLake) -> Answer:
    """List what was published in several tables at once."""
    return groups_made(lake)


def groups_made(lake: Lake) -> Answer:
    """Return the replacements in several tables at once, oldest first, as an answer."""
    from anabranch.cascade.telling import told_groups

    unread = Unread(hint=DAMAGED_GROUP)
    found = lake.groups(unread)
    rows: list[tuple[Any, ...]] = [
        (
            group.number,
            *member,
            group.outcome,
            group.made_millis,
            group.made_by,
            group.reason,
            group.undoes,
            None,
        )
        for group in found
        for member in group.tables
    ]
    rows += [
        (int(one.what.removeprefix("group ")), *(None,) * 8, f"{one.message} ({one.hint})")
        for one in unread.found
    ]
    return Answer(found, told_groups(found), *unread.notes, rows=rows, code=unread.code)


@verb(CORRECTIONS, "Lake.replace_group", columns=_MADE, changes=True)
def replace_group(
    lake: InLake,
    branches: Annotated[
        list[str],
        argument(
            "Tables, each with the branch that is to be its main; with commas between them in SQL.",
            "DB.TABLE=BRANCH...",
        ),
    ],
    wait: Annotated[
        str | None, option("Wait so long until the branches have caught up, such as '10 min'.")
    ] = None,
    force: Force = False,
    require_audit: RequireAudit = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Put branches in the place of main in several tables at once: readers see all of them, or none."""
    wanted = settings([pair for text in branches for pair in text.split(",")])
    ask(f"put branches in the place of main of {', '.join(wanted)}?")
    made = lake.replace_group(
        wanted,
        wait=wait,
        force=force,
        require_audit=require_audit,
        by=caller.by,
        reason=reason,
        dry_run=dry_run,
    )
    return Answer(made, str(made), rows=_members(made))


@verb(CORRECTIONS, "Lake.undo_group", columns=_MADE, changes=True)
def undo_group(
    lake: InLake,
    number: Annotated[
        int | None, option("Of the group; the last one that was not taken back if left out.")
    ] = None,
    reason: Reason = None,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Take back a replacement of main that was made in several tables at once."""
    ask(f"take back group {'last' if number is None else number} in all of its tables?")
    made = lake.undo_group(number, by=caller.by, reason=reason)
    return Answer(made, str(made), rows=_members(made))


def _members(made: GroupResult) -> list[tuple[Any, ...]]:
    return [(made.number, name, one.branch, one.number) for name, one in made.tables]
