"""The audits of a branch, and the gate that merging and replacing can be made to go through.

A verdict is bound to the head that was looked at, by its stamp. Commits after it make it void; only compactions do
not, which change no rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import CommitConflictError, NotFoundError
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.context import TableContext
from anabranch.kernel.parallel import each
from anabranch.spec.audit import AUDIT_PREFIX, AuditRecord
from anabranch.spec.layout import BRANCH_FOLDER, numbered_id
from anabranch.spec.snapshot import CommitKind, Snapshot

NOT_AUDITED = "NOT_AUDITED"
"""No audit of this head: commits, or a change of the schema, came after the last one."""
AUDIT_FAILED = "AUDIT_FAILED"
"""The newest audit of this head failed."""


def record_audit(branch: TableContext, record: AuditRecord) -> int:
    """Store a record under the next number, which is returned."""
    number = max(_numbers(branch), default=0) + 1
    while not branch.storage.put_if_absent(_path(branch, number), record.to_json()):
        number += 1
    return number


def audits(branch: TableContext) -> list[tuple[int, AuditRecord]]:
    """All audits of the branch with their numbers, oldest first. Raises `CorruptTableError`."""
    numbers = _numbers(branch)
    found = each(lambda number: _find(branch, number), numbers)
    pairs = zip(numbers, found, strict=True)
    # A folder may hold records of a branch of the same name that was there before.
    return [(n, r) for n, r in pairs if r is not None and r.snapshot.branch_uuid == branch.branch_uuid]


def check_audited(branch: TableContext, head: Snapshot | None, name: str | bool | None = None) -> AuditRecord:
    """The newest audit of a head, which passed.

    Args:
        branch: whose head it is.
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
    """The head and the snapshots before it with the same rows."""
    for snapshot in branch.snapshots.backwards(head):
        yield snapshot
        if snapshot.commit_kind is not CommitKind.COMPACT or snapshot.delta_record_count != 0:
            return


def _refusal(kind: str, message: str, hint: str) -> CommitConflictError:
    return CommitConflictError(message, conflicts=(Conflict(kind, message, hint),), hint=hint)


def _numbers(branch: TableContext) -> list[int]:
    """Ascending."""
    folder = branch.layout.branch_root or BRANCH_FOLDER
    names = (info.path.rpartition("/")[2] for info in branch.storage.list(folder))
    return sorted(number for name in names if (number := numbered_id(name, AUDIT_PREFIX)) is not None)


def _find(branch: TableContext, number: int) -> AuditRecord | None:
    path = _path(branch, number)
    try:
        return AuditRecord.from_json(branch.storage.get(path), path=path)
    except NotFoundError:
        return None


def _path(branch: TableContext, number: int) -> str:
    name = f"{AUDIT_PREFIX}{number}"
    layout = branch.layout
    return layout.branch_file_path(name) if layout.branch_root else layout.branches_file_path(name)
