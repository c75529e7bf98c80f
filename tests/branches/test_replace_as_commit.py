"""Replacing main by a commit on it: other engines may write, and nobody is fenced."""

import pyarrow as pa
import pytest

from anabranch.errors import (
    CommitConflictError,
    NotFoundError,
)
from anabranch.format.records.snapshot import CommitIdentity, CommitKind
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.main_pointer import replacements
from tests.branches.replacing import BEFORE, again, as_foreign, parted
from tests.support.tables import ids_of, rows, written

# As a commit


def test_as_a_commit_main_gets_the_rows_and_nobody_is_fenced():
    table = parted(main=2)
    held = again(table)
    result = table.replace_main_branch("fix", mode="commit", expect_main=4)
    assert (result.branch, result.number, result.former, result.new_snapshot) == ("fix", None, None, 5)
    assert ids_of(table) == [*BEFORE, 100]
    assert table.snapshot.commit_kind is CommitKind.OVERWRITE
    assert not replacements(table.context)
    held.commit(Append(written(held, 500, 1)), identity=CommitIdentity("job@1", 7))
    assert ids_of(table) == [*BEFORE, 100, 500]
    table.branch("fix").append(rows(101, 1))
    table.rollback(4)
    assert ids_of(table) == [*BEFORE, 1000, 1001]
    with pytest.raises(NotFoundError, match="not replaced") as refused:
        table.undo_replace()
    assert "rollback" in refused.value.hint


def test_as_a_commit_it_is_made_once():
    table = parted()
    table.replace_main_branch("fix", mode="commit")
    assert table.replace_main_branch("fix", mode="commit").repeated
    assert table.snapshot.id == 4
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        table.replace_main_branch("fix", mode="commit", expect_main=3)


def test_as_a_commit_main_gets_the_schema_with_all_that_old_files_need():
    table = parted(fix=0)
    fix = table.branch("fix")
    fix.alter().add_column("w", "INT").apply()
    fix.append(pa.table({"id": pa.array([7], pa.int64()), "v": ["a"], "w": pa.array([70], pa.int32())}))
    fix.alter().rename_column("w", "x").drop_column("v").apply()
    fix.append(pa.table({"id": pa.array([8], pa.int64()), "x": pa.array([80], pa.int32())}))
    table.alter().add_column("own", "STRING").apply()
    table.replace_main_branch("fix", mode="commit")
    found = again(table).scan().to_arrow().sort_by("id")
    assert found == fix.scan().to_arrow().sort_by("id")
    assert found["x"].to_pylist() == [*[None] * 6, 70, 80]
    table.alter().add_column("y", "INT").apply()
    fix.alter().add_column("z", "INT").apply()
    ids = {f.name: f.id for t in (table, fix) for f in t.schema.fields}
    assert ids["y"] != ids["z"]


def test_as_a_commit_other_engines_may_write():
    table = parted()
    as_foreign(table, 3)
    table.replace_main_branch("fix", mode="commit")
    assert ids_of(table) == [*BEFORE, 100]
