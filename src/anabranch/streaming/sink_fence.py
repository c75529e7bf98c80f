"""Check whether a streaming query may write to main after main was replaced.

A query that wrote to the old main does not go on with the new one by itself: the job of the branch that took its place
has read the same sources, so every event would be there twice. It is known by what its checkpoint holds: identities are
kept by branch. The query of that job finds its own, and goes on. With ``sink.on-replace=follow`` an old one is let
through, under a new identity, unless it is certain to write what is there already.
"""

from __future__ import annotations

from anabranch.errors import SealedBranchError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import recorded_after
from anabranch.kernel.log.main_pointer import replacements
from anabranch.storage.protocol import Storage
from anabranch.streaming.sink_identity import SinkIdentity, SinkRecord


def former_identity(checkpoint: Storage, main: TableContext) -> tuple[SinkIdentity, MainPointer] | None:
    """Return a query's identity at a replaced main, and the replacement.

    None for a query that writes to this branch already, or that never wrote to main.
    """
    if not main.main_generation or SinkRecord(checkpoint, main.branch_uuid).known_identity() is not None:
        return None
    for pointer in reversed(replacements(main)):
        if pointer.replaced is None or pointer.replaced.old.uuid == main.branch_uuid:
            continue
        found = SinkRecord(checkpoint, pointer.replaced.old.uuid).known_identity()
        if found is not None:
            return found, pointer
    return None


def fenced(main: TableContext, job: str, pointer: MainPointer) -> SealedBranchError:
    """Return the error for a query that wrote to the old main."""
    others = [name for name in jobs_of(main, pointer) if name]
    at_work = f" Its rows come from the job '{others[0]}'." if others else ""
    return SealedBranchError(
        f"the streaming query '{job}' wrote to the main of '{main.name}' that was replaced by {pointer.main}: replacement "
        f"{pointer.generation}.{at_work} Nothing was written",
        hint="end this query if that job does its work; otherwise every event would be there twice. What it wrote is kept "
        f"as '{former_main_name(pointer.generation)}'. To write to the new main nevertheless, restart it with "
        "sink.on-replace=follow.",
    )


def check_may_follow(main: TableContext, job: str, pointer: MainPointer) -> None:
    """Raise `SealedBranchError` if the new main has a writer of the same job name."""
    if job in jobs_of(main, pointer):
        raise SealedBranchError(
            f"the streaming query '{job}' cannot follow to the new main of '{main.name}': {pointer.main} is written by a "
            "job of the same name",
            hint="end this query, or give it another job name and a new checkpoint location.",
        )


def jobs_of(main: TableContext, pointer: MainPointer) -> list[str]:
    """Return the jobs that write streams to the new main, latest first."""
    fork = 0 if pointer.replaced is None else pointer.replaced.fork.id
    head = main.snapshots.head()
    users = []
    for snapshot in () if head is None else main.snapshots.backwards(head):
        if snapshot.id <= fork:
            break
        if snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            users.append(snapshot.commit_user)
    users += recorded_after(main, fork)
    suffix = f"@{main.branch_uuid}"
    return list(dict.fromkeys(user.removesuffix(suffix) for user in users if user.endswith(suffix)))
