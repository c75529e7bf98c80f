"""Rows that are committed once, whichever run is first: what runs of batch jobs on branches are written by."""

import pytest

import anabranch
from anabranch.errors import CommitConflictError
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.table.table import committing_once
from tests.support.tables import make_table, rows


@pytest.fixture
def view(tmp_path):
    """A new view for each run of number 4, as a job makes it."""
    table = make_table(tmp_path, "db.t")

    def view():
        begun = SnapshotRef(table.branch_uuid, 0, "")
        return committing_once(table, CommitIdentity("batch:nightly", 4), after=begun)

    return view


def test_the_second_run_is_refused_and_told_what_is_there(view):
    view().append(rows(0, 2))
    with pytest.raises(CommitConflictError) as refused:
        view().append(rows(5, 1))
    assert "a commit of this identity is there already in 'db.t', snapshot 1 (batch:nightly, 4)" in str(
        refused.value
    )
    assert view().scan().count() == 2


@pytest.mark.parametrize("options", [{"write-only": "true"}, {"branch": "main"}])
def test_options_of_a_use_leave_it_as_it_is(view, options):
    view().append(rows(0, 2))
    with pytest.raises(CommitConflictError, match="is there already"):
        view().with_options(options).append(rows(5, 1))
    assert view().scan().count() == 2


def test_another_branch_is_written_as_ever(view):
    view().append(rows(0, 2))
    view().create_tag("good")
    view().create_branch("fix", "good")
    fix = view().with_options({"branch": "fix"})
    fix.append(rows(5, 1))
    fix.append(rows(6, 1))
    assert fix.scan().count() == 4


def test_it_is_no_method_of_tables():
    assert not hasattr(anabranch.Table, "once")
