"""The request and state of a replacement of main, and the snapshot of main that it expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anabranch.errors import InvalidInputError
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_decision, find_intent, group_numbers
from anabranch.kernel.log.parallel import OnUnread, tried
from anabranch.kernel.provenance.coverage import Coverage, Gaps, JobOnMain, OnlyOnMain, Origin
from anabranch.lazy import lazy
from anabranch.storage.protocol import Storage

ExpectedMain: TypeAlias = int | str | Snapshot | SnapshotRef
"""A number, text such as ``57`` or ``57@0c1f9a2b``, or a snapshot."""

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:@([0-9a-f]{4,64}))?")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected snapshot of main."""

    id: int
    stamp: str = ""
    """The beginning of the snapshot's stamp; empty if only its number is known."""
    branch_uuid: str | None = None
    """Identity of the branch that is expected to be main, if known."""

    @classmethod
    def of(cls, asked: ExpectedMain, branch_uuid: str | None = None) -> Expected:
        """Parse a user's expectation; `branch_uuid` is the main it refers to. Raises `InvalidInputError`."""
        match asked:
            case Snapshot():
                return cls(asked.id, asked.stamp, branch_uuid)
            case SnapshotRef():
                return cls(asked.id, asked.stamp, asked.branch_uuid)
            case bool():
                pass
            case int():
                return cls(asked, "", branch_uuid)
            case str() if match := _TEXT.fullmatch(asked):
                return cls(int(match[1]), match[2] or "", branch_uuid)
        raise InvalidInputError(
            f"'{asked}' names no snapshot of main",
            hint="write its number, or its number and the beginning of its stamp as `replace-main-branch --dry-run` says.",
        )

    def is_met_by(self, snapshot: Snapshot) -> bool:
        """Whether the expectation is met by this snapshot."""
        return snapshot.id == self.id and snapshot.stamp.startswith(self.stamp)

    def __str__(self) -> str:
        return f"{self.id}@{self.stamp[:_SHOWN]}" if self.stamp else str(self.id)


def identified(snapshot: Snapshot) -> str:
    """Format a snapshot as unique text: ``57@0c1f9a2b``."""
    return str(Expected(snapshot.id, snapshot.stamp))


@dataclass(frozen=True, slots=True)
class Seen:
    """State of main when the branch's content was checked against it."""

    snapshot: int
    """Id of its newest snapshot."""
    stamp: str
    """Stamp of that snapshot."""
    may_follow: Callable[[Snapshot], bool]
    """Whether a given later commit to main is harmless."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A requested replacement of main, with its conditions."""

    branch: str
    expect_main: Expected | None = None
    """Expected newest snapshot of main; if it differs, nothing is done."""
    wait_millis: int | None = None
    """How long to wait until the branch has caught up with main; None to skip the check."""
    force: bool = False
    """Replace main even if the check failed, or the branch's progress is not known."""
    audit: str | bool = False
    """An audit that the branch must have passed in its current state: by name, or any if True."""
    by: str | None = None
    reason: str | None = None
    coverage: Coverage | None = None
    """Compares what both have read of their sources; None if not known."""
    gaps: Gaps | None = None
    """Finds what only main has; None if not known."""
    origin: Origin | None = None
    """Lineage of the commit's rows, if it is one that replaces rows; None if not known."""
    seen: Seen | None = None
    """State of main and what may have been added since; with anything else nothing is done."""


@dataclass(frozen=True)
class Replacing:
    """A replacement that passed its check."""

    main: TableContext
    target: TableContext
    fork: SnapshotRef
    wishes: Replacement
    undoes: int | None = None
    """The replacement that is undone; its past is there already."""

    @lazy
    def main_since(self) -> SinceFork:
        """Snapshots of main above the fork."""
        return SinceFork(self.main, self.fork)

    @lazy
    def target_since(self) -> SinceFork:
        """Snapshots of the branch above the fork."""
        return SinceFork(self.target, self.fork)


@dataclass
class SinceFork:
    """The snapshots of a branch above its fork, each read once."""

    context: TableContext
    fork: SnapshotRef

    def __post_init__(self) -> None:
        self._known: list[Snapshot] = []

    def until(self, head: Snapshot | None) -> list[Snapshot]:
        """Return the retained ones up to `head`, oldest first."""
        last = self._known[-1].stamp if self._known else None
        new: list[Snapshot] = []
        goes_on = False
        lowest = max(self.fork.id, self._known[-1].id if self._known else 0)
        for snapshot in () if head is None else self.context.snapshots.down_to(head, lowest):
            goes_on = snapshot.stamp == last
            if goes_on or snapshot.id <= self.fork.id:
                break
            new.append(snapshot)
        self._known = [*(self._known if goes_on else ()), *reversed(new)]
        return self._known


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
        has, becomes = ("would have", "would be") if self.dry_run else ("has", "is")
        done = "" if self.dry_run else " already" if self.repeated else " now"
        if self.former is None:
            at = "" if self.dry_run else f", in snapshot {self.new_snapshot}"
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
