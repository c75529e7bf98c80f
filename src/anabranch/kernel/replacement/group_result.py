"""Result of a multi-table replacement, and past ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.kernel.log.group_log import find_decision, find_intent, group_numbers
from anabranch.kernel.log.unread import Unread, tried
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of a replacement of main in several tables."""

    number: int | None
    """Number of the group in its warehouse; None for a dry run."""
    tables: tuple[tuple[str, ReplaceResult], ...]
    """Result for each table, in the given order."""
    repeated: bool
    """Whether it had been made before this call."""
    dry_run: bool = False
    undoes: int | None = None
    """The group that this undid."""

    def __str__(self) -> str:
        names = ", ".join(name for name, _ in self.tables)
        if self.dry_run:
            done = f"would replace main of {names}, all of them at once"
        else:
            verb = "already replaced" if self.repeated else "replaced"
            what = "" if self.undoes is None else f", which takes back group {self.undoes}"
            done = f"group {self.number}: {verb} main of {names}, all of them at once{what}"
        return "\n".join([done, *(f"  {name}: {result}" for name, result in self.tables)])


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group in the warehouse's log."""

    number: int
    outcome: Literal["replaced", "stay", "undecided"]
    """``stay``: none of the mains was replaced; ``undecided``: it is under way, or its process just died."""
    tables: tuple[tuple[str, str, int], ...]
    """Name, branch to become main (``main`` for the table's own folder), number of the replacement in the table."""
    made_millis: int
    """Time of the decision, or else of the announcement; epoch milliseconds."""
    made_by: str | None
    reason: str | None
    undoes: int | None


def group_infos(groups: Storage, unread: Unread | None = None) -> list[GroupInfo]:
    """Return all groups of a warehouse, oldest first.

    Args:
        groups: where the warehouse keeps them.
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """

    def find(number: int) -> GroupInfo | None:
        return tried(f"group {number}", lambda: _group_info(groups, number), unread)

    return [found for number in group_numbers(groups) if (found := find(number)) is not None]


def _group_info(groups: Storage, number: int) -> GroupInfo | None:
    intent, decided = find_intent(groups, number), find_decision(groups, number)
    if intent is None:
        return None
    outcome: Literal["replaced", "stay", "undecided"] = "undecided"
    if decided is not None:
        outcome = "replaced" if decided.made else "stay"
    return GroupInfo(
        number,
        outcome,
        tuple((m.table, m.target.name or "main", m.generation) for m in intent.members),
        intent.made_millis if decided is None else decided.made_millis,
        intent.made_by,
        intent.reason,
        intent.undoes,
    )
