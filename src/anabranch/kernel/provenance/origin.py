"""Lineage properties for commits that bring in rows of a branch.

Lineage is known above the kernel, so this is passed in as a callable. It must not raise: missing lineage is
no reason to stop a commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext


class Origin(Protocol):
    """Builds the lineage properties."""

    def __call__(
        self, branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot], /
    ) -> Mapping[str, str]:
        """Return properties for the snapshot; deterministic.

        Args:
            branch: the branch of the rows.
            taken: its last snapshot that is not brought in, because it was before.
            head: its last snapshot that is.
            commits: the retained and effective ones between the two, oldest first, including `head`.
        """
        ...
