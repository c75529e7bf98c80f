"""The producer of a snapshot: the job, its run and code, and what it read."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents
from anabranch.lineage.store import CommitStore
from anabranch.lineage.trace import Producer


def producer(store: CommitStore, ref: CommitRef) -> Producer:
    """Return the producer of a snapshot. Raises `NotFoundError` if lineage does not know it.

    Args:
        store: where commits are known.
        ref: the branch, and an id that the snapshot has on it.
    """
    own = Contents(store).own(ref)
    commit, line = store.commit(own), store.line(own.branch_uuid)
    title = own.branch_uuid if line is None else line.title
    if commit is None:
        raise NotFoundError(
            f"lineage knows no snapshot {own.snapshot} of '{title}': the newest is {store.newest(own.branch_uuid)}"
        )
    unread = () if commit.unread is None else (commit.unread,)
    said = () if commit.entry is None else commit.entry.problems
    return Producer(title, own.snapshot, commit.time_millis, commit.kind, commit.entry, (*unread, *said))
