"""Whether commits read the same events: whether their ranges of one source overlap.

Commits may be missing between those that are known: their segment of the archive is damaged, or another engine expired
them. A job reads each source from where it left off. So what the missing commits read is what lies between the job's last
known range before them and its first one after them; where one of these is not known either, it may be anything before or
after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_columns import field_of, property_of, snapshots_at
from anabranch.kernel.log.commits import with_expired
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.plan import Commits
from anabranch.kernel.provenance.past import counting, counting_of
from anabranch.lineage.model import LINEAGE_PROPERTY, Input, LineageEntry, TableInput, entry_or_none
from anabranch.streaming.offsets import Position

Place = tuple[int, int]
Span = tuple[Place, Place]
"""A range read of a source: after the first place, up to the last."""

_START: Place = (-1, 0)
_END: Place = (1 << 63, 0)


class Gap(NamedTuple):
    """Snapshots in a row of which nothing is known."""

    first: int
    last: int

    def __str__(self) -> str:
        ids = (
            f"snapshot {self.first}" if self.first == self.last else f"snapshots {self.first} to {self.last}"
        )
        return f"{ids}, of which no record is left"


def first_overlap(
    entry: LineageEntry, commits: Sequence[Snapshot | PastSnapshot], *, after: int, besides: str
) -> int | Gap | None:
    """Return where in a history the events that a commit reads are already; None if they are not.

    Args:
        commits: what is known of the history after a snapshot, oldest first.
        after: id of that snapshot.
        besides: user whose commits do not count.
    """
    done = _by_source(commits, counting(commits), after, besides)
    for source, read in spans(entry).items():
        own = _joined(span for span in read if not _is_empty(span))
        for where, span in done.get(source, ()):
            if _meets(span, own):
                return where
    return None


def spans(entry: LineageEntry) -> dict[str, list[Span]]:
    """Return the ranges that the commit read of each source whose positions can be compared; that of an idle job is empty.

    Tables that it read as of a moment are left out: a look-up consumes no events.
    """
    found: dict[str, list[Span]] = {}
    for read in entry.consumed:
        if isinstance(read, TableInput) and read.is_state:
            continue
        ends, starts = _own_places(read, read.end), _own_places(read, read.start)
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


def _own_places(read: Input, at: Any) -> Mapping[str, Place] | None:
    """Return places as `places` does, what a branch of a table began with as of the branch that it is of.

    Before main of a source was replaced and after it, or on a branch of it, the same snapshots are read.
    """
    found = places(read, at)
    if found is None or not isinstance(read, TableInput):
        return found
    ((source, place),) = found.items()
    of_makers: dict[str, Place] = {}
    for uuid, last in read.begun:
        if place > (last, 0):
            of_makers[source], place = place, (last, 0)
        source = f"table {uuid}"
    return {**of_makers, source: place}


def titles_of(snapshots: Iterable[Snapshot | PastSnapshot]) -> dict[str, str]:
    """Return display names of the sources of `spans` that some snapshots have read: tables by their newest names."""
    found: dict[str, str] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.id):
        entry = entry_or_none(snapshot)
        for read in () if entry is None else entry.consumed:
            for source in _own_places(read, read.end) or ():
                found[source] = f"table {read.name}" if isinstance(read, TableInput) else source
    return found


def duplicate_sources(
    main: Commits, branch: Commits, /, *, besides: str | None = None
) -> list[MergeConflict]:
    """Return a conflict for each source of which both sides have read the same events since the fork.

    Commits that have expired are looked up in the table's archive. Inputs that commits do not record, or that cannot be
    compared, are taken as not shared.

    Args:
        main: its commits since then.
        branch: those of the branch that are to be merged.
        besides: user whose commits on main do not count.

    Raises `AnabranchError` if the archive cannot be read.
    """
    known = with_expired(branch.context, branch.left, branch.after)
    theirs = {source: _joined(span for _, span in read) for source, read in _of_side(branch, known).items()}
    if not theirs:
        return []
    done, conflicts = with_expired(main.context, main.left, main.after), []
    for source, read in sorted(_of_side(main, done, besides).items()):
        shared = dict.fromkeys(where for where, span in read if _meets(span, theirs.get(source, [])))
        if shared:
            conflicts.append(_conflict(titles_of(done).get(source, source), [*shared]))
    return conflicts


_Reads = dict[str, list[tuple[int | Gap, Span]]]
"""What was read of each source, with the snapshot that holds the rows."""


def _of_side(side: Commits, known: Sequence[Snapshot | PastSnapshot], besides: str | None = None) -> _Reads:
    return _by_source(known, counting_of(side.context, known), side.after, besides)


def _by_source(
    commits: Sequence[Snapshot | PastSnapshot],
    counted: Sequence[Snapshot | PastSnapshot],
    after: int,
    besides: str | None = None,
) -> _Reads:
    """Return what the commits after a snapshot read that were not rolled back, oldest first; then that of missing ones.

    Args:
        commits: what is known of the history after the snapshot, oldest first.
        counted: those of them that were not rolled back.
        after: id of the snapshot.
        besides: user whose commits do not count.
    """
    found: _Reads = {}
    of_jobs: dict[tuple[str, str], list[tuple[int, Span]]] = {}
    said = zip(property_of(counted, LINEAGE_PROPERTY), field_of(counted, "commit_user"), strict=True)
    rows = [row for row, (entry, user) in enumerate(said) if entry is not None and user != besides]
    for snapshot in snapshots_at(counted, rows):
        entry = entry_or_none(snapshot)
        if entry is None:
            continue
        for source, read in spans(entry).items():
            found.setdefault(source, []).extend((snapshot.id, span) for span in read if not _is_empty(span))
            whole = min(start for start, _ in read), max(end for _, end in read)
            of_jobs.setdefault((source, entry.job), []).append((snapshot.id, whole))
    for gap in _gaps(commits, counted, after):
        for (source, _), known in of_jobs.items():
            at = bisect_right(known, (gap.first,))
            lost = known[at - 1][1][1] if at else _START, known[at][1][0] if at < len(known) else _END
            if not _is_empty(lost):
                found[source].append((gap, lost))
    return found


def _gaps(
    commits: Sequence[Snapshot | PastSnapshot], counted: Sequence[Snapshot | PastSnapshot], after: int
) -> Iterator[Gap]:
    """Yield what is missing of the commits after a snapshot, unless it was rolled back: then the next is not counted."""
    if not commits or len(commits) == commits[-1].id - after:
        return
    ids, still = [after, *(one.id for one in commits)], {one.id for one in counted}
    for before, following in pairwise(ids):
        if following > before + 1 and following in still:
            yield Gap(before + 1, following - 1)


def _is_empty(span: Span) -> bool:
    return span[0] >= span[1]


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the ranges sorted, with those that touch joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _meets(one: Span, others: Sequence[Span]) -> bool:
    """Whether a range overlaps any of others, which are sorted and do not touch."""
    start, end = one
    at = bisect_right(others, (end,)) - 1
    return at >= 0 and others[at][0] < end and others[at][1] > start


def _conflict(source: str, where: Sequence[int | Gap]) -> MergeConflict:
    known = [one for one in where if isinstance(one, int)]
    listed = ", ".join(map(str, known[:5])) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
    lost = ", ".join(str(one) for one in where if isinstance(one, Gap))
    if known:
        told = f"the branch read events of {source} that main has from there as well, in snapshot {listed}"
    else:
        told = f"the branch read events of {source} that main seems to have from there as well, in {lost}"
    return MergeConflict(
        "DUPLICATE_SOURCE_RANGE",
        f"{told}: merged, they would be in the table twice",
        "put the branch in the place of main with `replace_main_branch`; or merge with 'allow_source_overlap'.",
        snapshots=tuple(known),
    )
