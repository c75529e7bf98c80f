"""What `CALL lake.sys.merge_branch` answers: one row for each partition, or for each conflict of a dry run."""

import pytest

from anabranch.errors import CommitConflictError
from anabranch.verbs.caller import Session
from anabranch.verbs.registry import call as call_procedure
from anabranch.verbs.registry import procedure as procedure_named
from tests.branches.merging import contents, parted, rows


def call(table, **given):
    procedure = procedure_named("merge_branch")
    names = [column.split()[0] for column in procedure.columns.split(", ")]
    found = [*call_procedure(procedure, Session(None, table), {"branch": "fix", **given})]
    assert all(len(row) == len(names) for row in found)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in found
    ]


def test_a_row_for_each_partition():
    table, fix = parted()
    fix.append(rows([10, 11], "a"))
    fix.overwrite(rows([20], "b"))
    planned = call(table, dry_run=True)
    assert [
        (row["partition"], row["outcome"], row["rows_added"], row["rows_removed"]) for row in planned
    ] == [
        ("dt=a", "added", 2, 0),
        ("dt=b", "replaced", 1, 1),
    ]
    done = call(table)
    assert [row.pop("snapshot_id") for row in done] == [table.snapshot.id] * 2
    assert done == planned
    assert call(table) == []


def test_conflicts_are_rows_of_a_dry_run_and_an_error_otherwise():
    table, fix = parted()
    fix.append(rows([10], "a"))
    table.overwrite(rows([60], "a"))
    (row,) = call(table, dry_run=True)
    assert (row["partition"], row["outcome"], row["conflict"]) == ("dt=a", "conflict", "APPEND_VS_OVERWRITE")
    with pytest.raises(CommitConflictError):
        call(table)
    (row,) = call(table, resolve="theirs")
    assert (row["chosen"], contents(table, "a")) == ("theirs", [1, 2, 10])
