"""What became of a replacement of main."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.kernel.provenance.coverage import JobOnMain, OnlyOnMain


@dataclass(frozen=True, slots=True)
class ReplaceResult:
    """A replacement that was made."""

    branch: str
    """The branch that is main now, or whose rows main has; ``main`` for the one in the table's own folder."""
    number: int | None
    """Of the replacement; None for one that was made as a commit."""
    fork: int
    """The newest snapshot that the old and the new main both have."""
    old_snapshot: int
    """The last snapshot of the old main. What it has above `fork` is not in the new one."""
    new_snapshot: int
    """The newest snapshot of the new main when it was decided."""
    repeated: bool
    """Whether it had been made before this call."""
    dry_run: bool = False
    """Whether it was only looked at what would be done; the number is then the one that is next."""
    expect_main: str | None = None
    """Of a dry run, main's newest snapshot as the argument of that name takes it; no other one is called so."""

    only_on_main: tuple[OnlyOnMain, ...] = ()
    """Of a dry run, the commits of main that the branch lacks and that none of its jobs is going to make."""
    jobs_only_on_main: tuple[JobOnMain, ...] = ()
    """The same job by job, with what to do to have it on the branch as well."""

    @classmethod
    def of(cls, pointer: MainPointer, *, repeated: bool) -> ReplaceResult:
        """What a decision did."""
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
        """The name under which the old main can be read: ``main@1``; None for a replacement as a commit."""
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
