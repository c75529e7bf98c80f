"""Batches that read bad rows and made none of them: lineage passes them over, because nothing of the rows went anywhere.

A correction does not: what stands in the place of the bad rows may make rows, and the job has gone past it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.kernel.context import TableContext
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents, Segment, Segments
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore, reads_of


def silent_readers(
    store: CommitStore, contents: Contents, taken_out: Segments, mains: Iterable[TableContext]
) -> dict[str, Ids]:
    """Commits without rows that had read any of some commits, by the branch that they were made on.

    Args:
        store: where commits are known.
        contents: of the store.
        taken_out: the commits that are asked about.
        mains: the mains whose history is looked at.
    """
    wanted = _by_branch(taken_out)
    tables = {line.table_uuid for branch in wanted if (line := store.line(branch)) is not None}
    sources = {line.branch_uuid for table in tables for line in store.lines(table)}
    sinks = {flow.sink for flow in store.flows() if flow.source in sources}
    found: dict[str, Ids] = {}
    for main in mains:
        head = main.snapshots.head()
        for segment in contents.history(main.branch_uuid, 1, 0 if head is None else head.id):
            if segment.branch in sinks:
                ids = [
                    i
                    for i in _silent(store, segment)
                    if _has_read(store, contents, segment.branch, i, wanted)
                ]
                if ids:
                    found.setdefault(segment.branch, Ids()).update(Ids.of(ids))
    return found


def _silent(store: CommitStore, segment: Segment) -> Iterable[int]:
    return store.rowless(segment.branch, segment.first, segment.last)


def _has_read(
    store: CommitStore, contents: Contents, branch: str, snapshot: int, wanted: Mapping[str, Ids]
) -> bool:
    commit = store.commit(CommitRef(branch, snapshot))
    if commit is None:
        return False
    return any(
        segment.branch in wanted and wanted[segment.branch].meets(segment.first, segment.last)
        for read in reads_of(commit)
        for segment in contents.taken(read)
    )


def _by_branch(segments: Segments) -> dict[str, Ids]:
    found: dict[str, Ids] = {}
    for segment in segments:
        found.setdefault(segment.branch, Ids()).add(segment.first, segment.last)
    return found
