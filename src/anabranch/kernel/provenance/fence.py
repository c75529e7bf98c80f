"""The fence: what compaction on a branch keeps apart, so that a merge can tell the rows that main lacks.

A merge takes from a branch the files whose rows are younger than what main has of it already. So no file may hold
rows from both sides of a *point*: what the branch began with, and every head of it that was merged. Compaction on a
branch therefore combines, within one partition and bucket, only files of one age; and one commit replaces there
files of one age only, for what it writes inherits from what it deletes.

Both hold when compaction is planned, by the column `fence` of the live files, and are checked again when it is
committed, for a merge may have made another point meanwhile: `crossing` is asked about the newest snapshot, and a merge
begins with a snapshot of its own, so that a compaction which looked before collides and looks again. Main compacts
freely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import polars as pl

from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.compaction.planning import FENCE
from anabranch.kernel.compaction.task import Rewrite
from anabranch.kernel.context import TableContext
from anabranch.kernel.merge.record import points
from anabranch.kernel.provenance.births import MIXED, ages
from anabranch.kernel.provenance.carry import carried_births
from anabranch.spec.snapshot import Snapshot

_WEIGHT: Final = 150
"""Bytes that a file takes in the cache, about."""


def is_fenced(context: TableContext) -> bool:
    """Whether compaction must keep anything apart here: on branches that may be merged, not on main."""
    return context.fork is not None and context.main_generation is None


def fenced(context: TableContext, head: Snapshot | None, live: pl.DataFrame) -> pl.DataFrame:
    """Live files of `head` with the column `fence` that planning heeds; on main as they are."""
    found = file_ages(context, head)
    if found is None:
        return live
    values = [found.get(name, MIXED) for name in live["file_name"]]
    return live.with_columns(pl.Series(FENCE, values, dtype=pl.Int64))


def file_ages(context: TableContext, head: Snapshot | None) -> Mapping[str, int] | None:
    """How many points the rows of each live file are younger than; None where nothing is fenced."""
    if head is None or not is_fenced(context):
        return None
    parted_at = points(context)
    recorded = partial(carried_births, context, head)
    return context.cache.get_or(
        (context.storage.url, context.branch_uuid, "ages", head.stamp, *(point.stamp for point in parted_at)),
        lambda: ages(context, head, parted_at, recorded),
        lambda found: _WEIGHT * len(found),
    )


def crossing(base: Base, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Those of the rewrites that cannot be committed together with the others on this base."""
    found = file_ages(base.context, base.snapshot) if rewrites else None
    if found is None:
        return []
    crossed: list[Rewrite] = []
    allowed: dict[tuple[bytes, int], int] = {}
    for rewrite in rewrites:
        task = rewrite.task
        of_files = {found.get(file.file_name, MIXED) for file in task.files}
        age = min(of_files)
        if len(of_files) > 1 or allowed.setdefault((task.partition, task.bucket), age) != age:
            crossed.append(rewrite)
    return crossed


def fence_conflict(base: Base, rewrites: Sequence[Rewrite]) -> Conflict | None:
    """A conflict if files from both sides of a point would be replaced in one bucket."""
    crossed = crossing(base, rewrites)
    if not crossed:
        return None
    return Conflict(
        "FENCE_CROSSED",
        f"{len(crossed[0].task.files)} files of '{base.context.title}' were compacted together, but a merge that "
        "has begun since takes only some of them",
        "plan the work again from the newest snapshot.",
    )


def apart(context: TableContext, rewrites: Sequence[Rewrite]) -> Iterator[list[Rewrite]]:
    """The rewrites that may be committed together, commit by commit."""
    found = file_ages(context, context.snapshots.head()) if is_fenced(context) else None
    shares: dict[int, list[Rewrite]] = {}
    for rewrite in rewrites:
        age = 0 if found is None else found.get(rewrite.task.files[0].file_name, MIXED)
        shares.setdefault(age, []).append(rewrite)
    yield from shares.values()
