"""What a commit that brings in rows of a branch is to say of where they come from.

Where rows come from is known above the kernel, so this comes in as a callable. It must not raise: what is not known is
no reason to stop a commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext


class Origin(Protocol):
    """Makes the properties that say it."""

    def __call__(
        self, branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot], /
    ) -> Mapping[str, str]:
        """Properties for the snapshot; the same whenever it is asked for the same.

        Args:
            branch: whose rows they are.
            taken: its last snapshot that is not brought in, because it is there already.
            head: its last one that is.
            commits: those between the two that are left and count, oldest first, `head` among them.
        """
        ...
