"""The audits of a branch: numbered, write-once records."""

from __future__ import annotations

from anabranch.format.records.fork import AUDIT_PREFIX, AuditRecord
from anabranch.format.records.layout import BRANCH_FOLDER, numbered_id
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import OnUnread, each, tried


def record_audit(branch: TableContext, record: AuditRecord) -> int:
    """Store an audit record under the next free number and return that number."""
    number = max(_numbers(branch), default=0) + 1
    while not branch.storage.put_if_absent(_path(branch, number), record.to_json()):
        number += 1
    return number


def audits(branch: TableContext, unread: OnUnread | None = None) -> list[tuple[int, AuditRecord]]:
    """All audits of the branch with their numbers, oldest first.

    Args:
        branch: the branch.
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """

    def find(number: int) -> AuditRecord | None:
        return tried(f"audit {number} of '{branch.title}'", lambda: _find(branch, number), unread)

    numbers = _numbers(branch)
    found = each(find, numbers, at=branch.storage)
    pairs = zip(numbers, found, strict=True)
    # A folder may hold records of a branch of the same name that was there before.
    return [(n, r) for n, r in pairs if r is not None and r.snapshot.branch_uuid == branch.branch_uuid]


def _numbers(branch: TableContext) -> list[int]:
    """Return the numbers of the stored audit records, ascending."""
    folder = branch.layout.branch_root or BRANCH_FOLDER
    names = (info.path.rpartition("/")[2] for info in branch.storage.list(folder))
    return sorted(number for name in names if (number := numbered_id(name, AUDIT_PREFIX)) is not None)


def _find(branch: TableContext, number: int) -> AuditRecord | None:
    return AuditRecord.find(branch.storage, _path(branch, number))


def _path(branch: TableContext, number: int) -> str:
    name = f"{AUDIT_PREFIX}{number}"
    layout = branch.layout
    return layout.branch_file_path(name) if layout.branch_root else layout.branches_file_path(name)
