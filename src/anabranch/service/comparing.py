"""Comparing and checking moments of a table, as values for the command line."""

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


@dataclass(frozen=True, slots=True)
class DiffInfo:
    """The difference of two moments, for display."""

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
    """Partitions that differ."""
    rows: RowCounts | None
    """Number of rows that differ; None if not counted."""
    changes: tuple[Mapping[str, Any], ...] | None
    """Some of these rows, ``_change`` first; None if none were requested."""
    only_on_main: tuple[JobOnMain, ...] = ()
    """Commits only main has, by job, if one side is main and the other a branch."""


@dataclass(frozen=True, slots=True)
class VerdictInfo:
    """A verdict, for programs."""

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
    """Return the difference that ``A..B`` asks for; a side left out is main.

    Raises:
        InvalidInputError: the text does not have that form.
        NotFoundError: the table, branch or moment does not exist.
    """
    left, right = sides_of(asked)
    return open_table(open_lake(warehouse), View(table)).diff(left, right)


def sides_of(asked: str) -> tuple[str, str]:
    """Return the two sides of ``A..B``; one that is left out is main. Raises `InvalidInputError`."""
    left, dots, right = asked.partition("..")
    if not dots or ".." in right:
        raise InvalidInputError(
            f"'{asked}' does not say what to compare", hint="write main..fix, or fix@good..fix for moments."
        )
    return left.strip() or "main", right.strip() or "main"


def describe(
    diff: Diff,
    *,
    count: bool = False,
    limit: int = 0,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
) -> DiffInfo:
    """Return a difference as one value.

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
    with aside():  # they are only looked at
        return diff.rows(filter, columns).count()


def _changes(
    diff: Diff, filter: str | None, columns: Sequence[str] | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    with aside():  # they are only looked at
        found = diff.rows(filter, columns, limit).to_arrow()
    names = [found.schema.names[-1], *found.schema.names[:-1]]
    return tuple({name: row[name] for name in names} for row in rows_of(found))


def describe_verdict(verdict: Verdict) -> VerdictInfo:
    """Return everything known about a verdict as one value."""
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
