"""The lanes of the branch graph: main, its branches and former mains, each with the snapshots that are its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from anabranch import AnabranchError, NotFoundError, Table
from anabranch.ui.history import DAMAGED, Line, newest
from anabranch.ui.site import Site
from anabranch.verbs.branch_log import BranchOperation
from anabranch.verbs.legible import Unread

_DEEPEST: Final = 20_000
"""Snapshots of main that are read to find where a branch began."""
_RECENT: Final = 400
"""Snapshots of main that are read in any case."""


@dataclass
class Lane:
    """A line of the drawing: main, a former main, or a branch."""

    name: str
    role: str
    """``main``, ``former`` or ``branch``."""
    uuid: str
    table: Table
    lines: list[Line] = field(default_factory=list)
    """Its own snapshots, newest first: those that no lane before it has."""
    root: str | None = None
    """Stamp of the snapshot it leaves another lane at."""
    head: str | None = None


def lanes_of(
    main: Table, operations: Iterable[BranchOperation], unread: Unread
) -> tuple[list[Lane], dict[str, str]]:
    """Return main, its branches, and former mains that are still there; and the stamps at which former mains end.

    A branch that was main for a while is one lane, whatever names lead to it. `unread` is told of damaged ones, which
    are left out.
    """
    found = [Lane("main", "main", main.branch_uuid, main)]
    ends = {}
    generations = {
        o.details.get("generation") for o in operations if o.operation in ("replaced_main", "undone")
    }
    former = [f"main@{number}" for number in sorted((g for g in generations if g is not None), reverse=True)]
    for role, names in (("branch", main.branches()), ("former", former)):
        for name in names:
            try:
                table = main.branch(name)
                uuid, (head, _) = table.branch_uuid, newest(table)
            except NotFoundError:  # deleted, dropped, or half created
                continue
            except AnabranchError as error:
                unread(f"branch '{name}'", error)
                continue
            if role == "former" and head is not None:
                ends[name] = head.stamp
            if all(lane.uuid != uuid for lane in found):
                found.append(Lane(name, role, uuid, table))
    return found, ends


def fill(site: Site, lanes: list[Lane]) -> bool:
    """Give each lane the snapshots that are its own; return whether older ones of main were left out."""
    main = lanes[0]
    forks = [lane.table.context.fork for lane in lanes]
    oldest = min((fork.snapshot.id for fork in forks if fork is not None), default=None)
    head, damaged = newest(main.table)
    top = head.id if head is not None else damaged[0].id if damaged else 0
    if not top:
        return False
    least = top - _RECENT if oldest is None else min(oldest, top - _RECENT)
    least = max(1, least, top - _DEEPEST)
    main.lines = list(site.histories.of(main.table).down_to(main.table, least))
    if not main.lines:
        return False  # the table was moved or dropped since its newest snapshot was found
    main.head = main.lines[0].stamp
    known = {line.stamp for line in main.lines}
    unreadable = {line.id: line.stamp for line in main.lines if line.kind == DAMAGED}
    for lane, fork in zip(lanes[1:], forks[1:], strict=True):
        history = site.histories.of(lane.table)
        lines = history.down_to(lane.table, max(1, least if fork is None else fork.snapshot.id))
        lane.head = lines[0].stamp if lines else None
        for line in lines:
            begins = line.stamp
            if fork is not None and line.id == fork.snapshot.id and begins not in known:
                # One of its two files cannot be read: the record of the branch says that they are the same snapshot.
                begins = unreadable.get(line.id, fork.snapshot.stamp)
            if begins in known:
                lane.root = begins
                break
            lane.lines.append(line)
        known |= {line.stamp for line in lane.lines}
    return bool(main.lines) and main.lines[-1].id > 1
