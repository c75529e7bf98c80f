"""Whether two commits read the same events: whether their ranges of one source overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_columns import field_of, property_of, snapshots_at
from anabranch.kernel.log.archive import Following
from anabranch.kernel.log.commits import expired
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.plan import Commits
from anabranch.kernel.provenance.past import counting
from anabranch.lineage.model import LINEAGE_PROPERTY, Input, LineageEntry, TableInput, entry_or_none
from anabranch.streaming.offsets import Position

Place = tuple[int, int]
Span = tuple[Place, Place]
"""A range read of a source: after the first place, up to the last."""

_START: Place = (-1, 0)


def first_overlap(
    entry: LineageEntry, snapshots: Iterable[Snapshot | PastSnapshot]
) -> Snapshot | PastSnapshot | None:
    """Return the first of these snapshots known to overlap the commit's reads; None if there is none."""
    own = spans(entry)
    for snapshot in snapshots:
        found = entry_or_none(snapshot)
        if found is not None and _has_common(own, spans(found)):
            return snapshot
    return None


def spans(entry: LineageEntry) -> dict[str, list[Span]]:
    """Return the ranges that the commit read of each source whose positions can be compared.

    Tables that it read as of a moment are left out: a look-up consumes no events.
    """
    found: dict[str, list[Span]] = {}
    for read in entry.consumed:
        if isinstance(read, TableInput) and read.is_state:
            continue
        ends, starts = places(read, read.end), places(read, read.start)
        for source, end in (ends or {}).items():
            found.setdefault(source, []).append(((starts or {}).get(source, _START), end))
    return found


def places(read: Input, at: Any) -> Mapping[str, Place] | None:
    """Return an input's start or end as places per source, greater further on; None if not comparable."""
    if isinstance(read, TableInput):
        assert isinstance(at, Position), "inputs that are tables have positions"
        return {f"table {read.branch_uuid}": (at.delivered_through, at.files or 0)}
    match read.kind, at:
        case "kafka", dict():
            return {
                f"topic {topic} {partition}": (offset, 0)
                for topic, offsets in at.items()
                for partition, offset in offsets.items()
                if isinstance(offset, int)  # not the topic's id
            }
        case "files", {"logOffset": int(offset)}:
            return {f"folder {read.name}" if read.name else read.source: (offset, 0)}
        case _:
            return None


def titles_of(snapshots: Iterable[Snapshot | PastSnapshot]) -> dict[str, str]:
    """Return display names of the sources of `spans` that some snapshots have read: tables by their newest names."""
    found: dict[str, str] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.id):
        entry = entry_or_none(snapshot)
        for read in () if entry is None else entry.consumed:
            for source in places(read, read.end) or ():
                found[source] = f"table {read.name}" if isinstance(read, TableInput) else source
    return found


def _has_common(one: Mapping[str, Sequence[Span]], other: Mapping[str, Sequence[Span]]) -> bool:
    return any(
        max(mine[0], theirs[0]) < min(mine[1], theirs[1])
        for source in one.keys() & other.keys()
        for mine in one[source]
        for theirs in other[source]
    )


Range = tuple[Place, Place]


def duplicate_sources(
    main: Commits, branch: Commits, /, *, besides: str | None = None
) -> list[MergeConflict]:
    """Return a conflict for each source of which both sides have read the same events since the fork.

    Commits that have expired are looked up in the table's archive. Inputs that commits do not record, or that cannot be
    compared, are taken as not shared, and so is what another engine has expired.

    Args:
        main: its commits since then.
        branch: those of the branch that are to be merged.
        besides: user whose commits on main do not count.

    Raises `AnabranchError` if the archive cannot be read.
    """
    theirs = {
        source: _joined(ranges for _, ranges in read)
        for source, read in _by_source(_in_effect(branch)).items()
    }
    if not theirs:
        return []
    done, conflicts = _in_effect(main), []
    for source, read in sorted(_by_source(done, besides).items()):
        shared = dict.fromkeys(snapshot for snapshot, found in read if _meets(found, theirs.get(source, [])))
        if shared:
            conflicts.append(_conflict(titles_of(done).get(source, source), list(shared)))
    return conflicts


def _in_effect(commits: Commits) -> Sequence[Snapshot | PastSnapshot]:
    """Return the commits that were not rolled back, oldest first, also those that have expired."""
    left = commits.left
    if not left or left[0].id <= commits.after + 1:
        return counting(left)
    older = [*expired(commits.context, Following.of(left[0]), above=commits.after)]
    return counting([*reversed(older), *left])


def _by_source(
    snapshots: Sequence[Snapshot | PastSnapshot], besides: str | None = None
) -> dict[str, list[tuple[int, Range]]]:
    """Return what was read of each source, with the id of the snapshot that holds the rows."""
    found: dict[str, list[tuple[int, Range]]] = {}
    said = zip(property_of(snapshots, LINEAGE_PROPERTY), field_of(snapshots, "commit_user"), strict=True)
    rows = [row for row, (entry, user) in enumerate(said) if entry is not None and user != besides]
    for snapshot in snapshots_at(snapshots, rows):
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
