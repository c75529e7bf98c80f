"""What was done with the branches of a table, without reading all of its history."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.format.records.fork import BranchOperation
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.branches.operations import operation_of_commit, operations
from anabranch.kernel.log.parallel import OnUnread
from anabranch.table import Table

__all__ = ["BranchOperation", "made_by", "recorded"]


def recorded(table: Table, unread: OnUnread) -> list[BranchOperation]:
    """Return the operations that left records of their own; not replacements that were made as commits.

    Args:
        table: main.
        unread: told of damaged records, which are left out.
    """
    return operations(table.context, of_commits=False, unread=unread)


def made_by(snapshots: Iterable[Snapshot]) -> list[BranchOperation]:
    """Return the replacements that some commits made."""
    return [found for snapshot in snapshots if (found := operation_of_commit(snapshot)) is not None]
