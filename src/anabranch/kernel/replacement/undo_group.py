"""Taking a replacement of main in several tables back: in all of them at once, by the same way.

A table that was replaced together with others is not taken back alone, unless somebody asks for just that: its new main
was made from the new mains of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.kernel.context import TableContext
from anabranch.kernel.replacement.group import groups_of
from anabranch.kernel.replacement.group_attempt import Ready, decide_together
from anabranch.kernel.replacement.group_log import find_decision, find_intent
from anabranch.kernel.replacement.group_result import GroupResult, group_infos
from anabranch.kernel.replacement.main import former_main, main_of
from anabranch.kernel.replacement.pointer import replacements
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.kernel.replacement.standing import last_standing, standing
from anabranch.kernel.replacement.wishes import Replacement, Replacing
from anabranch.spec.group import GroupMember
from anabranch.spec.main_pointer import MainPointer
from anabranch.storage.protocol import Storage


def group_to_undo(groups: Storage, number: int | None) -> int:
    """The group that is meant; the last that was made and takes none back if None. Raises `NotFoundError`."""
    if number is not None:
        return number
    made = [found for found in group_infos(groups) if found.outcome == "replaced" and found.undoes is None]
    if not made:
        raise NotFoundError("no tables of this warehouse were ever replaced together")
    return made[-1].number


def members_of(groups: Storage, number: int) -> tuple[GroupMember, ...]:
    """The tables of a group that was made. Raises `NotFoundError`: there is none of that number, or it was not made."""
    intent, decided = find_intent(groups, number), find_decision(groups, number)
    if intent is None or decided is None or not decided.made:
        what = "there is no group" if intent is None else "nothing was replaced by group"
        raise NotFoundError(
            f"{what} {number} in this warehouse", hint="`cascade --groups` lists what was replaced together."
        )
    return intent.members


def undo_group(
    contexts: Sequence[TableContext], number: int, *, by: str | None = None, reason: str | None = None
) -> GroupResult:
    """Take back a replacement that was made in several tables at once.

    Args:
        contexts: the tables of the group, all of them.
        number: of the group.
        by: who takes it back, for people.
        reason: why.

    Raises:
        NotFoundError: what was replaced in one of the tables has been dropped.
        InvalidInputError: main of one of them was replaced since.
    """
    groups = groups_of(contexts)
    while True:
        mains = [main_of(context) for context in contexts]
        done = _made_before(mains, number)
        if done is not None:
            return done
        ready = [_ready(main, number, by, reason) for main in mains]
        for one in ready:
            take_back(one.main, one.replacing.target.branch_uuid)
        made = decide_together(groups, ready, undoes=number)
        if made is not None:
            return made


def _ready(main: TableContext, number: int, by: str | None, reason: str | None) -> Ready:
    pointer = _of_group(main, number)
    last = last_standing(main, replacements(main), pointer.generation)
    assert last.replaced is not None, "it is a replacement"
    old = former_main(main, last.generation)
    target = main.on_branch(old.branch)
    wishes = Replacement(target.branch or "", by=by, reason=reason, force=True)
    return Ready(Replacing(main, target, last.replaced.fork, wishes, undoes=last.generation))


def _of_group(main: TableContext, number: int) -> MainPointer:
    known = standing(replacements(main))
    found = next((pointer for pointer in known if pointer.group == number), None)
    if found is None:
        raise InvalidInputError(
            f"group {number} does not count any more in '{main.name}': it was taken back there alone",
            hint="take it back in each of the other tables with undo-replace --alone.",
        )
    return found


def _made_before(mains: Sequence[TableContext], number: int) -> GroupResult | None:
    """The group that took it back, if that is the newest replacement in each table."""
    found = []
    for main in mains:
        known = replacements(main)
        made = {pointer.generation for pointer in known if pointer.group == number}
        last = known[-1] if known else None
        if last is None or last.replaced is None or last.replaced.undoes not in made or last.group is None:
            return None
        found.append((main.name, last))
    tables = tuple((name, ReplaceResult.of(pointer, repeated=True)) for name, pointer in found)
    return GroupResult(found[0][1].group, tables, repeated=True, undoes=number)
