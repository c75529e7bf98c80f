"""What keeps rows of a branch out of main: the audit gate, and the fence between rows of before and after a merge.

The gate requires a passed audit of exactly the head that is taken.
A verdict is bound to the audited head, by its stamp. Later commits make it void, except for compactions,
which change no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.errors import CommitConflictError
from anabranch.format.records.fork import AuditRecord
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.commit.commit_message import Rewrite
from anabranch.kernel.log.audit_log import audits
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.births import MIXED
from anabranch.kernel.provenance.fence import file_ages, is_fenced

NOT_AUDITED = "NOT_AUDITED"
"""This head has no audit: commits, or a schema change, came after the last one."""
AUDIT_FAILED = "AUDIT_FAILED"
"""The newest audit of this head failed."""


def check_audited(branch: TableContext, head: Snapshot | None, name: str | bool | None = None) -> AuditRecord:
    """Return the newest audit of a head; raise unless it passed.

    Args:
        head: the head that is to be merged or to become main.
        name: of the set of checks that must have passed; any if None or True.

    Raises:
        CommitConflictError: there is no audit of this head (``NOT_AUDITED``), or the newest failed (``AUDIT_FAILED``).
    """
    wanted = name if isinstance(name, str) else None
    known = [record for _, record in audits(branch) if wanted in (None, record.name)]
    latest = branch.schemas.latest()
    schema_id = None if latest is None else latest.id
    stamps = {} if head is None else {s.stamp: s.id for s in _same_rows(branch, head)}
    fitting = [r for r in known if r.snapshot.stamp in stamps and r.schema_id == schema_id]
    if fitting and fitting[-1].passed:
        return fitting[-1]
    asked = "audit" if wanted is None else f"audit '{wanted}'"
    if fitting:
        failed = ", ".join(f"'{c.name}'" for c in fitting[-1].checks if c.blocking and not c.passed)
        raise _refusal(
            AUDIT_FAILED,
            f"the {asked} of '{branch.title}' at snapshot {fitting[-1].snapshot.id} failed: {failed}",
            "correct the rows on the branch, and `audit` it again.",
        )
    at = "it has no snapshot" if head is None else f"its newest snapshot is {head.id}"
    last = f"; the last one was of snapshot {known[-1].snapshot.id}" if known else ""
    raise _refusal(
        NOT_AUDITED, f"'{branch.title}' has passed no {asked} as it is now: {at}{last}", "`audit` it first."
    )


def _same_rows(branch: TableContext, head: Snapshot) -> Iterator[Snapshot]:
    """Yield the head and the snapshots before it with the same rows."""
    for snapshot in branch.snapshots.backwards(head):
        yield snapshot
        if snapshot.commit_kind is not CommitKind.COMPACT or snapshot.delta_record_count != 0:
            return


def _refusal(kind: str, message: str, hint: str) -> CommitConflictError:
    return CommitConflictError(message, conflicts=(Conflict(kind, message, hint),), hint=hint)


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
