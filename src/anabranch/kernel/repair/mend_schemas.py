"""Brings missing versions of the schema from the branch whose snapshots name them.

Another engine's fast-forward may copy the snapshots of a branch and leave its schemas behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.format.records.layout import schema_id_of
from anabranch.kernel.branches.lost_fork import readable_branch
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.repair.found import RefState
from anabranch.kernel.repair.problem import Act, Kind, Problem, RepairStep


def plan_schemas(
    main: TableContext, states: Sequence[RefState], problems: Sequence[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to copy missing versions, where all that both branches have are the same; none is replaced."""
    planned: set[str] = set()
    for problem in problems:
        try:
            found = _missing(main, states, problem) if problem.kind is Kind.SCHEMA else []
        except AnabranchError:
            continue  # what would tell is damaged too
        for owner, path, content in found:
            if path not in planned:
                planned.add(path)
                what = f"put {path}, which another engine did not copy, from branch '{owner.branch}'"
                yield RepairStep(Kind.SCHEMA, what, path), partial(main.storage.put_if_absent, path, content)


def _missing(
    main: TableContext, states: Sequence[RefState], problem: Problem
) -> list[tuple[TableContext, str, bytes]]:
    """Return the branch that has them, paths and contents of the missing versions up to the one that is named."""
    wanted = schema_id_of(problem.path)
    if wanted is None or main.storage.exists(problem.path):
        return []
    context = main if problem.branch == main.branch else main.on_branch(problem.branch)
    naming = [s for s in states if s.context.branch == problem.branch and s.snapshot.schema_id == wanted]
    makers = {state.snapshot.properties.get(BRANCH_PROPERTY) for state in naming}
    owner = _owner(main, makers - {context.branch_uuid, None})
    if owner is None:
        return []
    own = context.schemas.ids()
    if any(owner.schemas.find(number) not in (None, context.schemas.find(number)) for number in own):
        return []  # the same number means something else there
    numbers = [n for n in owner.schemas.ids() if max(own, default=-1) < n <= wanted]
    return [
        (owner, context.layout.schema_path(n), main.storage.get(owner.layout.schema_path(n))) for n in numbers
    ]


def _owner(main: TableContext, uuids: set[str | None]) -> TableContext | None:
    """Return the branch that has one of these identities."""
    for name in branch_names(main):
        try:
            branch = readable_branch(main, name)
            if branch.branch_uuid in uuids:
                return branch
        except AnabranchError:
            continue
    return None
