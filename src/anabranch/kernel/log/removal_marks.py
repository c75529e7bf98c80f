"""Marks of expiries that remove snapshots, which they do by number, for destructive rollbacks, which free numbers.

An expiry puts ``ledger/expiring-<last>-<uuid>`` before it looks for rollbacks, and removes it once it deletes nothing more. It
is the process that counts, not what is still there: one that stands still would delete again what another expiry has long
removed and somebody else has committed under the same number. So the mark of one that died counts too, for a week.

A rollback says what it is about to do by its pin (`anabranch.kernel.log.rollback_pins`), before it looks for marks: at least
one of both finds the other. The snapshot that it goes to counts as well: as the newest, it must not be removed.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.store_clock import removal_time

_FOLDER: Final = "ledger"
_FILE: Final = re.compile(r"expiring-([1-9][0-9]{0,17})-[0-9a-f-]{36}")
_WEEK: Final = 7 * 86_400_000


def mark_removal(context: TableContext, last: int) -> str:
    """Say that snapshots up to this one are about to be removed; the path of the mark."""
    name = f"{_FOLDER}/expiring-{last}-{context.runtime.ids.uuid()}"
    path = context.layout.branch_file_path(name)
    context.storage.put(path, b"{}")
    return path


def unmark_removal(context: TableContext, path: str) -> None:
    """Say that this expiry removes no snapshots any more."""
    context.storage.delete(path)


def is_expiring(context: TableContext, since: int) -> bool:
    """Whether an expiry may still remove snapshots from this number on. Marks of a week ago are taken away."""
    marks = {
        info.path: info.modified_millis
        for info in context.storage.list(context.layout.branch_file_path(_FOLDER))
        if (match := _FILE.fullmatch(info.path.rpartition("/")[2])) is not None and int(match[1]) >= since
    }
    if not marks:
        return False
    oldest = removal_time(context) - _WEEK
    context.storage.delete_many([path for path, made in marks.items() if made < oldest])
    return any(made >= oldest for made in marks.values())
