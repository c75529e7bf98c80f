"""What a merge must give, told from rows alone: nothing of files, manifests or compaction.

A `Line` is a branch as a list of steps, each of which says what one commit meant and which rows there were after it.
Every row has an id of its own, so that two bags of rows are equal exactly if their ids are. `judge` says what merging
a branch into main must give: the rows, or which partitions conflict and how.

Where another engine removed snapshots of main and carried nothing over, rows cannot tell what happened. Then the names
of the live files do, by the rule for gaps; they are the only thing of the real table that a step knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

Part = Any
"""The value of the partition column."""
Rows = Mapping[Part, tuple[int, ...]]
"""Ids by partition, in the order they were committed."""
Files = Mapping[Part, frozenset[str]]

APPEND_VS_OVERWRITE = "APPEND_VS_OVERWRITE"
OVERWRITE_VS_CHANGE = "OVERWRITE_VS_CHANGE"
HISTORY_GAP = "HISTORY_GAP"
MIXED_COMPACTION = "MIXED_COMPACTION"
FOREIGN_MERGE = "FOREIGN_MERGE"


class Did(IntEnum):
    """What commits did to a partition; the greatest counts."""

    NOTHING = 0
    APPENDED = 1
    OVERWROTE = 2


@dataclass(eq=False)
class Step:
    """One commit, and what there was after it."""

    snapshot: int
    """Id of the newest snapshot then."""
    rows: Rows
    files: Files = field(default_factory=dict)
    appended: frozenset[Part] = frozenset()
    overwrote: frozenset[Part] = frozenset()
    is_of_all: bool = False
    """Whether every partition was overwritten, also those that nobody has thought of yet."""
    merged: tuple[str, Step] | None = None
    """If it is a merge: which branch, and how far of it."""
    theirs: frozenset[Part] = frozenset()
    """If it is a merge: partitions in which conflicts were decided for the branch."""
    back_to: Step | None = None
    """If it is a rollback: what it brought back. What it overwrote are the partitions whose files it changed."""
    kept_for: frozenset[str] | None = None
    """If its snapshot expired: the branches for which it was recorded what it did."""
    is_torn: bool = False
    """Whether it made several snapshots, of which another engine removed some: then nobody knows what it did."""

    def did(self, part: Part) -> Did:
        if self.is_of_all or part in self.overwrote:
            return Did.OVERWROTE
        return Did.APPENDED if part in self.appended else Did.NOTHING


@dataclass
class Line:
    """A branch: all of its steps, oldest first."""

    name: str
    steps: list[Step]

    @property
    def head(self) -> Step:
        return self.steps[-1]

    def rows(self, part: Part) -> tuple[int, ...]:
        return self.head.rows.get(part, ())

    def files(self, part: Part) -> frozenset[str]:
        return self.head.files.get(part, frozenset())

    def place(self, step: Step) -> int:
        return self.steps.index(step)

    def since(self, step: Step) -> list[Step]:
        """Its history after one of its steps, newest first: without what was rolled back to that step or a later one."""
        last, first = len(self.steps) - 1, self.place(step)
        history = []
        while last > first:
            current = self.steps[last]
            target = None if current.back_to is None else self.place(current.back_to)
            if target is not None and target >= first:
                last = target
            else:
                history.append(current)
                last -= 1
        return history

    def all_since(self, step: Step) -> list[Step]:
        """The same as if nothing had been rolled back: a rollback overwrote what it changed."""
        return self.steps[self.place(step) + 1 :]

    def forgot_since(self, step: Step) -> bool:
        """Whether snapshots expired of which a rollback undid some: what it undid need not be known any more."""
        later = self.all_since(step)
        return any(one.back_to for one in later) and any(one.kept_for is not None for one in later)

    def is_lost_since(self, step: Step, branch: str) -> bool:
        """Whether nobody told that branch what one of the later steps did before its snapshot was removed."""
        later = self.all_since(step)
        return any(s.is_torn or (s.kept_for is not None and branch not in s.kept_for) for s in later)


@dataclass
class Forked(Line):
    """A branch made from main."""

    fork: Step
    """The step of main it began with."""
    is_merged: bool = False
    """Whether it was ever merged, also if main went back to before that."""

    def merges(self, main: Line) -> list[Step]:
        """Those of this branch that main still contains, oldest first."""
        own = [step for step in main.steps if step.merged is not None and step.merged[0] == self.name]
        history = main.since(main.steps[0])
        return [step for step in own if step in history]

    def taken(self, main: Line) -> Step:
        """The last step of the branch that main contains."""
        merges = self.merges(main)
        return self.steps[0] if not merges or merges[-1].merged is None else merges[-1].merged[1]

    def seen(self, main: Line, part: Part) -> Step:
        """Main as the branch knew it in a partition."""
        decided = [step for step in self.merges(main) if part in step.theirs]
        return decided[-1] if decided else self.fork


@dataclass
class Verdict:
    """What a merge must do: conflict in all of `must`, and otherwise give `rows`.

    It may as well conflict as `may` says, where what could tell that there is none was thrown away.
    """

    rows: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    must: dict[Part, frozenset[str]] = field(default_factory=dict)
    """Conflicts by partition, any of these kinds."""
    may: dict[Part, frozenset[str]] = field(default_factory=dict)
    ours: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """Rows of the partitions with conflicts, decided for main."""
    theirs: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    """The same, decided for the branch."""
    did: dict[Part, Did] = field(default_factory=dict)
    """What the branch did since it was merged last."""
    replaceable: frozenset[Part] = frozenset()
    """Where it may look as if the branch overwrote, so that main gets the same rows in other files."""
    addable: frozenset[Part] = frozenset()
    """Where it may look as if the branch only appended, because there was nothing that it could have overwritten."""

    def is_agreed(self, found: Iterable[tuple[Part, str]]) -> bool:
        """Whether these conflicts, if there are any, are what there must or may be."""
        kinds = dict[Part, set[str]]()
        for part, kind in found:
            kinds.setdefault(part, set()).add(kind)
        return all(part in kinds for part in self.must) and all(
            some <= (self.must.get(part, frozenset()) | self.may.get(part, frozenset()))
            for part, some in kinds.items()
        )


def judge(main: Line, branch: Forked) -> Verdict:
    """What merging the branch into main must give. The step it began with must be one of main's."""
    verdict = Verdict()
    taken, own = branch.taken(main), branch.merges(main)
    is_unsure = branch.is_merged and main.is_lost_since(branch.fork, branch.name)
    for part in {part: None for line in (main, branch) for step in line.steps for part in step.rows}:
        verdict.rows[part] = main.rows(part)
        verdict.did[part] = Did.NOTHING
        if not (main.rows(part) or branch.rows(part)):
            continue
        doubt = set()
        if branch.is_lost_since(taken, branch.name) and taken.files.get(part) != branch.files(part):
            doubt |= {HISTORY_GAP, MIXED_COMPACTION}
        if is_unsure and _did(branch.all_since(branch.steps[0]), part):
            doubt.add(HISTORY_GAP)  # nobody knows whether main still contains the merges
        ours = _views(main, branch.seen(main, part), branch.name, part, besides=own)
        theirs = _views(branch, taken, branch.name, part)
        kinds = {other: [_conflict(mine, other) for mine in ours] for other in theirs}
        doubt = doubt.union(*(some for views in kinds.values() for some in views))
        possible = [other for other in theirs if other is not None and not all(kinds[other])]
        if Did.OVERWROTE in possible:
            verdict.replaceable |= {part}
        if Did.APPENDED in possible:
            verdict.addable |= {part}
        old = {*taken.rows.get(part, ())}
        new = tuple(row for row in branch.rows(part) if row not in old)
        if not {*new}.isdisjoint(main.rows(part)):
            # Another branch, made from main when it had them, brought them back after a rollback.
            doubt.add(FOREIGN_MERGE)
            possible = [other for other in possible if other is not Did.APPENDED]
        if not possible:
            verdict.must[part] = frozenset(doubt)
            verdict.ours[part], verdict.theirs[part] = main.rows(part), branch.rows(part)
            verdict.did[part] = theirs[0] or Did.NOTHING
            continue
        did = verdict.did[part] = possible[0]
        if doubt or did is not Did.NOTHING:
            verdict.may[part] = frozenset(doubt)
        if did is Did.APPENDED:
            verdict.rows[part] = (*main.rows(part), *new)
        elif did is Did.OVERWROTE:
            verdict.rows[part] = branch.rows(part)
    return verdict


def _conflict(ours: Did | None, theirs: Did | None) -> frozenset[str]:
    if theirs is Did.NOTHING:
        return frozenset()
    if ours is None or theirs is None:
        return frozenset({HISTORY_GAP})
    if theirs is Did.APPENDED:
        return frozenset({APPEND_VS_OVERWRITE} if ours is Did.OVERWROTE else ())
    return frozenset({OVERWRITE_VS_CHANGE} if ours is not Did.NOTHING else ())


def _views(
    line: Line, base: Step, branch: str, part: Part, besides: Collection[Step] = ()
) -> list[Did | None]:
    """What was done to a partition since the base.

    First as it was. Then, if that may not be known any more, as it looks to those who have the files and the snapshots
    that are left, None if these do not tell; and to those who do not know what was rolled back.
    """
    views: list[Did | None] = [_did(line.since(base), part, besides)]
    if line.is_lost_since(base, branch):
        left = [step for step in line.all_since(base) if step.kept_for is None]
        views.append(_by_files(base, left, part, besides))
        views.append(_by_files(base, [left[0], *line.since(left[0])], part, besides))
        if besides:
            views.append(None)  # nobody knows whether main still contains these merges
    if line.forgot_since(base):
        views.append(_did(line.all_since(base), part, besides))
    return views


def _did(steps: Iterable[Step], part: Part, besides: Collection[Step] = ()) -> Did:
    return max((step.did(part) for step in steps if step not in besides), default=Did.NOTHING)


def _by_files(base: Step, left: Sequence[Step], part: Part, besides: Collection[Step]) -> Did | None:
    """The rule for gaps: untouched if the files are the same, appended if some were added to them."""
    was, now = (step.files.get(part, frozenset()) for step in (base, left[0]))
    later = _did(left[1:], part, besides)
    if was == now:
        return later
    return max(later, Did.APPENDED) if was and was < now else None


# Columns

Columns = Mapping[int, tuple[str, str]]
"""Name and type by the id of the field."""
_WIDTH = ["INT", "BIGINT"]


def judge_columns(
    base: Columns, ours: Columns, theirs: Columns
) -> tuple[dict[int, tuple[str, str]], set[str]]:
    """Main's columns after a merge, and the kinds of conflicts that stand against it.

    Args:
        base: the branch's as main has them.
        ours: main's.
        theirs: the branch's.
    """
    merged: dict[int, tuple[str, str]] = {}
    kinds = set[str]()
    for number in {**ours, **theirs}:
        was, mine, other = base.get(number), ours.get(number), theirs.get(number)
        if was is None or (mine is not None and other is not None):
            name = _changed(*(None if one is None else one[0] for one in (was, mine, other)))
            if name is None:
                kinds.add("RENAME_CLASH")
            widest = max(
                (one for one in (mine, other) if one is not None), key=lambda one: _WIDTH.index(one[1])
            )
            merged[number] = name or widest[0], widest[1]
        elif was != (mine or other):
            kinds.add("DROP_VS_CHANGE")
    names = [name for name, _ in merged.values()]
    if len(set(names)) < len(names):
        kinds.add("NAME_CLASH")
    return merged, kinds


def _changed(was: str | None, mine: str | None, other: str | None) -> str | None:
    """What one side or both made of a name; None if they made different ones of it."""
    if mine is None or other is None:
        return mine or other
    if mine in (other, was):
        return other
    return mine if other == was else None


def can_say(written: Columns, versions: Iterable[Columns], merged: Columns) -> bool:
    """Whether one of these versions of main's columns says of a file what those say that it was written with."""
    return any(_says(written, version, merged) for version in [merged, *versions])


def _says(written: Columns, version: Columns, merged: Columns) -> bool:
    names = {name for name, _ in version.values()}
    return all(
        version[number] == column if number in version else number not in merged and column[0] not in names
        for number, column in written.items()
    )
