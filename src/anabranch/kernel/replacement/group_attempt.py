"""One attempt at a group of replacements, from its announcement to its decision.

See `anabranch.kernel.replacement.group` for the steps before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from anabranch.errors import AnabranchError, CommitOutcomeUnknownError, SealedBranchError, StorageError
from anabranch.format.records.main_pointer import (
    BranchRef,
    GroupDecision,
    GroupIntent,
    GroupMember,
    MainPointer,
    Seal,
)
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import announce, keep_group_decision, put_decision
from anabranch.kernel.log.main_pointer import put_pointer, put_seal
from anabranch.kernel.log.seals import decision, stay
from anabranch.kernel.replacement.request import Replacing
from anabranch.kernel.replacement.result import GroupResult, ReplaceResult
from anabranch.kernel.replacement.sealing import (
    end_main,
    follow_up,
    in_group,
    last_look,
    new_seal,
    next_number,
    pointer_after,
    seal_timeout,
)
from anabranch.kernel.replacement.take_past import TakenPast
from anabranch.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class Ready:
    """A table of a group, checked and prepared."""

    replacing: Replacing
    taken: TakenPast | None = None
    """What the target has of main's past; None for an undo."""

    @property
    def main(self) -> TableContext:
        return self.replacing.main


def decide_together(
    groups: Storage, members: Sequence[Ready], *, undoes: int | None = None
) -> GroupResult | None:
    """Seal all mains and put the decision; None if it was decided otherwise and the caller must start over.

    Args:
        groups: where the warehouse keeps its groups.
    """
    # Groups that overlap in several tables seal them in the same order, so that one of them succeeds.
    ordered = sorted(members, key=lambda member: member.main.table_uuid)
    attempt = _Attempt(groups, ordered, undoes)
    try:
        made = attempt.make()
        if made is None:
            attempt.give_up()
            attempt.wait_for_others()
            return None
    except CommitOutcomeUnknownError:
        raise
    except SealedBranchError:  # our time was up, and somebody else replaced one of the mains
        attempt.give_up()
        return None
    except AnabranchError:
        attempt.give_up()  # nobody should wait for a decision that will not come
        raise
    pointers = {pointer_main.table_uuid: pointer for pointer_main, pointer in made}
    tables = tuple(
        (member.main.name, ReplaceResult.of(pointers[member.main.table_uuid], repeated=False))
        for member in members
    )
    return GroupResult(attempt.number, tables, repeated=False, undoes=undoes)


@dataclass
class _Attempt:
    """One attempt, from the announcement of a group to its decision."""

    groups: Storage
    members: Sequence[Ready]
    undoes: int | None
    number: int = 0
    token: str = ""
    announced: list[Ready] = field(default_factory=list)
    """Members whose ``SEAL-<g>`` was put."""
    occupied: Ready | None = None
    """Member in whose table another replacement was under way."""

    def make(self) -> list[tuple[TableContext, MainPointer]] | None:
        timeout = max(seal_timeout(member.main) for member in self.members)
        self._announce(timeout)
        seals: list[Seal] = []
        for member in self.members:
            seals.append(new_seal(member.replacing, timeout))
            if not put_seal(member.main, next_number(member.replacing), seals[-1]):
                self.occupied = member
                return None
            self.announced.append(member)
        last = [end_main(member.replacing) for member in self.members]
        until = last_look(self.members[0].replacing, seals[0])
        made = []
        for member, seal, snapshot in zip(self.members, seals, last, strict=True):
            pointer = pointer_after(member.replacing, snapshot, seal, member.taken, until)
            if pointer is None:
                return None
            made.append((member.main, in_group(pointer, self.number, self.token)))
        if not all(put_pointer(main, pointer) for main, pointer in made):
            return None
        decided = self._decision(made=True)
        if not put_decision(self.groups, self.number, decided):
            return None
        for main, pointer in made:
            _finish(main, pointer, decided)
        return made

    def give_up(self) -> None:
        """Decide that all mains stay, and release the announced members."""
        by = self.members[0].replacing.wishes.by
        if self.number:
            put_decision(self.groups, self.number, self._decision(made=False))
        for member in self.announced:
            stay(member.main, next_number(member.replacing), by)

    def wait_for_others(self) -> None:
        """Wait until the replacement that was in the way is decided."""
        if self.occupied is not None:
            decision(self.occupied.main, next_number(self.occupied.replacing))

    def _announce(self, timeout: int) -> None:
        first = self.members[0]
        runtime, wishes = first.main.runtime, first.replacing.wishes
        now = runtime.clock.now_millis()
        self.token = runtime.ids.uuid()
        members = tuple(
            GroupMember(
                member.main.name,
                member.main.table_uuid,
                BranchRef(member.replacing.target.branch, member.replacing.target.branch_uuid),
                next_number(member.replacing),
            )
            for member in self.members
        )
        intent = GroupIntent(members, now + timeout, now, wishes.by, wishes.reason, self.undoes, self.token)
        self.number = announce(self.groups, intent)

    def _decision(self, *, made: bool) -> GroupDecision:
        first = self.members[0]
        runtime = first.main.runtime
        outcome: Literal["replaced", "stay"] = "replaced" if made else "stay"
        return GroupDecision(
            self.token, outcome, runtime.clock.now_millis(), first.replacing.wishes.by, runtime.ids.uuid()
        )


def _finish(main: TableContext, pointer: MainPointer, decided: GroupDecision) -> None:
    """Write a table's copies of the group's decision: optional, so failures are left for `maintain`."""
    with suppress(StorageError):
        keep_group_decision(main, pointer.generation, decided)
    follow_up(main, pointer)
