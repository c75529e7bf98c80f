"""Undoing a replacement of main in several tables, atomically and by the same steps.

A table that was replaced together with others is not undone alone, unless explicitly requested: its new main
was made from the new mains of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.main_pointer import GroupMember, MainPointer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_decision, find_intent
from anabranch.kernel.log.main_branch import former_main, main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.replacement.check import last_standing, standing
from anabranch.kernel.replacement.group import groups_of
from anabranch.kernel.replacement.group_attempt import Ready, decide_together
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.request import Replacement, Replacing
from anabranch.kernel.replacement.result import GroupInfo, GroupResult, ReplaceResult, group_infos
from anabranch.storage.protocol import Storage


def group_to_undo(groups: Storage, number: int | None) -> int:
    """Return the requested group; if None, that of `last_to_undo`. Raises `NotFoundError`: there is none."""
    if number is not None:
        return number
    found = last_to_undo(group_infos(groups))
    if found is None:
        raise NotFoundError("no tables of this warehouse were ever replaced together")
    return found


def last_to_undo(known: Iterable[GroupInfo], of: Callable[[GroupInfo], bool] = lambda _: True) -> int | None:
    """Return the last group in effect, or None if there is none.

    If the newest group is an undo, return the group that it undid: so a repeated call finds it done,
    and does not undo the one before.

    Args:
        known: all groups of the warehouse, oldest first.
        of: which of them to consider.
    """
    made = [group for group in known if group.outcome == "replaced"]
    taken_back = {group.undoes for group in made[:-1]}
    ours = [group.number for group in made if group.undoes is None and of(group)]
    return next((number for number in reversed(ours) if number not in taken_back), ours[-1] if ours else None)


def members_of(groups: Storage, number: int) -> tuple[GroupMember, ...]:
    """Return the tables of a completed group. Raises `NotFoundError`: it does not exist, or was not completed."""
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
    """Undo a replacement that was made in all of these tables at once. See `Lake.undo_group`."""
    groups = groups_of(contexts)
    while True:
        mains = [main_of(context) for context in contexts]
        done = _made_before(mains, number)
        if done is not None:
            return done
        counting = _counting(groups, mains, number)
        ready = [_ready(main, pointer, by, reason) for main, pointer in counting]
        for main, pointer in counting:
            assert pointer.replaced is not None, "it is a replacement"
            take_back(main, pointer.replaced.old.uuid)
        made = decide_together(groups, ready, undoes=number)
        if made is not None:
            return made


def _ready(main: TableContext, pointer: MainPointer, by: str | None, reason: str | None) -> Ready:
    last = last_standing(main, replacements(main), pointer.generation)
    assert last.replaced is not None, "it is a replacement"
    old = former_main(main, last.generation)
    target = main.on_branch(old.branch)
    wishes = Replacement(target.branch or "", by=by, reason=reason, force=True)
    return Ready(Replacing(main, target, last.replaced.fork, wishes, undoes=last.generation))


def _counting(
    groups: Storage, mains: Sequence[TableContext], number: int
) -> list[tuple[TableContext, MainPointer]]:
    """Return each table's replacement by the group. Raises `InvalidInputError` if one is no longer in effect."""
    found: list[tuple[TableContext, MainPointer]] = []
    gone: list[str] = []
    for main in mains:
        pointer = next((one for one in standing(replacements(main)) if one.group == number), None)
        if pointer is None:
            gone.append(main.name)
        else:
            found.append((main, pointer))
    if gone:
        raise _not_any_more(groups, number, gone, [main.name for main, _ in found])
    return found


def _not_any_more(
    groups: Storage, number: int, gone: Sequence[str], left: Sequence[str]
) -> InvalidInputError:
    """Return why a group is not in effect in the tables `gone`; it is in `left`."""
    made = {group.number: group for group in group_infos(groups) if group.outcome == "replaced"}
    undoes = made[number].undoes
    if undoes is not None:
        return InvalidInputError(
            f"group {number} took back group {undoes} itself",
            hint="run again what made that one, `cascade --run` or `Lake.replace_group`, to put the same branches in place again.",
        )
    by = next((group.number for group in made.values() if group.undoes == number), None)
    if by is not None:
        return InvalidInputError(
            f"group {number} was taken back by group {by} already",
            hint="`anabranch cascade --groups` lists the groups, and which of them took back which.",
        )
    return InvalidInputError(
        f"group {number} does not count any more in {', '.join(sorted(gone))}: it was taken back there alone",
        hint=f"take it back in {', '.join(left)} with `undo-replace --alone`."
        if left
        else "nothing of it is left to take back.",
    )


def _made_before(mains: Sequence[TableContext], number: int) -> GroupResult | None:
    """Return the group that undid it, if that is the newest replacement in each table."""
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
