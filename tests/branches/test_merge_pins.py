"""What is pinned by merges, for how long, and that nothing is lost or kept for ever."""

from dataclasses import replace

import pytest

from anabranch.kernel.log.merge_pins import tend_merge_pins
from tests.branches.merging import branched, contents, parted, rows
from tests.support.dying import deaths
from tests.support.faults import FaultyStorage, run
from tests.support.foreign_expiry import expire_as_others


def pins(table):
    return sorted(name for name in table.tags(include_internal=True) if name.startswith("anabranch-merge-"))


def merged(times):
    table, fix = parted()
    for i in range(times):
        fix.append(rows([10 + i], "a"))
        table.merge_branch("fix")
    return table, fix


def test_each_merge_is_pinned_on_both_sides():
    table, fix = merged(2)
    assert pins(fix) == ["anabranch-merge-1", "anabranch-merge-2"]
    assert pins(table) == [f"anabranch-merge-{fix.branch_uuid}-{i}" for i in (1, 2)]


def test_pins_go_when_no_history_reaches_back_to_them():
    table, fix = merged(4)
    assert table.maintain().branches.merge_pins.released == 0
    for one in (table, fix):
        one.create_tag("kept", 4)
        one.expire_snapshots(retain_max=2, retain_min=2)
    table.maintain()
    numbers = [[pin.rpartition("-")[2] for pin in pins(one)] for one in (table, fix)]
    assert numbers == [["1", "3", "4"], ["1", "4"]], "a tag lies between the first and the second"
    table.delete_tag("kept")
    fix.delete_tag("kept")
    released = table.maintain().branches.merge_pins.released
    assert (released, len(pins(table)), len(pins(fix))) == (2, 2, 1)
    fix.append(rows([20], "a"))
    table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 10, 11, 12, 13, 20]


def test_pins_that_somebody_removed_are_put_back():
    table, fix = merged(2)
    for one in (table, fix):
        for pin in pins(one):
            one.context.storage.delete(one.context.layout.tag_path(pin))
    assert table.maintain(dry_run=True).branches.merge_pins.restored == ("fix",)
    assert pins(table) == []
    assert "restored the pins of merges of branches fix" in str(table.maintain())
    assert len(pins(table)) == len(pins(fix)) == 2
    assert table.maintain().branches.merge_pins.restored == ()


def test_a_deleted_branch_leaves_none():
    table, fix = merged(2)
    other = branched(table, "other")
    other.append(rows([30], "b"))
    table.merge_branch("other")
    table.delete_branch("fix")
    assert [p for p in pins(table) if fix.branch_uuid in p] == []
    assert len(pins(table)) == 1
    assert contents(table) == [1, 2, 3, 10, 11, 30]


def test_what_main_took_outlives_the_branchs_expiry_by_others_and_the_other_way_round():
    table, fix = merged(2)
    for one, z in ((table, "y"), (fix, "z")):
        one.overwrite(rows([], "a"), {"dt": "a"})
        for i in range(3):
            one.append(rows([90 + i], z))
    for one in (table, fix):
        expire_as_others(one, 2)
        assert contents(one.tag(pins(one)[-1]), "a") == [1, 2, 10, 11]


def test_care_that_dies_is_repeated():
    table, fix = merged(4)
    for one in (table, fix):
        one.expire_snapshots(retain_max=2, retain_min=2)
        one.context.storage.delete(one.context.layout.tag_path(pins(one)[-1]))
    wanted = None
    for left in reversed([*deaths(table, lambda found: tend_merge_pins(found.context))]):
        branch = left.branch("fix")
        care = tend_merge_pins(left.context)
        found = pins(left), pins(branch)
        assert found == (wanted or found), "the last, who lived, says what is right"
        assert wanted or (care.restored, care.released) == ((), 0)
        wanted = found
        branch.append(rows([20], "a"))
        left.merge_branch("fix")
        assert contents(left, "a") == [1, 2, 10, 11, 12, 13, 20]
    assert [len(names) for names in wanted] == [2, 1]


@pytest.mark.parametrize("call", ["list", "get"])
def test_a_merge_that_comes_while_pins_are_tended_keeps_its_own(call):
    for nth in range(1, 60):
        table, fix = merged(1)
        fix.append(rows([20], "a"))
        came = []

        def merge(path, table=table, came=came):
            if not came:
                came.append(path)
                table.merge_branch("fix")

        storage = FaultyStorage(table.context.storage, [run("after", call, merge, nth=nth)])
        tend_merge_pins(replace(table.context, storage=storage))
        if not came:
            break
        assert pins(fix) == ["anabranch-merge-1", "anabranch-merge-2"], f"at {call} {nth} of {came[0]}"
        assert len(pins(table)) == 2, f"at {call} {nth} of {came[0]}"
    assert nth > 1
