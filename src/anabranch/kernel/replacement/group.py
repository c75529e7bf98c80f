"""Replacing main in several tables atomically: in all of them, or in none.

Each table is replaced as `replace` does it for one, up to the pointer. That names the group and takes effect only when
the group is decided, by one put-if-absent in the warehouse: with it all pointers take effect, or none does.

1. *Check*, *catch up* and *copy* for each table.
2. *Announce* the group (``GROUP-<k>``), then *seal* each table, in a globally consistent order.
3. *Propose*: put ``MAIN-<g>`` of each table, naming the group.
4. *Decide*, with one put-if-absent of ``GROUP-<k>.decided``.

A conflict in one table blocks all of them. A process that waits at the seal of a table until the deadline
decides for all tables of its group that their mains stay, by the same put; so a dead process blocks nobody. A
pointer that was proposed and not decided uses up its number. Running the replacement again finishes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import CommitConflictError, InvalidInputError
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.replacement.check import check, refusal
from anabranch.kernel.replacement.group_attempt import Ready, decide_together
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.replace import planned
from anabranch.kernel.replacement.request import Replacement, Replacing
from anabranch.kernel.replacement.result import GroupResult, ReplaceResult
from anabranch.kernel.replacement.sealing import catch_up, covered, follow_up, last_replacement
from anabranch.kernel.replacement.take_past import take_past
from anabranch.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class Member:
    """A table of the group, and the replacement of its main."""

    context: TableContext
    wishes: Replacement


def replace_group(members: Sequence[Member]) -> GroupResult:
    """Replace main by a branch in each of several tables, atomically. See `Lake.replace_group`.

    Wait time, author and reason are taken from the first of the members.
    """
    groups = groups_of([member.context for member in members])
    first = members[0]
    until = first.context.runtime.clock.monotonic() + (first.wishes.wait_millis or 0) / 1000
    while True:
        mains = [main_of(member.context) for member in members]
        done = _made_before([*zip(mains, (m.wishes.branch for m in members), strict=True)])
        if done is not None:
            return done
        replacing = _checked([Member(m, member.wishes) for m, member in zip(mains, members, strict=True)])
        if first.wishes.wait_millis is not None:
            for one in replacing:
                catch_up(one, until)
        ready = []
        for one in replacing:
            taken = take_past(one.main, one.target, one.fork)
            covered(one, one.main.snapshots.head())  # so that little is left to be read once main is sealed
            take_back(one.main, one.target.branch_uuid)
            ready.append(Ready(one, taken))
        made = decide_together(groups, ready)
        if made is not None:
            return made


def planned_group(members: Sequence[Member]) -> GroupResult:
    """Return what `replace_group` would do now, without changes. Raises the same where known beforehand."""
    groups_of([member.context for member in members])
    mains = [main_of(member.context) for member in members]
    done = _made_before([*zip(mains, (m.wishes.branch for m in members), strict=True)])
    if done is not None:
        return done
    at = [Member(m, member.wishes) for m, member in zip(mains, members, strict=True)]
    _checked(at)
    tables = tuple((one.context.name, planned(one.context, one.wishes)) for one in at)
    return GroupResult(None, tables, repeated=False, dry_run=True)


def groups_of(contexts: Sequence[TableContext]) -> Storage:
    """Return the folder in which the warehouse of these tables keeps its groups.

    Raises `InvalidInputError`: they are not of one warehouse, one is named twice, or there is none.
    """
    uuids = [context.table_uuid for context in contexts]
    if not uuids or len(set(uuids)) < len(uuids):
        twice = next((c.name for c in contexts if uuids.count(c.table_uuid) > 1), None)
        raise InvalidInputError(
            "no table is named whose main is to be replaced"
            if twice is None
            else f"'{twice}' is named twice",
            hint="name each table once, with the branch that is to be its main.",
        )
    groups = contexts[0].groups
    if groups is None or any(c.groups is None or c.groups.url != groups.url for c in contexts):
        raise InvalidInputError(
            "the tables are not all of one warehouse, so there is no place for one decision about all of them",
            hint="open them by their names in one warehouse.",
        )
    return groups


def _made_before(targets: Sequence[tuple[TableContext, str]]) -> GroupResult | None:
    """Return the group by which these branches are main already, if it has no other tables."""
    made = [(main, last_replacement(main, branch)) for main, branch in targets]
    found = [(main, pointer) for main, pointer in made if pointer is not None]
    numbers = {pointer.group for _, pointer in found}
    if len(found) < len(made) or len(numbers) != 1 or None in numbers:
        return None
    tables = tuple((main.name, ReplaceResult.of(pointer, repeated=True)) for main, pointer in found)
    for main, pointer in found:
        follow_up(main, pointer)
    return GroupResult(numbers.pop(), tables, repeated=True)


def _checked(members: Sequence[Member]) -> list[Replacing]:
    """Check all members. Raises `CommitConflictError` with the conflicts of all of them."""
    found: list[Replacing] = []
    conflicts: list[Conflict] = []
    for member in members:
        try:
            found.append(check(member.context, member.wishes))
        except CommitConflictError as error:
            conflicts += _of_table(member.context, error)
    if conflicts:
        raise refusal(conflicts)
    return found


def _of_table(context: TableContext, error: CommitConflictError) -> Iterator[Conflict]:
    if not error.conflicts:
        yield Conflict("NOT_PASSED", f"{context.name}: {error.message}", error.hint or "")
    for conflict in error.conflicts:
        yield Conflict(conflict.kind, f"{context.name}: {conflict.message}", conflict.hint)
