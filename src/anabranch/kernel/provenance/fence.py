"""The fence: limits compaction on a branch so that a merge can tell the rows that main lacks.

A merge takes from a branch the files whose rows are younger than what main has of it already. So no file may hold
rows from both sides of a *point*: the fork, and every merged head of the branch. Compaction on a
branch therefore combines, within one partition and bucket, only files of one age; and one commit replaces there
files of one age only, since what it writes inherits from what it deletes.

Both hold when compaction is planned, by the column `fence` of the live files, and are checked again when it is
committed, for a merge may have made another point meanwhile: `anabranch.kernel.commit.gates` is asked about the newest snapshot, and a merge
begins with a snapshot of its own, so that a compaction which looked before collides and looks again. Main compacts
freely.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import polars as pl

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.merge_log import points
from anabranch.kernel.provenance.births import MIXED, ages
from anabranch.kernel.provenance.carry import carried_births

FENCE: Final = "fence"
"""Column of live files: files with different values, or null, are not combined."""
_WEIGHT: Final = 150
"""Approximate bytes of a file in the cache."""


def is_fenced(context: TableContext) -> bool:
    """Whether compaction must respect a fence here: on branches that may be merged, not on main."""
    return context.fork is not None and context.main_generation is None


def fenced(context: TableContext, head: Snapshot | None, live: pl.DataFrame) -> pl.DataFrame:
    """Add the column `fence`, used by planning, to live files of `head`; on main return them unchanged."""
    found = file_ages(context, head)
    if found is None:
        return live
    values = [found.get(name, MIXED) for name in live["file_name"]]
    return live.with_columns(pl.Series(FENCE, values, dtype=pl.Int64))


def file_ages(context: TableContext, head: Snapshot | None) -> Mapping[str, int] | None:
    """Return how many points the rows of each live file are younger than; None where there is no fence."""
    if head is None or not is_fenced(context):
        return None
    parted_at = points(context)
    recorded = partial(carried_births, context, head)
    return context.cache.get_or(
        (context.storage.url, context.branch_uuid, "ages", head.stamp, *(point.stamp for point in parted_at)),
        lambda: ages(context, head, parted_at, recorded),
        lambda found: _WEIGHT * len(found),
    )
