"""Verbs that compare moments and branches of a table, and check a branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.errors import InvalidInputError
from anabranch.verbs.answer import Answer, Grid, Line, Pairs, Sample, Shown
from anabranch.verbs.branches import BRANCHES, told_only_on_main
from anabranch.verbs.parameters import Columns, Filter, names
from anabranch.verbs.subject import OnTable
from anabranch.verbs.verb import argument, option, verb

if TYPE_CHECKING:
    from anabranch.compare import Diff, RowCounts
    from anabranch.kernel.provenance.coverage import JobOnMain


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


def sides_of(asked: str) -> tuple[str, str]:
    """Return the two sides of ``A..B``; one that is left out is main. Raises `InvalidInputError`."""
    left, dots, right = asked.partition("..")
    if not dots or ".." in right:
        raise InvalidInputError(
            f"'{asked}' does not say what to compare", hint="write main..fix, or fix@good..fix for moments."
        )
    return left.strip() or "main", right.strip() or "main"


def describe_diff(
    diff: Diff,
    *,
    count: bool = False,
    limit: int = 0,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
) -> DiffInfo:
    """Return a difference as one value.

    Args:
        count: also count the rows that differ, which reads the changed files.
        limit: also show so many of them.
        filter: as `Diff.rows` takes it.
        columns: as `Diff.rows` takes them.
    """
    from anabranch.lineage.recording import aside

    left, right = diff.left, diff.right
    with aside():  # they are only looked at
        counts = diff.rows(filter, columns).count() if count else None
        changes = _changes(diff, filter, columns, limit) if limit else None
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
        counts,
        changes,
        diff.only_on_main,
    )


def _changes(
    diff: Diff, filter: str | None, columns: Sequence[str] | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    from anabranch.frames.row_values import rows_of

    found = diff.rows(filter, columns, limit).to_arrow()
    order = [found.schema.names[-1], *found.schema.names[:-1]]
    return tuple({name: row[name] for name in order} for row in rows_of(found))


_COUNTS = (
    *("partition", "rows_left", "rows_right", "rows_removed", "rows_added"),
    *("files_removed", "files_added"),
)


@verb(
    BRANCHES,
    "Table.diff",
    columns="partition STRING, rows_left BIGINT, rows_right BIGINT, rows_removed BIGINT, rows_added BIGINT, "
    "files_removed BIGINT, files_added BIGINT",
)
def diff(
    table: OnTable,
    sides: Annotated[
        str | None,
        argument(
            "What to compare: main..fix, or moments of branches: fix@good..fix, main@snapshot.5..main.",
            "A..B",
            sql=None,
        ),
    ] = None,
    left: Annotated[
        str | None, option("A branch, or a moment of it as fix@good; main if left out.", in_command=False)
    ] = None,
    right: Annotated[
        str | None, option("The same; the branch of the table named if left out.", in_command=False)
    ] = None,
    rows: Annotated[
        int, option("Show so many of the rows that differ.", "--rows", "-n", min=0, sql=None)
    ] = 0,
    count: Annotated[
        bool, option("Say how many rows differ; reads changed files.", "--count", sql=None)
    ] = False,
    filter: Filter = None,
    columns: Columns = None,
) -> Answer:
    """Compare two moments of a table: files, columns, counts of each partition and, if asked for, rows."""
    found = table.diff(*sides_of(sides)) if sides is not None else table.diff(left or "main", right)
    info = describe_diff(found, count=count, limit=rows, filter=filter, columns=names(columns))
    counts = [tuple(partition[key] for key in _COUNTS) for partition in info.partitions]
    return Answer(info, _differing(info, counts), rows=counts)


def _differing(info: DiffInfo, counts: Sequence[tuple[Any, ...]]) -> Iterator[Shown]:
    yield Line(f"{info.left}..{info.right} of {info.table}", "bold", folded=True)
    files = f"{info.files_added:,} added, {info.files_removed:,} removed, {info.files_shared:,} shared"
    about = [
        *((info.left, _snapshot(info.left_snapshot)), (info.right, _snapshot(info.right_snapshot))),
        *(("files", files), ("schema", "; ".join(info.schema) or "the same")),
    ]
    if info.rows is not None:
        about.append(("rows", f"{info.rows.inserted:,} inserted, {info.rows.deleted:,} deleted"))
    yield Pairs(about)
    yield from told_only_on_main(info.only_on_main)
    if counts:
        yield Line("")
        yield Grid([key.replace("_", " ") for key in _COUNTS], counts)
    if info.changes:
        yield Line("")
        yield Grid([*info.changes[0]], [[*row.values()] for row in info.changes], grouped=False)


def _snapshot(number: int | None) -> str:
    return "no snapshot" if number is None else f"snapshot {number}"


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


@verb(
    BRANCHES,
    "Table.audit",
    columns="audit BIGINT, snapshot_id BIGINT, audit_passed BOOLEAN, check STRING, passed BOOLEAN, "
    "blocking BOOLEAN, expected STRING, found STRING, offending BIGINT",
    changes=True,
)
def audit(
    table: OnTable,
    arguments: Annotated[
        list[str],
        argument(
            "The branch, main if left out, and a file of checks in YAML.", "[BRANCH] CHECKS", sql="checks"
        ),
    ],
    by: Annotated[str | None, option("Who audits, for the record.")] = None,
) -> Answer:
    """Check a branch and record the verdict, which merge-branch and replace-main-branch can require; 1 if it failed."""
    if len(arguments) > 2:
        raise InvalidInputError(f"expected [BRANCH] CHECKS, found {' '.join(arguments)}")
    view = table.branch(arguments[0]) if len(arguments) == 2 else table
    verdict = view.audit(arguments[-1], by=by)
    record = verdict.record
    info = VerdictInfo(
        *(verdict.branch, verdict.number, record.name, record.passed),
        *(record.snapshot.id, record.snapshot.stamp, record.created_millis),
        tuple(check.to_dict() for check in record.checks),
    )
    rows = [
        (
            *(verdict.number, record.snapshot.id, verdict.passed, check.name, check.passed, check.blocking),
            *(check.expected, check.found, check.offending),
        )
        for check in verdict.checks
    ]
    return Answer(info, _audited(info), rows=rows, code=0 if info.passed else 1)


def _audited(info: VerdictInfo) -> Iterator[Shown]:
    about = f"audit {info.audit} '{info.checks}' of {info.table} at snapshot {info.snapshot}"
    yield Line(f"{about}: {'passed' if info.passed else 'failed'}", "green" if info.passed else "red")
    marks = [
        "passed" if one["passed"] else "failed" if one["blocking"] else "warning" for one in info.results
    ]
    rows = [
        (mark, one["name"], one["expected"], one["found"])
        for mark, one in zip(marks, info.results, strict=True)
    ]
    yield Grid(("", "check", "expected", "found"), rows)
    for result in info.results:
        if not result["passed"]:
            yield from (Sample(f"  {result['name']}: ", row) for row in result["sample"])
