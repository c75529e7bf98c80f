"""The commits of a merge: the one on main that makes it, and those that only take the next number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CommitConflictError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.log.properties import MERGE_PROPERTY
from anabranch.kernel.merge.plan import MergePlan, MergePlanner
from anabranch.kernel.provenance.origin import Origin

SCHEMA_MOVED: Final = "SCHEMA_MOVED"
"""Kind of the conflict that only says that the merged schema must be put again."""


@dataclass(frozen=True)
class Merge:
    """Bring the branch into the state of main that it lands on."""

    planner: MergePlanner
    name: str
    origin: Origin | None = None
    """What the snapshot says of where its rows come from; None if that is not known."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        plan = self.planner.plan(base)
        refuse(plan, self.name)
        assert plan.schema is not None, "nothing stands against it"
        assert plan.facts is not None, "nothing stands against it"
        if plan.schema.schema is not plan.schema.ours:
            return Conflict(
                SCHEMA_MOVED, f"the schema of '{base.context.title}' was changed meanwhile", "merge again."
            )
        return Change(
            _kind(plan),
            plan.entries,
            {
                MERGE_PROPERTY: plan.facts.to_text(),
                **({} if self.origin is None else self.planner.origin_of(plan, self.origin)),
            },
            adds_again=plan.adds_again,
            watermark=plan.watermark,
        )


@dataclass(frozen=True)
class Nothing:
    """Take the next number, and change nothing."""

    properties: Mapping[str, str]

    @property
    def depends_on_base(self) -> bool:
        return False

    def on(self, base: Base) -> Change | Conflict:
        return Change(CommitKind.COMPACT, (), self.properties)


def refuse(plan: MergePlan, name: str) -> None:
    """Raise `CommitConflictError` with everything that stands against a merge, if anything does."""
    if not plan.conflicts:
        return
    first, more = plan.conflicts[0], len(plan.conflicts) - 1
    others = f" ({more} more {'conflict' if more == 1 else 'conflicts'})" if more else ""
    raise CommitConflictError(
        f"branch '{name}' cannot be merged as it is: {first}{others}",
        conflicts=plan.conflicts,
        hint=first.hint,
    )


def is_only(error: CommitConflictError, kind: str) -> bool:
    return [conflict.kind for conflict in error.conflicts] == [kind]


def _kind(plan: MergePlan) -> CommitKind:
    """Readers see rows come as one APPEND; where rows go, it is an OVERWRITE; else nothing happened to any row."""
    if any(entry.kind == FileKind.DELETE for entry in plan.entries):
        return CommitKind.OVERWRITE
    return CommitKind.APPEND if plan.entries else CommitKind.COMPACT
