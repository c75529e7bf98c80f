"""Runs an audit: reads the checks, measures what they need, judges, records.

The checks a file can ask for:

    checks:
      - row_count: {min: 1, max: 1000000}
      - not_null: [id, ts]
      - unique: id
      - range: {column: price, min: 0}
      - accepted_values: {column: state, values: [open, paid]}
      - condition: shipped >= ordered
      - freshness: {column: ts, within: 2 h}
      - row_count_vs_main: {within: 5 %}
      - sum_vs_main: {column: price, within: 1 %}
      - no_removed_keys: id
      - sql: SELECT ... FROM {branch}

The top level may also have a ``name`` of the whole, columns to ``show`` of offending rows, and
``compare_with: fork`` to compare with main as it was when the branch began. Each check may have a ``name``, a condition
``where`` on the rows it is about, ``severity: warn`` if the audit should not fail with it, and, if it counts
offending rows, ``at_most``: how many are allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.audit.check_kinds import COUNTING, READERS
from anabranch.audit.checks_file import Checks, Item
from anabranch.audit.embedded import measure
from anabranch.audit.measures import Check, CheckEntry, CheckFacts, Found, Measure
from anabranch.audit.sides import Sides
from anabranch.engine import MeasuresRows
from anabranch.errors import InvalidInputError
from anabranch.format.records.fork import AuditRecord, CheckResult
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.types.data_types import Field
from anabranch.kernel.branches.diff import DiffSide
from anabranch.kernel.log.audit_log import record_audit
from anabranch.kernel.log.fork_pins import fork_snapshot
from anabranch.kernel.log.moment import time_text
from anabranch.tabular import as_html, as_text

_COLUMNS = ("", "check", "expected", "found")


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of an audit, as it was recorded. Truthy if it passed.

    Example:
        >>> from anabranch.audit import Checks
        >>> verdict = table.branch("fix").audit(Checks.parse("checks: [row_count: {min: 1}]"))
        >>> bool(verdict)
        True
    """

    branch: str
    """``database.table``, with ``$branch_<name>`` on a branch."""
    number: int
    """Number of the record: ``AUDIT-<number>`` in the branch's folder."""
    record: AuditRecord
    """The checks, the snapshot, and the findings."""

    @property
    def passed(self) -> bool:
        """Whether no check failed, other than those of severity ``warn``."""
        return self.record.passed

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """All checks with what was expected and found, in the order of the file."""
        return self.record.checks

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass, including those of severity ``warn``."""
        return tuple(check for check in self.checks if not check.passed)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        lines = [self._title, *(f"  {line}" for line in self._about), "", as_text(_COLUMNS, self._rows())]
        return "\n".join([*lines, *self._samples()])

    def _repr_html_(self) -> str:
        return as_html(self._title, [*self._about, *self._samples()], _COLUMNS, self._rows())

    @property
    def _title(self) -> str:
        return f"audit '{self.record.name}' of {self.branch}: {'passed' if self.passed else 'failed'}"

    @property
    def _about(self) -> tuple[str, ...]:
        record = self.record
        passed = sum(check.passed for check in record.checks)
        count = f"{passed} of {len(record.checks)} checks passed"
        return (f"snapshot {record.snapshot.id}, {count}, {time_text(record.created_millis)}",)

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for check in self.checks:
            mark = "passed" if check.passed else "failed" if check.blocking else "warning"
            yield mark, check.name, check.expected, check.found

    def _samples(self) -> Iterator[str]:
        for check in self.failed:
            for row in check.sample:
                yield f"  {check.name}: {json.dumps(row, ensure_ascii=False)}"


def audit(sides: Sides, file: Checks, *, by: str | None = None) -> Verdict:
    """Check a moment of a branch, and record the verdict in the branch's folder.

    Args:
        sides: what is audited, and main to compare it with.
        file: the checks.
        by: who audits, for people.

    Raises:
        InvalidInputError: the file of checks is invalid; the message names the line.
        AnabranchError: what reading the table raises; nothing is recorded then.
    """
    engine: object = sides.engine
    on_engine = engine if isinstance(engine, MeasuresRows) else None
    read = read_checks(file, sides.fields, own_language=on_engine is None)
    if read.against == "fork":
        sides = replace(sides, main=_fork_of(sides))
    wanted = [m for check in read.checks for m in check.measures]
    found = measure(wanted, sides) if on_engine is None else on_engine.measure(wanted, sides)
    context, snapshot = sides.branch.context, sides.branch.snapshot
    now = context.runtime.clock.now_millis()
    facts = CheckFacts(now, None if snapshot is None else snapshot.time_millis)
    results = tuple(_result(check, found, facts) for check in read.checks)
    record = AuditRecord(
        name=read.name,
        snapshot=_reference(sides.branch),
        schema_id=sides.branch.schema.id,
        passed=all(result.passed or not result.blocking for result in results),
        checks=results,
        digest=file.digest,
        created_millis=now,
        created_by=by,
        against=None if sides.main is None else _reference(sides.main, read.against),
    )
    return Verdict(context.title, record_audit(context, record), record)


def _fork_of(sides: Sides) -> DiffSide:
    """Return the state the branch began with."""
    context = sides.branch.context
    snapshot = fork_snapshot(context, None if sides.main is None else sides.main.context)
    if snapshot is None:
        raise InvalidInputError(
            f"checks compare '{context.title}' with what it began with, which is not known",
            hint="leave out 'compare_with: fork' to compare with main as it is.",
        )
    return DiffSide("fork", context, snapshot, context.schemas.get(snapshot.schema_id))


def _result(check: Check, found: Mapping[Measure, Found], facts: CheckFacts) -> CheckResult:
    outcome = check.judge([found[m] for m in check.measures], facts)
    findings = outcome.findings
    return CheckResult(
        check.name,
        check.kind,
        outcome.passed,
        check.expected,
        outcome.found,
        check.blocking,
        None if findings is None else findings.count,
        () if findings is None else findings.sample,
    )


def _reference(side: DiffSide, against: str = "main") -> SnapshotRef:
    snapshot, context = side.snapshot, side.context
    if against == "fork" and context.fork is not None:
        return context.fork.snapshot
    uuid = context.branch_uuid
    return SnapshotRef(uuid, 0, "") if snapshot is None else SnapshotRef(uuid, snapshot.id, snapshot.stamp)


_MOST_CHECKS = 1_000


@dataclass(frozen=True)
class CheckSet:
    """All checks of a file, bound to a table."""

    name: str
    checks: tuple[Check, ...]
    against: str
    """What main is in comparisons: ``main`` at its newest state, or the ``fork``, as it was when the branch began."""


def read_checks(file: Checks, fields: Sequence[Field], *, own_language: bool = True) -> CheckSet:
    """Bind the checks of a file to a table.

    Args:
        file: the parsed file.
        fields: the table's columns.
        own_language: whether conditions are in our language of filters; otherwise in Spark's SQL.

    Raises:
        InvalidInputError: naming the line: a key is unknown, a column does not exist, a value is invalid.
    """
    top = file.root.mapping(("name", "show", "compare_with", "checks"))
    known = {f.name for f in fields}
    shown = tuple(top["show"].texts()) if "show" in top else ()
    for column in shown:
        if column not in known:
            top["show"].fail(f"there is no column '{column}'", f"the columns are {', '.join(known)}.")
    if "checks" not in top:
        file.root.fail("there are no 'checks'", "write a list of checks under 'checks:'.")
    entries = top["checks"].items()
    if len(entries) > _MOST_CHECKS:
        top["checks"].fail(
            f"there are {len(entries):,} checks, and a file may have {_MOST_CHECKS:,}",
            "make several files of them; each is an audit of its own.",
        )
    checks = tuple(
        check for entry in entries for check in _read_entry(entry, fields, shown, own_language=own_language)
    )
    if not checks:
        top["checks"].fail("there are no checks", "write '- row_count: {min: 1}', or others.")
    return CheckSet(
        top["name"].line() if "name" in top else file.name,
        checks,
        top["compare_with"].choice("main", "fork") if "compare_with" in top else "main",
    )


_COMMON = ("name", "where", "severity", "at_most")


def _read_entry(
    entry: Item, fields: Sequence[Field], shown: tuple[str, ...], *, own_language: bool
) -> list[Check]:
    given = entry.mapping((*READERS, *_COMMON))
    kinds = [kind for kind in given if kind in READERS]
    if len(kinds) != 1:
        entry.fail(
            f"an entry is one check, found {' and '.join(kinds) or 'none'}",
            f"begin each with '- ' and one of {', '.join(READERS)}.",
        )
    (kind,) = kinds
    severity = given["severity"].choice("error", "warn") if "severity" in given else "error"
    for key, allowed in (("at_most", COUNTING), ("where", READERS.keys() - {"sql"})):
        if key in given and kind not in allowed:
            given[key].fail(f"'{kind}' has no '{key}'")
    asked = CheckEntry(kind, given[kind], fields, shown, own_language, most=given.get("at_most"))
    if "where" in given:
        asked = replace(asked, where=asked.condition(given["where"]))
    made = READERS[kind](asked)
    named = given["name"].line() if "name" in given else None
    suffix = "" if asked.where is None else f" where {asked.where}"
    return [
        Check(
            kind,
            c.name + suffix if named is None else named if len(made) == 1 else f"{named}: {c.name}",
            c.expected,
            c.measures,
            c.judge,
            severity == "error",
        )
        for c in made
    ]
