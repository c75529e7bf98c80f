"""Result of a replacement of main."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.kernel.provenance.coverage import JobOnMain, OnlyOnMain


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
