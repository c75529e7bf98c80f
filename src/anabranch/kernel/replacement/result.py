"""What a replacement of main did, in one table or in several, and what warehouse groups there have been."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.group_log import find_decision, find_intent, group_numbers
from anabranch.kernel.log.parallel import OnUnread, tried
from anabranch.kernel.provenance.coverage import JobOnMain, OnlyOnMain
from anabranch.storage.protocol import Storage

ExpectedMain: TypeAlias = int | str | Snapshot | SnapshotRef
"""A number, text such as ``57`` or ``57@0c1f9a2b``, or a snapshot."""

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:@([0-9a-f]{4,64}))?")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ReplaceResult:
    """Result of a replacement of main, or of its dry run.

    Example:
        >>> replaced = table.replace_main_branch("fix")
        >>> replaced.branch, replaced.number, replaced.old_snapshot
        ('fix', 1, 2)
        >>> lake.table("db.orders").scan().count()
        3
    """

    branch: str
    """The new main, or the branch whose rows main has; ``main`` for the one in the table's own folder."""
    number: int | None
    """Number of the replacement; None for one that was made as a commit."""
    fork: int
    """The newest snapshot that the old and the new main both have."""
    old_snapshot: int
    """The last snapshot of the old main. Its snapshots above `fork` are not in the new one."""
    new_snapshot: int
    """The newest snapshot of the new main when it was decided."""
    repeated: bool
    """Whether it had been made before this call."""
    dry_run: bool = False
    """Whether nothing was changed; the number is then the next one."""
    expect_main: str | None = None
    """In a dry run, main's newest snapshot in the form that the argument of that name takes; unique."""

    only_on_main: tuple[OnlyOnMain, ...] = ()
    """In a dry run, the commits of main that the branch lacks and that none of its jobs will make."""
    jobs_only_on_main: tuple[JobOnMain, ...] = ()
    """The same per job, with what to do to have it on the branch as well."""

    @classmethod
    def of(cls, pointer: MainPointer, *, repeated: bool) -> ReplaceResult:
        """Build the result of a decision."""
        assert pointer.replaced is not None, "it is a replacement"
        return cls(
            pointer.main.name or MAIN_BRANCH,
            pointer.generation,
            pointer.replaced.fork.id,
            pointer.replaced.head.id,
            pointer.replaced.taken.id,
            repeated,
        )

    @property
    def former(self) -> str | None:
        """The name by which the old main can be read: ``main@1``; None for a replacement as a commit."""
        return None if self.number is None else former_main_name(self.number)

    def __str__(self) -> str:
        is_planned = self.dry_run and not self.repeated
        has, becomes = ("would have", "would be") if is_planned else ("has", "is")
        done = " already" if self.repeated else "" if is_planned else " now"
        if self.former is None:
            at = "" if is_planned else f", in snapshot {self.new_snapshot}"
            return f"main {has}{done} the rows of '{self.branch}'{at}"
        left = self.old_snapshot - self.fork
        who = "the table's own folder" if self.branch == MAIN_BRANCH else f"'{self.branch}'"
        return (
            f"{who} {becomes}{done} main, at snapshot {self.new_snapshot}; the old one, with "
            f"{left} snapshot{'' if left == 1 else 's'} after snapshot {self.fork}, {becomes} kept as {self.former}"
        )


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


def group_infos(groups: Storage, unread: OnUnread | None = None) -> list[GroupInfo]:
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
