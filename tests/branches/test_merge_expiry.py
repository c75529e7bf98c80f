"""Merging where snapshots of main or of the branch have expired, by us or by another engine."""

import pytest

from tests.branches.merging import MODES, conflicts_of, contents, parted, rows
from tests.support.foreign_expiry import expire_as_others


@pytest.mark.parametrize("options", MODES, ids=["scalable", "queue"])
@pytest.mark.parametrize("expire", ["ours", "theirs"])
def test_neither_side_loses_files_of_the_other(options, expire):
    table, fix = parted(options)

    def age(one):
        for i in range(3):
            one.append(rows([900 + i], "z"))
        if expire == "ours":
            one.expire_snapshots(retain_max=2, retain_min=2)
        else:
            expire_as_others(one, 2)

    for i in range(3 if expire == "ours" else 1):  # what others expire cannot be merged again
        fix.append(rows([10 + 2 * i], "a"))
        fix.append(rows([11 + 2 * i], "a"))
        table.merge_branch("fix")
        for one in (table, fix):
            one.compact(full=True)
            age(one)
        assert contents(table, "a") == [1, 2, *range(10, 12 + 2 * i)]
        assert contents(fix, "a") == [1, 2, *range(10, 12 + 2 * i)]


def test_what_another_engine_expired_before_a_merge_need_not_be_known():
    table, fix = parted()
    for i in range(3):
        fix.append(rows([10 + i], "a"))
    table.merge_branch("fix")
    expire_as_others(fix, 1)
    for i in range(3):
        fix.append(rows([20 + i], "c"))
    fix.expire_snapshots(retain_max=2, retain_min=2)
    table.merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 20, 21, 22]


def test_a_merge_that_was_rolled_back_is_known_to_be_undone_whoever_expired_it():
    table, fix = parted()
    before = table.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    table.rollback(before)
    table.append(rows([30], "b"))
    expire_as_others(table, 2)
    table.merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 30]


def test_what_the_branch_took_back_may_still_be_in_main():
    """Where nobody knows if main contains a merge, its partitions count as changed by what undid it on the branch."""
    table, fix = parted()
    before = fix.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    fix.rollback(before)
    fix.append(rows([20], "b"))
    table.compact(full=True)  # no file is left that came with the merge
    for i in range(3):
        table.append(rows([900 + i], "z"))
    expire_as_others(table, 2)
    assert conflicts_of(table) == [("HISTORY_GAP", "dt=a"), ("HISTORY_GAP", "dt=b")]
    table.merge_branch("fix", resolve={"dt=a": "theirs", "dt=b": "theirs"})
    assert contents(table) == [1, 2, 3, 20, 900, 901, 902]


def test_what_expired_is_not_forgotten():
    table, fix = parted()
    fix.append(rows([10], "a"))
    fix.append(rows([20], "b"))
    table.overwrite(rows([60], "a"))
    table.append(rows([52], "b"))
    for one in (table, fix):
        for i in range(3):
            one.append(rows([900 + i], f"z{one.name}"))
        one.expire_snapshots(retain_max=2, retain_min=2)
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=a")]
    table.merge_branch("fix", resolve={"dt=a": "theirs"})
    assert contents(table, "a") == [1, 2, 10]
    assert contents(table, "b") == [3, 52, 20]


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (lambda table: None, []),
        (lambda table: table.append(rows([50], "a")), []),
        (lambda table: table.overwrite(rows([60], "a")), [("HISTORY_GAP", "dt=a")]),
        (lambda table: table.overwrite(rows([], "a"), {"dt": "a"}), [("HISTORY_GAP", "dt=a")]),
    ],
    ids=["nothing", "append", "overwrite", "drop"],
)
def test_what_another_engine_expired_is_told_by_the_files_if_at_all(main, expected):
    table, fix = parted()
    fix.append(rows([10], "a"))
    main(table)
    for i in range(3):
        table.append(rows([900 + i], "z"))
    expire_as_others(table, 2)
    assert conflicts_of(table) == expected
