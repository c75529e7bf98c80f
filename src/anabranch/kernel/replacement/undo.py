"""Undoing a replacement of main: the replaced branch becomes main again.

It is itself a replacement, with the same seal and the same decision: what was committed to main meanwhile stays on the
branch that was main, and can be read and merged from there.
"""

from __future__ import annotations

from anabranch.errors import InvalidInputError
from anabranch.format.records.main_pointer import MainPointer
from anabranch.kernel.log.branch_log import check_still_there
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_intent
from anabranch.kernel.log.main_branch import former_main, main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.replacement.check import last_standing
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.replace import decide
from anabranch.kernel.replacement.request import Replacement, Replacing


def undo_replace(
    context: TableContext,
    replacement: int | None = None,
    *,
    alone: bool = False,
    by: str | None = None,
    reason: str | None = None,
) -> tuple[MainPointer, bool]:
    """Undo the last replacement of main.

    Args:
        context: the table.
        replacement: its number; if None the last one. If that was itself an undo, nothing is left to do, and to
            go back further the number must be given.
        alone: undo it although it was made together with those of other tables, which stay.
        by: who undoes it, for people.
        reason: why.

    Returns:
        The decision, and whether it had been made before.

    Raises:
        NotFoundError: main was never replaced, or the old main has been dropped.
        InvalidInputError: that replacement is not the last one in effect, or was made together with others.
    """
    while True:
        main = main_of(context)
        check_still_there(main)
        known = replacements(main)
        done = _made_before(known, replacement)
        if done is not None:
            return done, True
        last = last_standing(main, known, replacement)
        assert last.replaced is not None, "it is a replacement"
        if last.group is not None and not alone:
            raise _of_group(main, last)
        old = former_main(main, last.generation)
        take_back(main, last.replaced.old.uuid)
        target = main.on_branch(old.branch)
        wishes = Replacement(target.branch or "", by=by, reason=reason, force=True)
        made = decide(Replacing(main, target, last.replaced.fork, wishes, undoes=last.generation))
        if made is not None:
            return made, False


def _made_before(known: list[MainPointer], replacement: int | None) -> MainPointer | None:
    """Return the decision that undid it, if that is the newest one."""
    last = known[-1] if known else None
    if last is None or last.replaced is None or last.replaced.undoes is None:
        return None
    return last if replacement in (None, last.replaced.undoes) else None


def _of_group(main: TableContext, pointer: MainPointer) -> InvalidInputError:
    others = "others"
    intent = None if main.groups is None or pointer.group is None else find_intent(main.groups, pointer.group)
    if intent is not None:
        others = (
            ", ".join(sorted(m.table for m in intent.members if m.table_uuid != main.table_uuid)) or others
        )
    return InvalidInputError(
        f"main of '{main.name}' was replaced together with that of {others}, as group {pointer.group}",
        hint=f"take all of it back at once with `anabranch cascade --undo {pointer.group}`, or only this table with "
        "`undo-replace --alone`.",
    )
