"""Finds commits that read what is taken out, whether any of its rows went into them or not.

Lineage skips batches without rows: nothing of them went anywhere. A correction does not: what replaces an
empty batch may bring rows, and a reader of that batch has already moved past it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anabranch.kernel.log.context import TableContext
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents, Segment, Segments
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore, Read, reads_of


def readers_of(
    store: CommitStore, contents: Contents, taken_out: Segments, mains: Iterable[TableContext]
) -> dict[str, Ids]:
    """Return commits in the history of mains that had read any of some commits, by the branch they were made on.

    Args:
        taken_out: the commits that are asked about. Those that only rewrite files do not count.
        mains: the mains whose history is searched.
    """
    wanted = _by_branch(store, taken_out)
    found: dict[str, Ids] = {}
    for branch, ids in wanted.items():
        for first, last in ids:
            for other, images in contents.images(branch, first, last).items():
                for begin, end in images:
                    for read in store.readers(other, begin, end):
                        if _meets(contents, read, wanted):
                            found.setdefault(read.sink, Ids()).add(read.snapshot, read.snapshot)
    for segment in _histories(store, contents, wanted, mains):
        for snapshot in store.rowless(segment.branch, segment.first, segment.last):
            commit = store.commit(CommitRef(segment.branch, snapshot))
            if commit is not None and any(_meets(contents, read, wanted) for read in reads_of(commit)):
                found.setdefault(segment.branch, Ids()).add(snapshot, snapshot)
    return found


def _histories(
    store: CommitStore, contents: Contents, wanted: Mapping[str, Ids], mains: Iterable[TableContext]
) -> Iterator[Segment]:
    """Yield the histories of mains that ever took something from the tables of these commits."""
    tables = {line.table_uuid for branch in wanted if (line := store.line(branch)) is not None}
    sources = {line.branch_uuid for table in tables for line in store.lines(table)}
    sinks = {flow.sink for flow in store.flows() if flow.source in sources}
    for main in mains:
        head = main.snapshots.head()
        for segment in contents.history(main.branch_uuid, 1, 0 if head is None else head.id):
            if segment.branch in sinks:
                yield segment


def _meets(contents: Contents, read: Read, wanted: Mapping[str, Ids]) -> bool:
    return any(
        segment.branch in wanted and wanted[segment.branch].meets(segment.first, segment.last)
        for segment in contents.taken(read)
    )


def _by_branch(store: CommitStore, segments: Segments) -> dict[str, Ids]:
    """Return the commits by branch, without those that only rewrite."""
    found: dict[str, Ids] = {}
    for segment in segments:
        found.setdefault(segment.branch, Ids()).add(segment.first, segment.last)
    return {branch: ids.without(_rewriting(store, branch, ids)) for branch, ids in found.items()}


def _rewriting(store: CommitStore, branch: str, ids: Ids) -> Ids:
    found = Ids()
    for first, last in ids:
        for snapshot in store.rowless(branch, first, last):
            commit = store.commit(CommitRef(branch, snapshot))
            if commit is not None and not commit.may_bring_rows:
                found.add(snapshot, snapshot)
    return found
