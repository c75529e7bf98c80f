"""The commit actions of a merge: the merge on main, and an empty one that only takes a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import CommitConflictError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.snapshot import CommitKind
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.log.field_ids import reserve_block
from anabranch.kernel.log.properties import MERGE_PROPERTY
from anabranch.kernel.merge.plan import MergePlan, MergePlanner
from anabranch.kernel.merge.schema import MergedSchema
from anabranch.kernel.provenance.coverage import Origin


@dataclass(frozen=True)
class Merge:
    """Merge the branch into the state of main it is committed on."""

    planner: MergePlanner
    name: str
    origin: Origin | None = None
    """Provides the lineage of the snapshot's rows; None if not known."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        plan = self.planner.plan(base)
        refuse(plan, self.name)
        assert plan.schema is not None, "nothing stands against it"
        assert plan.facts is not None, "nothing stands against it"
        return Change(
            _kind(plan),
            plan.entries,
            {
                MERGE_PROPERTY: plan.facts.to_text(),
                **({} if self.origin is None else self.planner.origin_of(plan, self.origin)),
            },
            adds_again=plan.adds_again,
            watermark=plan.watermark,
            schemas=_versions(base, plan.schema),
        )


@dataclass(frozen=True)
class Nothing:
    """Take the next number without changes."""

    properties: Mapping[str, str]

    @property
    def depends_on_base(self) -> bool:
        return False

    def on(self, base: Base) -> Change | Conflict:
        return Change(CommitKind.COMPACT, (), self.properties)


def _versions(base: Base, merged: MergedSchema) -> tuple[TableSchema, ...]:
    """The version that the merge makes of main's schema, if it is another."""
    main = base.context
    if merged.schema is merged.ours:
        return ()
    block = reserve_block(main, main.branch_uuid) if merged.needs_block else None
    return (merged.numbered(block, time_millis=main.runtime.clock.now_millis()),)


def refuse(plan: MergePlan, name: str) -> None:
    """Raise `CommitConflictError` with all conflicts of a merge, if there are any."""
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
    """Choose the commit kind: OVERWRITE if rows go, APPEND if rows only come, else COMPACT."""
    if any(entry.kind == FileKind.DELETE for entry in plan.entries):
        return CommitKind.OVERWRITE
    return CommitKind.APPEND if plan.entries else CommitKind.COMPACT
