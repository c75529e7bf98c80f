"""Undoes a cascade: all of its tables at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cascade.naming import is_cascade_of
from anabranch.errors import NotFoundError
from anabranch.kernel.replacement.result import GroupResult
from anabranch.kernel.replacement.undo_group import last_to_undo

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
    """Undo what a cascade published, in all of its tables at once. Repeating it changes nothing.

    Args:
        lake: the warehouse.
        number: of the published group; if None the last one that was not undone, or if the last action was
            an undo, that one, so that nothing is left to do.
        table: the table that was corrected: then its last cascade is undone.
        by: who undoes it, for people.
        reason: why.

    Raises as `Lake.undo_group`.
    """
    if number is None and table is not None:
        number = last_to_undo(
            lake.groups(), lambda group: all(is_cascade_of(table, branch) for _, branch, _ in group.tables)
        )
        if number is None:
            raise NotFoundError(f"no cascade of '{table}' was ever published")
    return lake.undo_group(number, by=by, reason=reason)
