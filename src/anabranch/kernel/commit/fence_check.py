"""Checks that compaction on a branch respects its merge fences; see `anabranch.kernel.provenance.fence`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.commit.commit_message import Rewrite
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.births import MIXED
from anabranch.kernel.provenance.fence import file_ages, is_fenced


def crossing(base: Base, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the rewrites that cannot be committed together with the others on this base."""
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
    """Return a conflict if files from both sides of a fence point would be replaced in one bucket."""
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
    """Yield groups of rewrites that may be committed together, one group per commit."""
    found = file_ages(context, context.snapshots.head()) if is_fenced(context) else None
    shares: dict[int, list[Rewrite]] = {}
    for rewrite in rewrites:
        age = 0 if found is None else found.get(rewrite.task.files[0].file_name, MIXED)
        shares.setdefault(age, []).append(rewrite)
    yield from shares.values()
