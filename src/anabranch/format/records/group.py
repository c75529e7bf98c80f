"""The records of a replacement of main in several tables at once, each write-once, in the warehouse's ``groups/``.

``GROUP-<k>`` announces it: which tables, which branches, until when. ``GROUP-<k>.decided`` says whether it was made. Each
table has a ``MAIN-<g>`` of its own that names the group, and counts only if the group was made: so all of them change
by the one put of the decision. ``branch/GROUP-<g>`` in a table is a copy of the decision about its ``MAIN-<g>``, so that
the table can be understood without its warehouse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptTableError
from anabranch.format.records.main_pointer import BranchRef
from anabranch.format.text.json_object import JsonObject, to_bytes

GROUPS_FOLDER = "groups"
"""In the warehouse, beside the folders of the databases."""
GROUP_PREFIX = "GROUP-"
_DECIDED = ".decided"
_VERSION = 1


def group_path(number: int) -> str:
    """``GROUP-3``: of an announcement in the warehouse's folder; of a decision's copy in a table's, by its own number."""
    return f"{GROUP_PREFIX}{number}"


def decision_path(number: int) -> str:
    """``GROUP-3.decided``, in the warehouse's folder."""
    return f"{GROUP_PREFIX}{number}{_DECIDED}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A table whose main is to be replaced together with others."""

    table: str
    """``database.table`` when it was announced."""
    table_uuid: str
    target: BranchRef
    """The branch that is to be main."""
    generation: int
    """Number of the replacement in the table."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "uuid": self.table_uuid,
            "target": self.target.to_dict(),
            "generation": self.generation,
        }

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> GroupMember:
        """Raises `CorruptTableError` naming `where`."""
        match value:
            case {"table": str(table), "uuid": str(uuid), "generation": int(generation)} if generation > 0:
                return cls(table, uuid, BranchRef.from_dict(value.get("target"), where=where), generation)
            case _:
                raise CorruptTableError("names no table (table, uuid, target, generation)", path=where)


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """Intent of a replacement of main in several tables that is under way."""

    members: tuple[GroupMember, ...]
    deadline_millis: int
    """Epoch milliseconds by the clock of who replaces; from then on anybody may decide that all mains stay."""
    made_millis: int
    made_by: str | None
    reason: str | None
    undoes: int | None
    """The group that this one takes back."""
    token: str
    """Unique to this attempt."""

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _VERSION,
                "members": [member.to_dict() for member in self.members],
                "deadlineMillis": self.deadline_millis,
                "madeMillis": self.made_millis,
                "madeBy": self.made_by,
                "reason": self.reason,
                "undoes": self.undoes,
                "token": self.token,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> GroupIntent:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        return cls(
            tuple(GroupMember.from_dict(item, where=path) for item in content.items("members")),
            content.integer("deadlineMillis"),
            content.integer("madeMillis"),
            content.optional_text("madeBy"),
            content.optional_text("reason"),
            content.optional_integer("undoes", minimum=1),
            content.text("token"),
        )


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """Whether the mains of all tables of a group were replaced, or all stay."""

    group: str
    """Token of what was announced: numbers of groups are those of one warehouse."""
    made: bool
    made_millis: int
    """Epoch milliseconds."""
    made_by: str | None
    token: str
    """Unique to the process that put it."""

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _VERSION,
                "group": self.group,
                "outcome": "replaced" if self.made else "stay",
                "madeMillis": self.made_millis,
                "madeBy": self.made_by,
                "token": self.token,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> GroupDecision:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        outcome = content.text("outcome")
        if outcome not in ("replaced", "stay"):
            content.fail(f"'outcome' is '{outcome}', expected 'replaced' or 'stay'")
        return cls(
            content.text("group"),
            outcome == "replaced",
            content.integer("madeMillis"),
            content.optional_text("madeBy"),
            content.text("token"),
        )
