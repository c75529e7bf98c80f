"""Merging into a main that was replaced: by another branch, which has main's past in it."""

import pytest

import anabranch
from anabranch.kernel.log.merge_log import merge_log
from tests.branches.merging import branched, conflicts_of, contents, parted, rows
from tests.support.dying import Died, DyingStorage, through
from tests.support.faults import FaultyStorage, run


def replaced():
    """Main and two branches of one moment, one of which is main now."""
    table, fix = parted()
    other = branched(table, "other")
    table.append(rows([50], "a"))
    other.append(rows([20], "a"))
    table.replace_main_branch("other", force=True)
    return anabranch.Table(table.branch("main").context), fix


def test_a_branch_goes_into_the_main_of_now():
    table, fix = replaced()
    fix.append(rows([10], "a"))
    done = table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 20, 10]
    assert done.snapshot.stamp == table.branch("other").snapshot.stamp
    fix.append(rows([11], "a"))
    table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 20, 10, 11]


def test_what_only_the_old_main_took_can_be_merged_into_the_new_one():
    table, fix = parted()
    branched(table, "other")
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    table.replace_main_branch("other", force=True)
    table = table.branch("main")
    assert contents(table) == [1, 2, 3]
    table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 10]


def test_a_branch_that_left_the_old_main_later_has_nothing_in_common_with_the_new_one():
    table, _ = parted()
    branched(table, "other")
    table.append(rows([50], "a"))
    late = branched(table, "late")
    late.append(rows([30], "a"))
    table.replace_main_branch("other", force=True)
    assert conflicts_of(table.branch("main"), "late") == [("NOT_DESCENDED", None)]


def test_a_branch_that_left_the_old_main_later_is_refused_also_once_the_new_main_has_expired():
    """What the new main never had looks like what it had and expired; the replacements tell."""
    table, _ = parted()
    other = branched(table, "other")
    table.append(rows([50], "a"))
    late = branched(table, "late")
    table.replace_main_branch("other", force=True)
    for i in range(4):
        table.append(rows([60 + i], "b"))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert min(s.id for s in other.snapshots()) > late.snapshot.id
    assert conflicts_of(table, "late") == [("NOT_DESCENDED", None)]
    late.append(rows([30], "a"))
    assert conflicts_of(table, "late") == [("NOT_DESCENDED", None)]
    assert contents(table) == [1, 2, 3, 60, 61, 62, 63]


def test_a_branch_of_the_past_that_two_mains_share_can_be_merged_once_that_has_expired():
    table, _ = parted()
    branched(table, "other")
    table.replace_main_branch("other", force=True)
    table.create_branch("made-of-the-new-main", "for-other")
    table.branch("made-of-the-new-main").append(rows([30], "a"))
    table.undo_replace()
    for i in range(4):
        table.append(rows([60 + i], "b"))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert conflicts_of(table, "made-of-the-new-main") == []
    assert contents(table) == [1, 2, 3, 30, 60, 61, 62, 63]


def test_a_merge_that_died_before_main_was_replaced():
    """Its record names a snapshot that both mains have; it is carried out, or its place taken, on the new one."""
    for wanted in (None, "theirs"):
        for at in range(1, 200):
            table, fix = parted()
            branched(table, "other")
            fix.append(rows([10], "a"))
            dying = through(table, DyingStorage(table.context.storage, at, after=True))
            try:
                dying.merge_branch("fix")
            except Died:
                if not merge_log(fix.context).under_way:
                    continue
            break
        assert merge_log(fix.context).under_way
        assert contents(table) == [1, 2, 3]
        table.replace_main_branch("other", force=True)
        table = table.branch("main")
        table.merge_branch("fix", resolve=wanted)
        assert contents(table, "a") == [1, 2, 10]
        assert not merge_log(fix.context).under_way


def test_conflicts_with_a_branch_that_was_made_again_meanwhile_are_as_those_of_a_merge():
    """Whoever prints them asks each for its partition."""
    table, fix = parted()
    fix.append(rows([10], "a"))

    def anew(_):
        other = through(table, table.context.storage)
        other.delete_branch("fix")
        other.create_branch("fix", tag="for-fix")

    faults = [run("before", "put_if_absent", anew, where="branch/branch-fix/snapshot/*")]
    storage = FaultyStorage(table.context.storage, faults)
    with pytest.raises(anabranch.CommitConflictError) as caught:
        through(table, storage).merge_branch("fix")
    assert [(c.kind, c.partition, c.snapshots, c.files) for c in caught.value.conflicts] == [
        ("TABLE_REPLACED", None, (), ())
    ]
