"""The live files of a snapshot with the columns that compaction planning needs."""

from __future__ import annotations

from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.compaction.planning import PLAN_COLUMNS
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.guards import check_snapshot_readable
from anabranch.kernel.provenance.fence import fenced
from anabranch.kernel.scan.request import check_supported


def live_files(context: TableContext, snapshot: Snapshot | None) -> EntryFrame:
    """Return the `PLAN_COLUMNS` of all live files, in commit order; on a branch with the column `fence`.

    Raises `CorruptTableError`, `UnsupportedFeatureError`, and `NotFoundError` if the table was replaced.
    """
    manifests = context.manifests
    if snapshot is None:
        return manifests.entries([], only=PLAN_COLUMNS)
    check_snapshot_readable(context, snapshot)
    live = manifests.entries(manifests.of_snapshot(snapshot), only=PLAN_COLUMNS).live()
    check_supported(live.df, context)
    return EntryFrame(fenced(context, snapshot, live.df))
