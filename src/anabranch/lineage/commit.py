"""A commit and a branch as lineage knows them, whether they still exist or have expired.

A commit's rows are those it added. What a table *contains* at a commit is these and, unless the commit replaced
everything, what it contained at the commit before; `Commit.base` says which one that is, because after a rollback, a
replacement, or at the beginning of a branch it is not the one with the next smaller id.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.lineage.model import LineageEntry


@dataclass(frozen=True, slots=True, order=True)
class CommitRef:
    """A commit, by the branch it was made on and the id of its snapshot there."""

    branch_uuid: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one branch of one table."""

    table_uuid: str
    branch_uuid: str
    """Branch that the commit was made on: a branch begins with a snapshot of another one, not a commit of its own."""
    snapshot: int
    stamp: str
    kind: str
    """``APPEND``, ``OVERWRITE``, ``COMPACT`` or ``ANALYZE``."""
    time_millis: int
    schema_id: int
    added: int
    """Rows added minus rows removed."""
    base: CommitRef | None
    """Commit that the content builds on; None if nothing from before is left, or there was nothing."""
    entry: LineageEntry | None
    """Where its rows come from; None if not recorded."""
    unread: str | None = None
    """Why the entry could not be read, if it exists but is unreadable."""
    restores: bool = False
    """Whether it only brought back content of its base: a rollback, or a replacement of all content in one commit."""

    @property
    def ref(self) -> CommitRef:
        return CommitRef(self.branch_uuid, self.snapshot)

    @property
    def has_rows(self) -> bool:
        """Whether it may have brought rows of its own. Rewriting files or restoring content does not."""
        return self.may_bring_rows and (self.kind == "OVERWRITE" or self.added != 0)

    @property
    def may_bring_rows(self) -> bool:
        """Whether commits of its kind bring rows; an empty batch brings none but still tells how far a job has read."""
        return self.kind in ("APPEND", "OVERWRITE") and not self.restores


@dataclass(frozen=True, slots=True)
class Line:
    """A branch of a table, as lineage knows it; it may have been deleted."""

    table_uuid: str
    branch_uuid: str
    """Identity of the branch; for the one in the table's own folder, that of the table."""
    table: str
    """``database.table`` when it was last seen."""
    branch: str | None
    """Its name; None for the branch in the table's own folder."""
    fork: CommitRef | None = None
    """The commit it began with, of the branch that was main then."""
    is_main: bool = False
    """Whether it was main when it was last seen."""

    @property
    def title(self) -> str:
        """Name as users write it; main is the table itself."""
        return self.table if self.branch is None or self.is_main else f"{self.table}$branch_{self.branch}"
