"""Stored records of groups of replacements; see `anabranch.format.records.main_pointer`.

They lie in the warehouse, and each table keeps a copy of its groups' decisions. The copy is looked for first: a
table that was moved elsewhere has nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.errors import CommitOutcomeUnknownError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.records.layout import numbered_id
from anabranch.format.records.main_pointer import (
    GROUP_PREFIX,
    GroupDecision,
    GroupIntent,
    MainPointer,
    decision_path,
    group_path,
)
from anabranch.kernel.log.context import TableContext
from anabranch.storage.protocol import Storage

_REQUESTS: Final = 3


def find_group_decision(context: TableContext, proposed: MainPointer) -> GroupDecision | None:
    """Return the decision of the group that a pointer of this table belongs to, or None while it is open.

    Raises `CorruptTableError`: it is unknowable, because the table was taken out of its warehouse meanwhile.
    """
    assert proposed.group is not None, "it belongs to a group"
    own = _own_path(context, proposed.generation)
    damage: CorruptTableError | None = None
    try:
        return GroupDecision.from_json(context.storage.get(own), path=own)
    except NotFoundError:
        pass
    except CorruptTableError as error:  # the warehouse's own record says the same
        damage = error
    if context.groups is not None:
        decision = find_decision(context.groups, proposed.group)
        if decision is None:
            intent = find_intent(context.groups, proposed.group)
            token = None if intent is None else intent.token
        else:
            token = decision.group
        if token == proposed.token and (decision is not None or damage is None):
            return decision
    if damage is not None:
        raise damage
    raise CorruptTableError(
        f"which branch is main was decided for several tables at once, as group {proposed.group} of the warehouse that "
        f"'{context.name}' was in, and how is not known here",
        path=own,
        hint="open the table by its name in that warehouse.",
    )


def keep_group_decision(context: TableContext, generation: int, decision: GroupDecision) -> None:
    """Store the table's copy of the decision about ``MAIN-<g>``. Idempotent."""
    context.storage.put_if_absent(_own_path(context, generation), decision.to_json())


def complete_copies(context: TableContext, pointers: Sequence[MainPointer]) -> None:
    """Store the decision copies that the table lacks because the deciding process died.

    Args:
        pointers: of its replacements, decided.
    """
    for pointer in pointers:
        if pointer.group is None or context.groups is None:
            continue
        if not context.storage.exists(_own_path(context, pointer.generation)):
            decided = find_decision(context.groups, pointer.group)
            if decided is not None and decided.group == pointer.token:
                keep_group_decision(context, pointer.generation, decided)


def find_decision(groups: Storage, number: int) -> GroupDecision | None:
    """Return the decision of a group, or None while it is open.

    Raises `CorruptTableError`.
    """
    return GroupDecision.find(groups, decision_path(number), whole=True)


def put_decision(groups: Storage, number: int, decision: GroupDecision) -> bool:
    """Store a decision for all tables of a group; False if another decision was stored first.

    Raises `CommitOutcomeUnknownError` if the store does not say whether it was stored.
    """
    for _ in range(_REQUESTS):
        try:
            return groups.put_if_absent(decision_path(number), decision.to_json())
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            unknown = error  # asking again does no harm: the same bytes are the same decision
    raise CommitOutcomeUnknownError(
        f"it is not known whether group {number} was decided: {unknown.message}",
        hint="run it again: it finds out, and finishes what is left to do.",
    ) from unknown


def announce(groups: Storage, intent: GroupIntent) -> int:
    """Reserve the next group number and store the group's intent under it."""
    number = max(group_numbers(groups), default=0) + 1
    while not groups.put_if_absent(group_path(number), intent.to_json()):
        number += 1
    return number


def find_intent(groups: Storage, number: int) -> GroupIntent | None:
    """Return the intent of a group, or None if there is no such group. Raises `CorruptTableError`."""
    return GroupIntent.find(groups, group_path(number), whole=True)


def group_numbers(groups: Storage) -> list[int]:
    """Return all assigned group numbers, ascending; one listing."""
    names = (info.path.rpartition("/")[2] for info in groups.list())
    return sorted(number for name in names if (number := numbered_id(name, GROUP_PREFIX)) is not None)


def _own_path(context: TableContext, generation: int) -> str:
    return context.layout.branches_file_path(group_path(generation))
