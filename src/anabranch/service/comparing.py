"""Comparing moments of a table and checking them: what the command line's verbs do, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.audit import Verdict
from anabranch.compare import Diff, RowCounts
from anabranch.errors import InvalidInputError
from anabranch.kernel.provenance.coverage import JobOnMain
from anabranch.lineage.recording import aside
from anabranch.service.tables import View, open_lake, open_table
from anabranch.service.values import rows_of
from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class DiffInfo:
    """The difference of two moments as people see it."""

    table: str
    left: str
    right: str
    left_snapshot: int | None
    right_snapshot: int | None
    files_added: int
    files_removed: int
    files_shared: int
    schema: tuple[str, ...]
    """Changes of the schema, in words."""
    partitions: tuple[Mapping[str, Any], ...]
    """Those that differ."""
    rows: RowCounts | None
    """How many rows differ; None if they were not counted."""
    changes: tuple[Mapping[str, Any], ...] | None
    """Some of these rows, ``_change`` first; None if none were asked for."""
    only_on_main: tuple[JobOnMain, ...] = ()
    """What only main has, job by job, if one side is main and the other a branch."""


@dataclass(frozen=True, slots=True)
class VerdictInfo:
    """A verdict as programs see it."""

    table: str
    audit: int
    checks: str
    """Name of the set of checks."""
    passed: bool
    snapshot: int
    stamp: str
    time_millis: int
    results: tuple[Mapping[str, Any], ...]


def open_diff(warehouse: str, table: str, asked: str) -> Diff:
    """The difference that ``A..B`` asks for; a side left out is main.

    Raises:
        InvalidInputError: that is not what was written.
        NotFoundError: there is no such table, branch or moment.
    """
    left, dots, right = asked.partition("..")
    if not dots or ".." in right:
        raise InvalidInputError(
            f"'{asked}' does not say what to compare", hint="write main..fix, or fix@good..fix for moments."
        )
    found = open_table(open_lake(warehouse), View(table))
    return found.diff(left.strip() or "main", right.strip() or "main")


def describe(
    diff: Diff,
    *,
    count: bool = False,
    limit: int = 0,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
) -> DiffInfo:
    """A difference in one value.

    Args:
        diff: what to describe.
        count: also count the rows that differ, which reads the changed files.
        limit: also show so many of them.
        filter: as `Diff.rows` takes it.
        columns: as `Diff.rows` takes them.
    """
    left, right = diff.left, diff.right
    return DiffInfo(
        right.context.name,
        left.name,
        right.name,
        None if left.snapshot is None else left.snapshot.id,
        None if right.snapshot is None else right.snapshot.id,
        diff.files.added.height,
        diff.files.removed.height,
        diff.files.shared.height,
        diff.schema.phrases,
        tuple(asdict(p) for p in diff.partitions if p.is_changed),
        _counts(diff, filter, columns) if count else None,
        _changes(diff, filter, columns, limit) if limit else None,
        diff.only_on_main,
    )


def _counts(diff: Diff, filter: str | None, columns: Sequence[str] | None) -> RowCounts:
    with aside():  # people look at them
        return diff.rows(filter, columns).count()


def _changes(
    diff: Diff, filter: str | None, columns: Sequence[str] | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    with aside():  # people look at them
        found = diff.rows(filter, columns, limit).to_arrow()
    names = [found.schema.names[-1], *found.schema.names[:-1]]
    return tuple({name: row[name] for name in names} for row in rows_of(found))


def open_branch(warehouse: str, table: str, branch: str | None) -> Table:
    """A branch of a table at its newest state; main if None. Raises `NotFoundError`."""
    return open_table(open_lake(warehouse), View(table, branch))


def describe_verdict(verdict: Verdict) -> VerdictInfo:
    """All there is to know of a verdict in one value."""
    record = verdict.record
    return VerdictInfo(
        verdict.branch,
        verdict.number,
        record.name,
        record.passed,
        record.snapshot.id,
        record.snapshot.stamp,
        record.created_millis,
        tuple(check.to_dict() for check in record.checks),
    )
