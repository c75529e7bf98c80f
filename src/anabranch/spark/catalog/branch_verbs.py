"""Procedures for branches: create, compare, check and merge them, and make one main."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.spark.catalog.verb import DRY_RUN, Arguments, Parameter, Row, Verb, without
from anabranch.table import Table

_BRANCH_NAME: Final = Parameter("branch", "STRING", "name of the branch", required=True)
_REPLACED_COLUMNS: Final = (
    "branch STRING, replacement BIGINT, former_main STRING, fork_snapshot_id BIGINT, old_snapshot_id BIGINT, "
    "new_snapshot_id BIGINT"
)
_BRANCH_COLUMNS: Final = "branch STRING, branch_uuid STRING, tag STRING, snapshot_id BIGINT"


def _create_branch(table: Table, given: Arguments) -> Iterable[Row]:
    table.create_branch(given["branch"], **without(given, "branch"))
    made = table.branch(given["branch"])
    fork = made.context.fork
    assert fork is not None, "it was created just now"
    return [(fork.name, fork.branch_uuid, fork.tag, fork.snapshot.id)]


def _delete_branch(table: Table, given: Arguments) -> Iterable[Row]:
    deleted = table.delete_branch(given["branch"])
    fork = deleted.fork
    known = (None,) * 3 if fork is None else (fork.branch_uuid, fork.tag, fork.snapshot.id)
    return [(deleted.name, *known)]


def _merge_branch(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.merge_branch(given["branch"], **without(given, "branch"))
    made = None if done.snapshot is None else done.snapshot.id
    return [
        (
            *(made, p.partition, str(p.outcome), None if p.chosen is None else str(p.chosen)),
            *(p.files_added, p.files_removed, p.rows_added, p.rows_removed, None, None),
        )
        for p in done.partitions
    ] + [
        (None, conflict.partition, "conflict", *(None,) * 5, conflict.kind, conflict.message)
        for conflict in done.conflicts
    ]


def _replace_main_branch(table: Table, given: Arguments) -> Iterable[Row]:
    return [_replaced(table.replace_main_branch(given["branch"], **without(given, "branch")))]


def _undo_replace(table: Table, given: Arguments) -> Iterable[Row]:
    return [_replaced(table.undo_replace(**given))]


def _replaced(done: ReplaceResult) -> Row:
    return (done.branch, done.number, done.former, done.fork, done.old_snapshot, done.new_snapshot)


def _diff(table: Table, given: Arguments) -> Iterable[Row]:
    found = table.diff(given.get("left", "main"), given.get("right"))
    return [
        (p.partition, p.rows_left, p.rows_right, p.rows_removed, p.rows_added, p.files_removed, p.files_added)
        for p in found.partitions
        if p.is_changed
    ]


def _audit(table: Table, given: Arguments) -> Iterable[Row]:
    verdict = table.audit(given["checks"], by=given.get("by"))
    about = (verdict.number, verdict.record.snapshot.id, verdict.passed)
    return [
        (*about, check.name, check.passed, check.blocking, check.expected, check.found, check.offending)
        for check in verdict.checks
    ]


BRANCH_VERBS: Final = (
    Verb(
        "create_branch",
        "Create a branch that begins as a tag of main is; no data is copied.",
        (
            _BRANCH_NAME,
            Parameter("tag", "STRING", "a tag of main; with a snapshot or savepoint the tag to make"),
            Parameter("snapshot", "STRING", "the snapshot of main to begin with"),
            Parameter("savepoint", "BIGINT", "number of the savepoint to begin with"),
            Parameter("retained", "STRING", "how long maintain keeps the branch, such as '7 d'"),
        ),
        _BRANCH_COLUMNS,
        _create_branch,
    ),
    Verb(
        "delete_branch",
        "Remove a branch with its snapshots, tags and savepoints.",
        (_BRANCH_NAME,),
        _BRANCH_COLUMNS,
        _delete_branch,
    ),
    Verb(
        "merge_branch",
        "Bring what a branch did since it was merged last into main: one row for each partition.",
        (
            _BRANCH_NAME,
            Parameter("resolve", "STRING", "'ours' or 'theirs', for every partition with a conflict"),
            Parameter("allow_source_overlap", "BOOLEAN", "merge events that main has as well"),
            Parameter("require_audit", "STRING", "checks that the branch must have passed"),
            DRY_RUN,
        ),
        "snapshot_id BIGINT, partition STRING, outcome STRING, chosen STRING, files_added BIGINT, "
        "files_removed BIGINT, rows_added BIGINT, rows_removed BIGINT, conflict STRING, message STRING",
        _merge_branch,
    ),
    Verb(
        "replace_main_branch",
        "Put a branch in the place of main.",
        (
            _BRANCH_NAME,
            Parameter("expect_main", "BIGINT", "id of main's newest snapshot; with another nothing is done"),
            Parameter("mode", "STRING", "pointer (the default), or commit for tables that other engines use"),
            Parameter("wait", "STRING", "how long to wait until the branch has caught up, such as '10 min'"),
            Parameter("force", "BOOLEAN", "go on although a check found something"),
            Parameter("require_audit", "STRING", "checks that the branch must have passed"),
            Parameter("reason", "STRING", "why, for people"),
            DRY_RUN,
        ),
        _REPLACED_COLUMNS,
        _replace_main_branch,
    ),
    Verb(
        "undo_replace",
        "Take back the last replacement of main.",
        (
            Parameter("number", "BIGINT", "of the replacement, to go back further than the last one"),
            Parameter("reason", "STRING", "why, for people"),
        ),
        _REPLACED_COLUMNS,
        _undo_replace,
    ),
    Verb(
        "diff",
        "What differs between two moments: one row for each partition that does.",
        (
            Parameter("left", "STRING", "a branch, or a moment of it as fix@good; main if left out"),
            Parameter("right", "STRING", "the same; the branch of the table named if left out"),
        ),
        "partition STRING, rows_left BIGINT, rows_right BIGINT, rows_removed BIGINT, rows_added BIGINT, "
        "files_removed BIGINT, files_added BIGINT",
        _diff,
    ),
    Verb(
        "audit",
        "Check a branch and record the verdict: one row for each check.",
        (
            Parameter("checks", "STRING", "path of a file of checks in YAML", required=True),
            Parameter("by", "STRING", "who audits, for the record"),
        ),
        "audit BIGINT, snapshot_id BIGINT, audit_passed BOOLEAN, check STRING, passed BOOLEAN, "
        "blocking BOOLEAN, expected STRING, found STRING, offending BIGINT",
        _audit,
    ),
)
