"""How far a branch has read compared with main, by the recorded positions of both in their sources.

Positions are known for tables, Kafka topics and folders of files. Every streaming commit records how far it
read; a branch covers main when it has read as far in every source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.provenance.coverage import Covered
from anabranch.kernel.provenance.past import counting
from anabranch.lineage.model import entry_or_none
from anabranch.lineage.overlap import Place, places
from anabranch.lineage.since_fork import Past


def coverage(
    main: Sequence[Snapshot], branch: Sequence[Snapshot], fork: Snapshot | None, /
) -> Covered | None:
    """Return how far the branch covers main; see `anabranch.kernel.provenance.coverage.Coverage`.

    Unknown if a commit of main since the fork does not say what it read, if the branch has commits and none of
    them does, or if one read a source whose positions cannot be compared.
    """
    begun = {} if fork is None else ends_of(fork) or {}
    ends = [ends_of(snapshot) for snapshot in counting(main) if adds_rows(snapshot)]
    own = [(snapshot, ends_of(snapshot)) for snapshot in branch]
    # What a rollback removed was read, but is not there any more.
    kept = [ends_of(snapshot) for snapshot in counting(branch) if adds_rows(snapshot)]
    if any(end is None for end in ends) or (ends and kept and all(end is None for end in kept)):
        return None
    read = _furthest([begun, *kept])
    behind = sum(not _is_within(end, read) for end in ends if end is not None)
    last = _furthest([begun, *ends])
    resume = fork
    for snapshot, end in own:
        if end is not None and not _is_within(end, last):
            break
        resume = snapshot
    return Covered(behind, resume)


def adds_rows(snapshot: Past) -> bool:
    """Whether it may have changed the set of rows."""
    return snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE)


def ends_of(snapshot: Past) -> dict[str, Place] | None:
    """Return how far the commit read each source; None if that is not known, or cannot be compared."""
    entry = entry_or_none(snapshot)
    if entry is None or not entry.knows_positions or entry.is_silent:
        return None
    ends: list[Mapping[str, Place]] = []
    for read in entry.consumed:
        found = places(read, read.end)
        if found is None:
            return None
        ends.append(found)
    return _furthest(ends)


def _furthest(ends: Sequence[Mapping[str, Place] | None]) -> dict[str, Place]:
    furthest: dict[str, Place] = {}
    for end in ends:
        for source, place in (end or {}).items():
            furthest[source] = max(place, furthest.get(source, place))
    return furthest


def _is_within(end: Mapping[str, Place], limit: Mapping[str, Place]) -> bool:
    return all(source in limit and place <= limit[source] for source, place in end.items())
