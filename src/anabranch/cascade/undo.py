"""Taking a cascade back: all of its tables at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import NotFoundError
from anabranch.kernel.replacement.group_result import GroupResult

if TYPE_CHECKING:
    from anabranch.lake import Lake


def undo_cascade(
    lake: Lake,
    number: int | None = None,
    *,
    table: str | None = None,
    by: str | None = None,
    reason: str | None = None,
) -> GroupResult:
    """Take back what a cascade published, in all of its tables at once. Repeating it changes nothing.

    Args:
        lake: the warehouse.
        number: of the group that was published; if None the last one.
        table: the table that was corrected: then its last cascade is meant.
        by: who takes it back, for people.
        reason: why.

    Raises as `Lake.undo_group`.
    """
    if number is None and table is not None:
        ours = [
            group.number
            for group in lake.groups()
            if group.outcome == "replaced"
            and group.undoes is None
            and all(branch.startswith(f"cascade-{table}-") for _, branch, _ in group.tables)
        ]
        if not ours:
            raise NotFoundError(f"no cascade of '{table}' was ever published")
        number = ours[-1]
    return lake.undo_group(number, by=by, reason=reason)
