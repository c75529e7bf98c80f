"""A merge that was killed is seen to its end, whatever became of main meanwhile: expired, replaced, or both."""

import pytest

import anabranch
from anabranch.kernel.log.merge_log import merge_log
from tests.branches.merging import branched, contents, parted, rows
from tests.support.deaths import through
from tests.support.dying import Died
from tests.support.faults import run


def killed_merge(when, prepare=lambda table: None):
    """A table whose merge of `fix` was killed right before its commit, or right after it."""

    def die(path):
        raise Died

    table, fix = parted()
    prepare(table)
    fix.append(rows([10], "a"))
    with pytest.raises(Died):
        through(table, run(when, "put_if_absent", die, where="snapshot/snapshot-*")).merge_branch("fix")
    assert merge_log(fix.context).under_way
    return table, fix


def new_main(table):
    return anabranch.Table(table.branch("main").context)


@pytest.mark.parametrize("old_expires", ["before", "never"])
@pytest.mark.parametrize("new_expires", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_main_was_expired_and_then_replaced_by_a_branch_that_left_it_later(when, old_expires, new_expires):
    table, fix = killed_merge(when)
    for i in range(3):
        table.append(rows([50 + i], "b"))
    was_made = 10 in contents(table)
    other = branched(table, "other")
    for i in range(3):
        other.append(rows([20 + i], "b"))
    if old_expires == "before":
        for i in range(2):
            table.append(rows([90 + i], "b"))
        table.expire_snapshots(retain_max=2)
    if new_expires:
        other.expire_snapshots(retain_max=2)
    table.replace_main_branch("other", force=True)
    main = new_main(table)
    assert contents(main) == [1, 2, 3, *([10] if was_made else []), 20, 21, 22, 50, 51, 52]
    main.merge_branch("fix")
    assert contents(main) == [1, 2, 3, 10, 20, 21, 22, 50, 51, 52]
    assert not merge_log(fix.context).under_way
    fix.append(rows([11], "a"))
    main.merge_branch("fix")
    assert contents(main, "a") == [1, 2, 10, 11]


@pytest.mark.parametrize("new_expires", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_main_was_replaced_by_a_branch_that_left_it_before_the_merge(when, new_expires):
    """What the old main may have taken is not in the new one, and is merged there."""

    def prepare(table):
        branched(table, "other")
        for i in range(3):
            table.append(rows([50 + i], "b"))

    table, fix = killed_merge(when, prepare)
    other = table.branch("other")
    for i in range(4):
        other.append(rows([20 + i], "b"))
    table.append(rows([60], "b"))
    table.expire_snapshots(retain_max=2)
    if new_expires:
        other.expire_snapshots(retain_max=2)
    table.replace_main_branch("other", force=True)
    main = new_main(table)
    if new_expires:
        main.expire_snapshots(retain_max=2)
    main.merge_branch("fix")
    assert contents(main) == [1, 2, 3, 10, 20, 21, 22, 23]
    assert not merge_log(fix.context).under_way
