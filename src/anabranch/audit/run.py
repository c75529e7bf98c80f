"""Runs an audit: reads the checks, measures what they need, judges, records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.audit.check import Check, CheckFacts
from anabranch.audit.checks import read_checks
from anabranch.audit.checks_file import Checks
from anabranch.audit.embedded import measure
from anabranch.audit.measures import Found, Measure
from anabranch.audit.sides import Sides
from anabranch.audit.verdict import Verdict
from anabranch.engine import MeasuresRows
from anabranch.errors import InvalidInputError
from anabranch.format.records.audit import AuditRecord, CheckResult
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.branches.diff import DiffSide
from anabranch.kernel.log.audit_log import record_audit
from anabranch.kernel.log.fork_pins import fork_snapshot


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
