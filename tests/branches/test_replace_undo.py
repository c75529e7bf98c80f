"""Taking a replacement of main back."""

from dataclasses import replace

import pytest

from anabranch.errors import (
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    SealedBranchError,
)
from anabranch.format.records.main_pointer import Release
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.main_pointer import put_release
from tests.branches.replacing import BEFORE, again, files, parted, twice_replaced
from tests.support.tables import ids_of, rows, written

# Taking it back


def test_undo():
    table = parted()
    held = again(table)
    table.replace_main_branch("fix")
    table.append(rows(500, 1))
    result = table.undo_replace(reason="was right after all")
    assert (result.branch, result.number, result.repeated) == ("main", 2, False)
    assert ids_of(table) == ids_of(held) == [*BEFORE, 1000]
    assert ids_of(table.branch("fix")) == ids_of(table.branch("main@2")) == [*BEFORE, 100, 500]
    table.append(rows(1001, 1))
    assert ids_of(held) == [*BEFORE, 1000, 1001]
    assert [s.id for s in table.snapshots()] == [5, 4, 3, 2, 1]
    assert table.undo_replace() == replace(result, repeated=True)
    assert table.context.storage.get("branch/MAIN-BRANCH") == b"main"


def test_a_handle_from_before_undo_looks_again_at_which_branch_is_main():
    table = parted()
    table.replace_main_branch("fix", force=True)
    held = again(table)
    assert ids_of(held) == [*BEFORE, 100]
    pinned = held.at("good")
    table.undo_replace()
    table.delete_branch("fix")
    assert held.branches() == pinned.branches() == []
    assert ids_of(held) == [*BEFORE, 1000]


def test_the_branch_can_be_put_there_again():
    table = parted()
    table.replace_main_branch("fix")
    table.undo_replace()
    assert table.replace_main_branch("fix").number == 3
    table.append(rows(101, 1))
    assert ids_of(table) == [*BEFORE, 100, 101]
    table.undo_replace()
    assert ids_of(table) == [*BEFORE, 1000]


def test_a_job_that_was_fenced_goes_on_after_undo():
    table = parted()
    job = again(table)
    job.commit(Append(written(job, 500, 1)), identity=CommitIdentity("job@1", 1))
    table.replace_main_branch("fix")
    with pytest.raises(SealedBranchError):
        job.commit(
            Append(written(again(table).branch("main@1"), 501, 1)), identity=CommitIdentity("job@1", 2)
        )
    table.undo_replace()
    job = again(table)
    job.commit(Append(written(job, 501, 1)), identity=CommitIdentity("job@1", 2))
    assert ids_of(table) == [*BEFORE, 500, 501, 1000]


def test_undo_goes_back_one_by_one_when_told_how_far():
    table = twice_replaced()
    table.undo_replace()
    assert table.context.branch == "fix"
    assert table.undo_replace().repeated
    with pytest.raises(InvalidInputError, match="is not the last one that counts, which is 1"):
        table.undo_replace(7)
    table.undo_replace(1)
    assert ids_of(table) == [*BEFORE, 1000]
    assert table.undo_replace(1).repeated
    with pytest.raises(NotFoundError, match="or all of that was taken back"):
        table.undo_replace(2)


def test_nothing_is_undone_below_a_former_main_that_was_dropped():
    table = twice_replaced()
    with pytest.raises(InvalidInputError) as caught:
        table.undo_replace(1)
    assert "take back main@2 first" in caught.value.hint
    put_release(table.context, 2, Release("drop", 0, "t"))
    with pytest.raises(InvalidInputError) as caught:
        table.undo_replace(1)
    assert "main@2 was dropped" in caught.value.hint


def test_nothing_to_undo():
    with pytest.raises(NotFoundError, match="main of 'db.t' was not replaced"):
        parted().undo_replace()


@pytest.mark.parametrize("asked", [{}, {"force": True}, {"dry_run": True}], ids=str)
def test_a_destructive_rollback_is_refused_while_a_main_that_was_replaced_began_in_what_it_removes(asked):
    """It was refused in the middle: the removal was recorded, and the hint at the newest snapshot moved."""
    table = parted()
    table.replace_main_branch("fix")
    table.create_tag("now")
    table.create_branch("next", "now")
    table.branch("next").append(rows(200, 1))
    again(table).replace_main_branch("next")
    again(table).replace_main_branch("fix", force=True)
    before = files(table)
    with pytest.raises(CommitConflictError, match="branch 'next' .* is kept as 'main@3'"):
        again(table).rollback(2, destructive=True, **asked)
    assert files(table) == before
    assert again(table).verify(deep=True).ok
    assert ids_of(again(table)) == [*BEFORE, 100]
