"""Correcting from the page: what it would do, and the command that does it, as a process of its own.

The work is `anabranch correct`, started as a person would start it: it can be stopped or killed, and started again it goes
on where it was. The page may only start it with the files of jobs and checks that were named with the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch import CommitConflictError, InvalidInputError, Lake
from anabranch.ui.actions import command
from anabranch.ui.asked import Asked
from anabranch.ui.history import snapshot_prefix
from anabranch.ui.site import Site
from anabranch.verbs.corrections import planned_correction, underway
from anabranch.verbs.groups import DAMAGED_GROUP
from anabranch.verbs.legible import Unread

if TYPE_CHECKING:
    from anabranch.table.grouping import GroupInfo

WHAT: Final = ("run", "undo")


def plan(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what correcting a table from a tag would do, what can be taken back, and the command for a terminal."""
    from anabranch.cascade.telling import command_of, told_plan

    table, tag = asked.text("table"), asked.text("tag")
    found, damaged = planned_correction(site.warehouse, table, tag, site.jobs), Unread(hint=DAMAGED_GROUP)
    group = _last_group(site.lake, table, damaged)
    checked = [word for file in site.checks for word in ("--checks", file)]
    return {
        "plan": found.to_dict(),
        "tables": list(found.tables),
        "told": list(told_plan(found, site.jobs, checked)),
        "undo": None if group is None else {"number": group.number, "tables": _tables(group)},
        "damaged": damaged.found,
        "command": command_of(found, site.jobs or ("FILE",), *checked),
    }


def progress(site: Site, asked: Asked) -> list[dict[str, Any]]:
    """Return how the command stands, or ended, that this page ran last, and then what other processes correct."""
    own, process_id = site.actions.told(), site.actions.process_id
    found = site.kept_lately("underway", lambda: underway(site.lake, site.runtime), seconds=2.0)
    others = [
        {
            "what": "run",
            "table": other.what.table,
            "tag": other.what.tag,
            "millis": other.since_millis,
            "tables": list(other.what.tables or (other.what.table,)),
            "lines": [] if other.said is None else [other.said],
            "exit": None,
            "stopped": False,
            "elsewhere": str(other.process),
        }
        for other in found
        if not other.is_by(process_id)
    ]
    return [*([] if own is None else [{**own, "elsewhere": None}]), *others]


def act(site: Site, asked: Asked) -> dict[str, Any] | None:
    """Start or stop a correction, or take it back, after the person has confirmed the tables that change.

    Raises:
        InvalidInputError: the server allows no actions, or the request cannot be understood.
        CommitConflictError: other tables than those that were confirmed would change, or a command is running, of this page or
            another one.
    """
    if not site.allow_actions:
        raise InvalidInputError(
            "this page only shows", hint="start it with --allow-actions to correct from here."
        )
    body = asked.body
    if body.get("what") == "stop":
        return site.actions.stop()
    if body.get("what") == "tag":
        return _create_tag(site, body)
    what, table, tag, confirmed = (body.get(key) for key in ("what", "table", "tag", "tables"))
    if what not in WHAT or not isinstance(table, str) or not isinstance(tag, str) or "\x00" in table + tag:
        raise InvalidInputError("the request does not say what to do with which table")
    if what == "run" and not site.jobs:
        raise InvalidInputError(
            "no file of corrected jobs was named with the server",
            hint="start it with `anabranch ui --allow-actions --jobs FILE`.",
        )
    if what == "run":
        changed = list(planned_correction(site.warehouse, table, tag, site.jobs).tables)
    else:
        group = _last_group(site.lake, table)
        changed = [] if group is None else _tables(group)
    if not changed:
        raise InvalidInputError(f"there is nothing to {what} for {table}")
    if changed != confirmed:
        raise CommitConflictError(
            f"this changes {', '.join(changed)}, which is not what was confirmed", hint="look at it again."
        )
    for other in underway(site.lake, site.runtime):
        shared = [name for name in other.what.tables or (other.what.table,) if name in changed]
        if shared:
            raise CommitConflictError(
                f"a correction of {', '.join(shared)} is carried out by {other.process} already, which this page did not start",
                hint="wait for its end; it goes on here where that was, if it is not done.",
            )
    words = command(site.warehouse, what, table, tag, jobs=site.jobs, checks=site.checks, tables=changed)
    return site.actions.start(words, what, table, tag, tables=changed, millis=site.now)


def _create_tag(site: Site, body: Mapping[str, Any]) -> dict[str, Any]:
    """Name the last right snapshot of a table. Changes no row and no main."""
    table, name, snapshot = (body.get(key) for key in ("table", "tag", "snapshot"))
    is_number = isinstance(snapshot, int) and not isinstance(snapshot, bool) and snapshot > 0
    if not isinstance(table, str) or not isinstance(name, str) or not is_number:
        raise InvalidInputError("the request does not say which snapshot of which table to name")
    view = site.open(table)
    tag = view.create_tag(name, f"{snapshot_prefix(view)}{snapshot}")
    return {"name": tag.name, "snapshot": tag.snapshot.id}


def _last_group(lake: Lake, table: str, damaged: Unread | None = None) -> GroupInfo | None:
    """Return the last replacement of this table together with others that was not taken back.

    Args:
        table: one of the tables.
        damaged: told of records that cannot be read, any of which may be the last: then it is None. Without it they raise.
    """
    groups = lake.groups(damaged)
    if damaged is not None and damaged.found:
        return None
    undone = {group.undoes for group in groups if group.outcome == "replaced"}
    standing = (
        group
        for group in reversed(groups)
        if group.outcome == "replaced" and group.undoes is None and group.number not in undone
    )
    return next((group for group in standing if table in _tables(group)), None)


def _tables(group: GroupInfo) -> list[str]:
    return [name for name, _, _ in group.tables]
