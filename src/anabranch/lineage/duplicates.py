"""Events that a merge would bring into main a second time, because both sides read them from the same source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.lineage.model import entry_or_none
from anabranch.lineage.overlap import Place, spans, titles_of

Range = tuple[Place, Place]


def duplicate_sources(main: Sequence[Snapshot], branch: Sequence[Snapshot], /) -> list[MergeConflict]:
    """Return a conflict for each source of which both sides have read the same events since the fork.

    Inputs that commits do not record, or that cannot be compared, are taken as not shared.

    Args:
        main: its snapshots since then.
        branch: those of the branch that are to be merged.
    """
    theirs = {source: _joined(ranges for _, ranges in read) for source, read in _by_source(branch).items()}
    conflicts = []
    for source, read in sorted(_by_source(main).items()):
        shared = dict.fromkeys(snapshot for snapshot, found in read if _meets(found, theirs.get(source, [])))
        if shared:
            conflicts.append(_conflict(titles_of(main).get(source, source), list(shared)))
    return conflicts


def _by_source(snapshots: Iterable[Snapshot]) -> dict[str, list[tuple[int, Range]]]:
    """Return what was read of each source, with the id of the snapshot that holds the rows."""
    found: dict[str, list[tuple[int, Range]]] = {}
    for snapshot in snapshots:
        entry = entry_or_none(snapshot)
        for source, read in ({} if entry is None else spans(entry)).items():
            found.setdefault(source, []).extend((snapshot.id, span) for span in read if span[0] < span[1])
    return found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges sorted, with those that touch joined."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _meets(one: Range, others: Sequence[Range]) -> bool:
    """Whether a range overlaps any of others, which are sorted and do not touch."""
    start, end = one
    at = bisect_right(others, (end,)) - 1
    return at >= 0 and others[at][0] < end and others[at][1] > start


def _conflict(source: str, snapshots: Sequence[int]) -> MergeConflict:
    listed = ", ".join(map(str, snapshots[:5])) + (
        f" and {len(snapshots) - 5} more" if len(snapshots) > 5 else ""
    )
    return MergeConflict(
        "DUPLICATE_SOURCE_RANGE",
        f"the branch read events of {source} that main has from there as well, in snapshot {listed}: merged, they would "
        "be in the table twice",
        "put the branch in the place of main with `replace_main_branch`; or merge with 'allow_source_overlap'.",
        snapshots=tuple(snapshots),
    )
