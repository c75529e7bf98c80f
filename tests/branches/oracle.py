"""What a merge must give, told from rows alone: nothing of files, manifests or compaction.

A `Line` is a branch as a list of steps, each of which says what one commit meant and which rows there were after it.
Every row has an id of its own, so that two bags of rows are equal exactly if their ids are. `judge` says what merging
a branch into main must give: the rows, or which partitions conflict and how.

Where another engine removed snapshots of main and carried nothing over, rows cannot tell what happened. Then the names
of the live files do, by the rule for gaps; they are the only thing of the real table that a step knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        return any(gone.kept_for is not None and branch not in gone.kept_for for gone in later)


@dataclass
class Forked(Line):
    """A branch made from main."""

    fork: Step
    """The step of main it began with."""

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
    taken = branch.taken(main)
    for part in {part: None for line in (main, branch) for step in line.steps for part in step.rows}:
        verdict.rows[part] = main.rows(part)
        theirs = verdict.did[part] = _did(branch.since(taken), part)
        if branch.is_lost_since(taken, branch.name) and taken.files.get(part) != branch.files(part):
            verdict.may[part] = frozenset({HISTORY_GAP, MIXED_COMPACTION})
        if theirs is Did.NOTHING or not (main.rows(part) or branch.rows(part)):
            continue
        old = set(taken.rows.get(part, ()))
        new = tuple(row for row in branch.rows(part) if row not in old)
        did = {theirs, _did(branch.all_since(taken), part)} if branch.forgot_since(taken) else {theirs}
        views = [_conflict(ours, done) for ours in _since_seen(main, branch, part) for done in did]
        if all(views):
            verdict.must[part] = frozenset().union(*views) | verdict.may.pop(part, frozenset())
            verdict.ours[part], verdict.theirs[part] = main.rows(part), branch.rows(part)
        else:
            verdict.rows[part] = (*main.rows(part), *new) if theirs is Did.APPENDED else branch.rows(part)
            verdict.may[part] = verdict.may.get(part, frozenset()).union(*views)
    return verdict


def _conflict(ours: Did | None, theirs: Did) -> frozenset[str]:
    if ours is None:
        return frozenset({HISTORY_GAP})
    if theirs is Did.APPENDED:
        return frozenset({APPEND_VS_OVERWRITE} if ours is Did.OVERWROTE else ())
    return frozenset({OVERWRITE_VS_CHANGE} if ours is not Did.NOTHING else ())


def _did(steps: Iterable[Step], part: Part) -> Did:
    return max((step.did(part) for step in steps), default=Did.NOTHING)


def _since_seen(main: Line, branch: Forked, part: Part) -> list[Did | None]:
    """What main did that is not of this branch; also how it looks to those who only have the files, None if these do not
    tell, or who do not know what was rolled back."""
    seen, own = branch.seen(main, part), branch.merges(main)
    views: list[Did | None] = [_did((step for step in main.since(seen) if step not in own), part)]
    if main.is_lost_since(seen, branch.name):
        views.append(_by_files(seen.files.get(part, frozenset()), main.files(part)))
    if main.forgot_since(seen):
        views.append(_did((step for step in main.all_since(seen) if step not in own), part))
    return views


def _by_files(base: frozenset[str], now: frozenset[str]) -> Did | None:
    """The rule for gaps: untouched if the files are the same, appended if some were added to them."""
    if base == now:
        return Did.NOTHING
    return Did.APPENDED if base and base < now else None


# Columns

Columns = Mapping[int, tuple[str, str]]
"""Name and type by the id of the field."""
_WIDTH = ["INT", "BIGINT"]


def judge_columns(base: Columns, ours: Columns, theirs: Columns) -> tuple[dict[int, tuple[str, str]], set[str]]:
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
            widest = max((one for one in (mine, other) if one is not None), key=lambda one: _WIDTH.index(one[1]))
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
