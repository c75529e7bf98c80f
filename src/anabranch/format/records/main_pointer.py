"""The records that say which branch is main, each write-once: ``branch/SEAL-<g>``, ``MAIN-<g>``, ``TAGS-<g>`` and ``RELEASE-<g>``.

A replacement of main is announced by ``SEAL-<g>``, decided by ``MAIN-<g>`` and, when the branch that was main is let
go or taken back, ended by ``RELEASE-<g>``; g counts 1, 2, 3 and so on. The highest ``MAIN-<g>`` names main; without
any it is the branch in the table's own folder. Together they are the log of replacements. Other engines ignore them.

A ``MAIN-<g>`` that was put together with those of other tables names their group, and counts as the group was decided:
see the records of groups below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from anabranch.format.records.layout import MAIN_BRANCH, Part, check_file_name
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.record import JsonFile, JsonRecord, Stored, keys_of

MAIN_PREFIX = "MAIN-"
SEAL_PREFIX = "SEAL-"
RELEASE_PREFIX = "RELEASE-"
TAGS_PREFIX = "TAGS-"
HINT_FILE = "MAIN-BRANCH"
"""Holds the name of main for people; never read."""

MOST_PARTS = 10_000
"""Parts of a past, each of another branch that was main; every look at an old snapshot goes through them."""

_FORMER = re.compile(r"main@([1-9][0-9]{0,17})")


def former_main_of(name: str) -> int | None:
    """1 for ``main@1``: the branch that the replacement of that number put out of the place of main."""
    match = _FORMER.fullmatch(name)
    return None if match is None else int(match[1])


def former_main_name(generation: int) -> str:
    """``main@1``."""
    return f"main@{generation}"


@dataclass(frozen=True, slots=True)
class BranchRef(JsonRecord):
    """A branch by the folder it lies in and by its identity."""

    WHAT: ClassVar = "reference to a branch"

    name: str | None
    """None for the table's own folder."""
    uuid: str

    def __str__(self) -> str:
        return "the table's own folder" if self.name is None else f"branch '{self.name}'"


@dataclass(frozen=True, slots=True)
class Replaced(JsonRecord):
    """The main that a replacement replaced, and what of the new main it knew."""

    old: BranchRef
    """The branch that was main."""
    head: SnapshotRef
    """Its last snapshot; the one after it is the seal."""
    fork: SnapshotRef
    """The newest snapshot that both have: what the old main has above it is not in the new one."""
    taken: SnapshotRef
    """The newest snapshot of the new main when it was decided."""
    resume: SnapshotRef
    """The last snapshot of the new main whose rows a stream that had read all of the old main need not read."""
    audit: str | None = None
    """Which audit the new main had passed."""
    reason: str | None = None
    undoes: Annotated[int | None, Stored(minimum=1)] = None
    """The replacement that this one takes back."""


@dataclass(frozen=True, slots=True)
class MainPointer(JsonFile):
    """Record of which branch is main from now on."""

    VERSION: ClassVar = 4
    """Of a main that inherits tags; where only its past lies elsewhere 3, of a group that has to be made 2, else 1."""

    generation: Annotated[int, Stored(apart=True)]
    main: BranchRef
    replaced: Annotated[Replaced | None, Stored(apart=True)]
    """None if main stays what it was: a replacement was announced and did not come to its end."""
    made_millis: int
    """Epoch milliseconds."""
    made_by: str | None
    token: str
    """Unique to the process that put it; the same for all pointers of a group."""
    group: Annotated[int | None, Stored(minimum=1, seldom=True)] = None
    """Number of the group of replacements that it belongs to."""
    past: Annotated[tuple[Part, ...], Stored(seldom=True)] = ()
    """Where main's history goes on below what lies in its own folder; empty if all of it lies there."""
    others: Annotated[Mapping[str, Any], Stored(apart=True)] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""

    def stays(self, past: tuple[Part, ...]) -> MainPointer:
        """The same if main stays what it was, because the group was not made; `past` is that of what it was."""
        if self.replaced is None:
            return self
        return replace(self, main=self.replaced.old, replaced=None, past=past)

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                **self.others,
                "version": self._version,
                "outcome": "stay" if self.replaced is None else "replaced",
                **self.to_dict(),
                **({} if self.replaced is None else self.replaced.to_dict()),
            }
        )

    @property
    def _version(self) -> int:
        """The first version whose readers understand this one."""
        if self.past:
            return self.VERSION if self.past[0].tags else 3
        return 1 if self.group is None else 2

    def _check_past(self, content: JsonObject) -> None:
        """Refuse parts of a past that no replacement writes: rows of another history would be read by them."""
        if any(newer.below <= older.below for newer, older in pairwise(self.past)):
            content.fail("the parts of 'past' do not lie below each other")
        if len(self.past) > MOST_PARTS:
            content.fail(f"'past' has {len(self.past):,} parts, expected at most {MOST_PARTS:,}")
        newest = None if self.replaced is None else self.replaced.taken.id
        if self.past and newest is not None and self.past[0].below > newest:
            content.fail(
                f"'past' goes up to snapshot {self.past[0].below}, but main began no later than {newest}"
            )
        names = [part.branch for part in self.past]
        if len({*names, self.main.name}) <= len(names) or MAIN_BRANCH in names:
            content.fail("'past' names a branch twice")
        for name in names:
            if name is not None:
                check_file_name(name, path=content.path)

    @classmethod
    def from_object(cls, content: JsonObject, **apart: Any) -> Self:
        """Read the record. Raises `CorruptTableError` naming the file."""
        outcome = content.text("outcome")
        if outcome not in ("stay", "replaced"):
            content.fail(f"'outcome' is '{outcome}', expected 'stay' or 'replaced'")
        replaced = Replaced.from_object(content) if outcome == "replaced" else None
        known = {"version", "outcome", *keys_of(cls), *keys_of(Replaced)}
        found = cls(**cls.fields_of(content), **apart, replaced=replaced, others=content.others(known))
        found._check_past(content)
        return found


@dataclass(frozen=True, slots=True)
class Seal(JsonFile):
    """Intent of a replacement of main that is under way."""

    target: BranchRef
    """The branch that is to be main."""
    deadline_millis: int
    """Epoch milliseconds by the clock of who replaces; from then on anybody may decide that main stays."""
    timeout_millis: Annotated[int, Stored(minimum=0)]
    """How long nobody waits longer, whatever the clocks say."""
    made_by: str | None
    token: str


@dataclass(frozen=True, slots=True)
class InheritedTag(JsonRecord):
    """A tag of main's past."""

    WHAT: ClassVar = "inherited tag"

    name: str
    stored_millis: Annotated[int, Stored(minimum=0)]
    """When its file was stored, in epoch milliseconds."""
    tag: Mapping[str, Any]
    """The content of its file."""


@dataclass(frozen=True, slots=True)
class InheritedTags(JsonFile):
    """The tags that the main of a replacement took over from the main before it: those of what both have."""

    tags: tuple[InheritedTag, ...]

    def to_json(self) -> bytes:
        """The content of the file, on one line: there may be thousands of tags."""
        return to_bytes({"version": self.VERSION, **self.to_dict()}, indent=None)


@dataclass(frozen=True, slots=True)
class Release(JsonFile):
    """Decision about a replaced main: it is dropped, or made main again. The first one written counts."""

    what: Literal["drop", "back"]
    made_millis: int
    token: str


# The records of a replacement of main in several tables at once, each write-once, in the warehouse's ``groups/``.
#
# ``GROUP-<k>`` announces it: which tables, which branches, until when. ``GROUP-<k>.decided`` says whether it was made. Each
# table has a ``MAIN-<g>`` of its own that names the group, and counts only if the group was made: so all of them change
# by the one put of the decision. ``branch/GROUP-<g>`` in a table is a copy of the decision about its ``MAIN-<g>``, so that
# the table can be understood without its warehouse.

GROUPS_FOLDER = "groups"
"""In the warehouse, beside the folders of the databases."""
GROUP_PREFIX = "GROUP-"
_DECIDED = ".decided"


def group_path(number: int) -> str:
    """``GROUP-3``: of an announcement in the warehouse's folder; of a decision's copy in a table's, by its own number."""
    return f"{GROUP_PREFIX}{number}"


def decision_path(number: int) -> str:
    """``GROUP-3.decided``, in the warehouse's folder."""
    return f"{GROUP_PREFIX}{number}{_DECIDED}"


@dataclass(frozen=True, slots=True)
class GroupMember(JsonRecord):
    """A table whose main is to be replaced together with others."""

    table: str
    """``database.table`` when it was announced."""
    table_uuid: Annotated[str, Stored(key="uuid")]
    target: BranchRef
    """The branch that is to be main."""
    generation: Annotated[int, Stored(minimum=1)]
    """Number of the replacement in the table."""


@dataclass(frozen=True, slots=True)
class GroupIntent(JsonFile):
    """Intent of a replacement of main in several tables that is under way."""

    members: tuple[GroupMember, ...]
    deadline_millis: int
    """Epoch milliseconds by the clock of who replaces; from then on anybody may decide that all mains stay."""
    made_millis: int
    made_by: str | None
    reason: str | None
    undoes: Annotated[int | None, Stored(minimum=1)]
    """The group that this one takes back."""
    token: str
    """Unique to this attempt."""


@dataclass(frozen=True, slots=True)
class GroupDecision(JsonFile):
    """Whether the mains of all tables of a group were replaced, or all stay."""

    group: str
    """Token of what was announced: numbers of groups are those of one warehouse."""
    outcome: Literal["replaced", "stay"]
    made_millis: int
    """Epoch milliseconds."""
    made_by: str | None
    token: str
    """Unique to the process that put it."""

    @property
    def made(self) -> bool:
        """Whether the mains were replaced."""
        return self.outcome == "replaced"
