"""The records that say which branch is main, each write-once: ``branch/SEAL-<g>``, ``MAIN-<g>`` and ``RELEASE-<g>``.

A replacement of main is announced by ``SEAL-<g>``, decided by ``MAIN-<g>`` and, when the branch that was main is let
go or taken back, ended by ``RELEASE-<g>``; g counts 1, 2, 3 and so on. The highest ``MAIN-<g>`` names main; without
any it is the branch in the table's own folder. Together they are the log of replacements. Other engines ignore them.

A ``MAIN-<g>`` that was put together with those of other tables names their group, and counts as the group was decided:
see `anabranch.format.records.group`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes

MAIN_PREFIX = "MAIN-"
SEAL_PREFIX = "SEAL-"
RELEASE_PREFIX = "RELEASE-"
HINT_FILE = "MAIN-BRANCH"
"""Holds the name of main for people; never read."""

_VERSION = 1
_GROUP_VERSION = 2
"""Of a pointer that counts only if its group was made."""
_KNOWN: Final = frozenset(
    {
        *("version", "outcome", "main", "madeMillis", "madeBy", "token", "group"),
        *("old", "head", "fork", "taken", "resume", "audit", "reason", "undoes"),
    }
)
_FORMER = re.compile(r"main@([1-9][0-9]{0,17})")


def former_main_of(name: str) -> int | None:
    """1 for ``main@1``: the branch that the replacement of that number put out of the place of main."""
    match = _FORMER.fullmatch(name)
    return None if match is None else int(match[1])


def former_main_name(generation: int) -> str:
    """``main@1``."""
    return f"main@{generation}"


@dataclass(frozen=True, slots=True)
class BranchRef:
    """A branch by the folder it lies in and by its identity."""

    name: str | None
    """None for the table's own folder."""
    uuid: str

    def __str__(self) -> str:
        return "the table's own folder" if self.name is None else f"branch '{self.name}'"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "uuid": self.uuid}

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> BranchRef:
        """Raises `CorruptTableError` naming `where`."""
        match value:
            case {"name": str() | None as name, "uuid": str(uuid)}:
                return cls(name, uuid)
            case _:
                raise CorruptTableError("is no reference to a branch (name, uuid)", path=where)


@dataclass(frozen=True, slots=True)
class Replaced:
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
    undoes: int | None = None
    """The replacement that this one takes back."""


@dataclass(frozen=True, slots=True)
class MainPointer:
    """Record of which branch is main from now on."""

    generation: int
    main: BranchRef
    replaced: Replaced | None
    """None if main stays what it was: a replacement was announced and did not come to its end."""
    made_millis: int
    """Epoch milliseconds."""
    made_by: str | None
    token: str
    """Unique to the process that put it; the same for all pointers of a group."""
    group: int | None = None
    """Number of the group of replacements that it belongs to."""
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""

    def stays(self) -> MainPointer:
        """The same if main stays what it was, because the group was not made."""
        return self if self.replaced is None else replace(self, main=self.replaced.old, replaced=None)

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                **self.others,
                "version": _VERSION if self.group is None else _GROUP_VERSION,
                "outcome": "stay" if self.replaced is None else "replaced",
                "main": self.main.to_dict(),
                "madeMillis": self.made_millis,
                "madeBy": self.made_by,
                "token": self.token,
                **({} if self.group is None else {"group": self.group}),
                **({} if self.replaced is None else _replaced_to_dict(self.replaced)),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, generation: int, path: str) -> MainPointer:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_GROUP_VERSION)
        outcome = content.text("outcome")
        if outcome not in ("stay", "replaced"):
            content.fail(f"'outcome' is '{outcome}', expected 'stay' or 'replaced'")
        return cls(
            generation,
            BranchRef.from_dict(content.values.get("main"), where=path),
            _replaced_of(content) if outcome == "replaced" else None,
            content.integer("madeMillis"),
            content.optional_text("madeBy"),
            content.text("token"),
            content.optional_integer("group", minimum=1),
            content.others(_KNOWN),
        )


@dataclass(frozen=True, slots=True)
class Seal:
    """Intent of a replacement of main that is under way."""

    target: BranchRef
    """The branch that is to be main."""
    deadline_millis: int
    """Epoch milliseconds by the clock of who replaces; from then on anybody may decide that main stays."""
    timeout_millis: int
    """How long nobody waits longer, whatever the clocks say."""
    made_by: str | None
    token: str

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _VERSION,
                "target": self.target.to_dict(),
                "deadlineMillis": self.deadline_millis,
                "timeoutMillis": self.timeout_millis,
                "madeBy": self.made_by,
                "token": self.token,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> Seal:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        return cls(
            BranchRef.from_dict(content.values.get("target"), where=path),
            content.integer("deadlineMillis"),
            content.integer("timeoutMillis", minimum=0),
            content.optional_text("madeBy"),
            content.text("token"),
        )


@dataclass(frozen=True, slots=True)
class Release:
    """Decision about a replaced main: it is dropped, or made main again. The first one written counts."""

    what: Literal["drop", "back"]
    made_millis: int
    token: str

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {"version": _VERSION, "what": self.what, "madeMillis": self.made_millis, "token": self.token}
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> Release:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        made, token = content.integer("madeMillis"), content.text("token")
        what = content.text("what")
        if what not in ("drop", "back"):
            content.fail(f"'what' is '{what}', expected 'drop' or 'back'")
        return cls("drop" if what == "drop" else "back", made, token)


def _replaced_to_dict(replaced: Replaced) -> dict[str, Any]:
    return {
        "old": replaced.old.to_dict(),
        "head": replaced.head.to_dict(),
        "fork": replaced.fork.to_dict(),
        "taken": replaced.taken.to_dict(),
        "resume": replaced.resume.to_dict(),
        "audit": replaced.audit,
        "reason": replaced.reason,
        "undoes": replaced.undoes,
    }


def _replaced_of(content: JsonObject) -> Replaced:
    path = content.path

    def reference(key: str) -> SnapshotRef:
        return SnapshotRef.from_dict(content.values.get(key), where=path)

    return Replaced(
        BranchRef.from_dict(content.values.get("old"), where=path),
        reference("head"),
        reference("fork"),
        reference("taken"),
        reference("resume"),
        content.optional_text("audit"),
        content.optional_text("reason"),
        content.optional_integer("undoes", minimum=1),
    )
