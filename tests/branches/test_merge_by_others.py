"""Rows of a branch that come to main by way of another branch: that was main when they were merged, until it was taken back."""

import itertools

import pytest

from tests.branches.merging import branched, conflicts_of, contents, parted, rows
from tests.support.deaths import through
from tests.support.lengths import first_short

COMPACTED = {"compaction.min.file-num": "2"}
FOREIGN = [("FOREIGN_MERGE", "dt=c")]


def merged_into_another(table):
    """The branch `fix` with rows that were merged into the branch `other`, which was main for that time."""
    branched(table, "other")
    for number in range(10, 13):
        table.branch("fix").append(rows([number], "c"))
    table.replace_main_branch("other", force=True)
    table.merge_branch("fix")


def expired(table):
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=0)


def nothing(table):
    pass


def compacted(table):
    table.compact(full=True)


WORKS = [
    *((compacted, nothing), (nothing, expired), (expired, compacted)),
    *((nothing, nothing), (nothing, compacted), (compacted, compacted)),
    *((compacted, expired), (expired, nothing), (expired, expired)),
]


@pytest.mark.parametrize(("on_other", "on_fix"), first_short(WORKS, 3))
@pytest.mark.parametrize("order", [("other", "fix"), ("fix", "other")], ids="-".join)
def test_they_come_once(order, on_other, on_fix):
    table, _ = parted(COMPACTED)
    merged_into_another(table)
    on_other(table)
    table.undo_replace()
    on_fix(table.branch("fix"))
    assert contents(through(table)) == [1, 2, 3]
    through(table).merge_branch(order[0])
    assert conflicts_of(through(table), order[1]) == FOREIGN
    expired(through(table))
    assert conflicts_of(through(table), order[1]) == FOREIGN
    through(table).merge_branch(order[1], resolve={"dt=c": "ours"})
    assert contents(through(table)) == [1, 2, 3, 10, 11, 12]
    assert through(table).verify(deep=True).ok


@pytest.mark.parametrize(
    "order", first_short(map("-".join, itertools.permutations(["third", "fix", "other"])), 2)
)
def test_they_come_once_by_way_of_two(order):
    table, _ = parted(COMPACTED)
    branched(table, "third")
    merged_into_another(table)
    compacted(table)
    table.undo_replace()
    through(table).replace_main_branch("third", force=True)
    through(table).merge_branch("other")
    compacted(through(table))
    through(table).undo_replace()
    first, *rest = order.split("-")
    through(table).merge_branch(first)
    for name in rest:
        assert conflicts_of(through(table), name) == FOREIGN
    assert contents(through(table)) == [1, 2, 3, 10, 11, 12]


def test_what_came_later_or_lies_elsewhere_is_merged():
    table, fix = parted(COMPACTED)
    merged_into_another(table)
    compacted(table)
    table.undo_replace()
    fix.append(rows([20], "d"))
    through(table).merge_branch("other")
    assert conflicts_of(through(table)) == FOREIGN
    through(table).merge_branch("fix", resolve={"dt=c": "ours"})
    fix.append(rows([21], "c"))
    through(table).merge_branch("fix")
    assert contents(through(table)) == [1, 2, 3, 10, 11, 12, 20, 21]


def test_what_the_other_branch_rolled_back_counts_for_nothing():
    table, _ = parted(COMPACTED)
    merged_into_another(table)
    table.rollback("for-other")
    table.append(rows([30], "c"))
    table.undo_replace()
    through(table).merge_branch("other")
    through(table).merge_branch("fix")
    assert contents(through(table)) == [1, 2, 3, 10, 11, 12, 30]


def test_what_main_rolled_back_counts_for_nothing():
    table, _ = parted(COMPACTED)
    merged_into_another(table)
    compacted(table)
    table.undo_replace()
    through(table).merge_branch("other")
    through(table).rollback("for-fix")
    through(table).merge_branch("fix")
    assert contents(through(table)) == [1, 2, 3, 10, 11, 12]
    assert conflicts_of(through(table), "other") == FOREIGN
