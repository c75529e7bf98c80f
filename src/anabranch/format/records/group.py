"""The records of a replacement of main in several tables at once, each write-once, in the warehouse's ``groups/``.

``GROUP-<k>`` announces it: which tables, which branches, until when. ``GROUP-<k>.decided`` says whether it was made. Each
table has a ``MAIN-<g>`` of its own that names the group, and counts only if the group was made: so all of them change
by the one put of the decision. ``branch/GROUP-<g>`` in a table is a copy of the decision about its ``MAIN-<g>``, so that
the table can be understood without its warehouse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from anabranch.format.records.main_pointer import BranchRef
from anabranch.format.text.record import JsonFile, JsonRecord, Stored

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
