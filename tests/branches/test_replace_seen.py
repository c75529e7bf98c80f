"""Two people correct the same table, and what main is expected to be when it is replaced."""

import pytest

import anabranch
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.log.tag_log import find_tag, put_tag
from tests.branches.creating import later
from tests.branches.replacing import BEFORE, again, parted
from tests.support.tables import ids_of, rows


def _kinds(error):
    return [conflict.kind for conflict in error.value.conflicts]


def _two_correct():
    """`fix` and `mine` were made from the same tag; `fix` is main by now."""
    table = parted()
    table.create_branch("mine", "good")
    table.branch("mine").append(rows(200, 1))
    table.replace_main_branch("fix", by="ann", reason="prices in cents")
    return again(table)


def test_who_comes_second_is_told_whose_correction_they_would_drop():
    table = _two_correct()
    for how in ({}, {"dry_run": True}, {"mode": "commit"}):
        with pytest.raises(anabranch.CommitConflictError) as error:
            table.replace_main_branch("mine", **how)
        assert _kinds(error) == ["CORRECTION_DROPPED"], how
        assert "replacement 1 put branch 'fix'" in error.value.message
        assert "by ann (prices in cents)" in error.value.message
        assert "merge-branch --name mine" in error.value.hint
    assert ids_of(table) == [*BEFORE, 100]


def test_a_clock_that_is_ahead_hides_nobodys_correction():
    table = parted()
    later(table, 365 * 86_400_000).create_branch("mine", "good")
    table.replace_main_branch("fix")
    with pytest.raises(anabranch.CommitConflictError) as error:
        again(table).replace_main_branch("mine")
    assert _kinds(error) == ["CORRECTION_DROPPED"]


def test_who_comes_second_can_merge_or_branch_again():
    table = _two_correct()
    table.merge_branch("mine")
    assert ids_of(table) == [*BEFORE, 100, 200]
    table.create_tag("now")
    table.create_branch("again", "now")
    table.branch("again").append(rows(300, 1))
    table.replace_main_branch("again")
    assert ids_of(table) == [*BEFORE, 100, 200, 300]


def test_a_correction_is_dropped_by_force_or_when_its_maker_knew_of_it():
    table = _two_correct()
    assert table.replace_main_branch("mine", force=True).number == 2
    assert ids_of(table) == [*BEFORE, 200]
    table.create_branch("better", "good")
    assert table.replace_main_branch("better").number == 3, "made when the other was main already"


def test_a_correction_that_was_taken_back_is_not_dropped():
    table = _two_correct()
    table.undo_replace()
    assert table.replace_main_branch("mine").number == 3
    assert ids_of(table) == [*BEFORE, 200]


def test_what_was_main_before_is_put_back_by_force_or_an_undo():
    table = parted()
    table.replace_main_branch("fix")
    table.create_branch("next", "good")
    table.replace_main_branch("next")
    with pytest.raises(anabranch.CommitConflictError, match="replacement 2 put branch 'next'") as error:
        table.replace_main_branch("fix")
    assert "undo-replace" in error.value.hint
    assert table.replace_main_branch("fix", force=True).number == 3
    assert table.undo_replace().number == 4
    assert table.undo_replace(2).number == 5
    assert ids_of(table) == [*BEFORE, 100]


def test_a_correction_in_one_commit_counts_as_well():
    table = parted()
    table.create_branch("mine", "good")
    table.replace_main_branch("fix", mode="commit", by="ann")
    with pytest.raises(
        anabranch.CommitConflictError, match=r"gave main the rows of branch 'fix' .*by ann"
    ) as error:
        table.replace_main_branch("mine")
    assert _kinds(error) == ["CORRECTION_DROPPED"]
    table.branch("fix").append(rows(101, 1))
    table.replace_main_branch("fix", mode="commit")
    assert ids_of(table) == [*BEFORE, 100, 101], "its own"


def test_a_number_is_that_of_the_main_which_was_seen():
    """Both mains have a snapshot 3."""
    table = parted()
    mine = again(table)
    assert mine.snapshot.id == 3
    table.create_branch("mine", "good")
    table.replace_main_branch("fix")
    assert table.snapshot.id == 3
    with pytest.raises(anabranch.CommitConflictError, match="another branch is main now") as error:
        mine.replace_main_branch("mine", expect_main=3, force=True)
    assert _kinds(error) == ["MAIN_MOVED"]


@pytest.mark.parametrize("form", ["snapshot", "text", "reference"])
def test_a_snapshot_is_expected_by_its_identity(form):
    table = parted()
    seen, uuid = table.snapshot, table.branch_uuid
    asked = {
        "snapshot": seen,
        "text": f"{seen.id}@{seen.stamp[:8]}",
        "reference": SnapshotRef(uuid, seen.id, seen.stamp),
    }[form]
    table.create_branch("mine", "good")
    assert again(table).replace_main_branch("fix", dry_run=True).expect_main == f"3@{seen.stamp[:8]}"
    table.replace_main_branch("fix", expect_main=asked)
    assert table.snapshot.id == 3
    with pytest.raises(anabranch.CommitConflictError, match="MAIN_MOVED"):
        again(table).replace_main_branch("mine", expect_main=asked, force=True)
    assert again(table).replace_main_branch("mine", expect_main=table.snapshot, force=True).number == 2


@pytest.mark.parametrize("asked", ["x", "57@", "57@XY", True, "@ab12"])
def test_what_names_no_snapshot(asked):
    with pytest.raises(anabranch.InvalidInputError, match="names no snapshot of main"):
        parted().replace_main_branch("fix", expect_main=asked)


@pytest.mark.parametrize("key", ["scan.timestamp", "scan.timestamp-millis"])
def test_a_read_of_a_catalog_sees_the_moment_that_its_options_name(key):
    """As Spark hands options over that stand with a table: `FROM t WITH ('scan.timestamp' = '...')`."""
    from anabranch.kernel.log.moment import time_text
    from anabranch.spark.context.table_state import TableState

    table = parted()
    millis = int(table.context.runtime.clock.millis)
    table.replace_main_branch("fix")
    options = {key: str(millis) if key.endswith("millis") else time_text(millis)}
    assert ids_of(TableState.of(table).by(options).table) == [*BEFORE, 100]
    assert not TableState.of(table).by(options).table.moment.is_exact
    seen = TableState.of(table).by({**options, "scan.published": "true"})
    assert (ids_of(seen.table), seen.snapshot.id) == ([*BEFORE, 1000], 3)
    assert TableState.of(table).by({"scan.version": "good"}).snapshot.id == 2


def test_options_that_name_a_moment_mean_the_main_there_is_now():
    """The view was opened before another process replaced main."""
    table = parted()
    held = again(table)
    table.replace_main_branch("fix")
    newest = again(table)
    newest.append(rows(700, 1))
    newest.create_tag("late")
    assert ids_of(held.with_options({"scan.tag-name": "late"})) == ids_of(newest)
    number = newest.snapshot.id
    held = again(table)
    assert ids_of(held.with_options({"scan.snapshot-id": str(number)})) == ids_of(held.at(number))


def test_versions_of_main_are_named_alike_before_it_is_replaced_and_after():
    """A script that names main goes on where main was replaced meanwhile."""
    table = parted()
    assert [ids_of(table.at(version)) for version in ("main.snapshot.2", "main.good")] == [BEFORE, BEFORE]
    with pytest.raises(anabranch.NotFoundError, match="main@1"):
        table.at("main@1.good")
    with pytest.raises(anabranch.NotFoundError, match="'bad'"):
        table.at("main.bad")
    table.replace_main_branch("fix")
    assert [ids_of(again(table).at(version)) for version in ("main.snapshot.2", "main.good")] == [
        BEFORE,
        BEFORE,
    ]


def test_a_tag_that_is_called_like_a_version_of_main_is_found_until_main_is_replaced():
    """Of an earlier release, or of another engine: new ones are refused."""
    table = parted()
    there = find_tag(table.context, "good")
    put_tag(table.context, "main.snapshot.1", there.snapshot)
    assert ids_of(again(table).at("main.snapshot.1")) == BEFORE
    assert ids_of(again(table).at("main.main.snapshot.1")) == BEFORE
    with pytest.raises(anabranch.InvalidNameError, match="reads like a version of main"):
        table.create_tag("main.snapshot.2", snapshot=1)
