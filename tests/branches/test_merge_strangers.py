"""Records that a merge leaves late: its branch was deleted and made again under its name while it stood still."""

import pytest

from anabranch.kernel.log.merge_log import merge_log, missing
from anabranch.kernel.log.merge_record import MergeFile, put_end
from tests.branches.merging import contents, parted, rows
from tests.branches.test_merge_killed import killed_merge
from tests.support.deaths import through
from tests.support.faults import run

FOLDER = "branch/branch-fix"


def made_again(table):
    """The branch, deleted and made of main as it is now."""
    table.delete_branch("fix")
    table.create_branch("fix", "again", snapshot=table.snapshot.id)
    return table.branch("fix")


def leftovers(count):
    """A table whose branch was merged so often and then made again, and the records of the last of these merges."""
    table, old = parted()
    for number in range(count):
        old.append(rows([10 + number], "a"))
        table.merge_branch("fix")
    paths = {kind: f"{FOLDER}/MERGE-{count}{kind}" for kind in ("", ".done")}
    left = {kind: (path, table.context.storage.get(path)) for kind, path in paths.items()}
    made_again(table)
    return table, left


def check_goes_on(table, before):
    """Everything works on the branch as if they were not there, and each of its rows comes to main once."""
    main = through(table)
    fix = main.branch("fix")
    assert "record" not in {problem.kind for problem in main.verify().problems}
    fix.append(rows([100], "a"))
    fix.compact(full=True)
    main.merge_branch("fix")
    main.maintain()
    through(table).branch("fix").append(rows([101], "b"))
    through(table).merge_branch("fix")
    through(table).merge_branch("fix")
    assert contents(through(table)) == sorted([*before, 100, 101])
    assert not merge_log(through(table).branch("fix").context).under_way
    assert through(table).verify(deep=True).ok


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kinds", [["", ".done"], [""], [".done"]], ids=["both", "record", "end"])
@pytest.mark.parametrize("merged", [0, 1])
def test_they_are_nothing_to_the_branch_that_is_there(count, kinds, merged):
    table, left = leftovers(count)
    before = contents(table)
    for number in range(merged):
        table.branch("fix").append(rows([90 + number], "a"))
        table.merge_branch("fix")
        before.append(90 + number)
    for kind in kinds:
        table.context.storage.put_if_absent(*left[kind])
    check_goes_on(table, before)


def test_where_one_of_many_records_is_gone_few_of_them_are_read_to_find_out():
    table, fix = parted()
    for number in range(12):
        fix.append(rows([10 + number], "a"))
        table.merge_branch("fix")
    table.context.storage.delete(f"{FOLDER}/MERGE-5.done")
    read = []
    far = through(table, run("before", "get", read.append, where=f"{FOLDER}/MERGE-*", times=100)).branch(
        "fix"
    )
    there = {MergeFile(n, is_end) for n in range(1, 13) for is_end in (False, True)} - {MergeFile(5, True)}
    assert [*missing(far.context, there)] == [MergeFile(5, True)]
    assert read == []
    assert [*missing(far.context, there - {MergeFile(5, False)})] == [MergeFile(5, False), MergeFile(5, True)]
    assert len(read) == 1


def test_the_end_of_another_merge_does_not_end_one_that_died():
    _, left = leftovers(1)
    table, fix = killed_merge("after")
    path, content = left[".done"]
    assert table.context.storage.put_if_absent(path, content)
    assert merge_log(fix.context).under_way
    check_goes_on(table, contents(table))


def test_a_merge_that_stood_still_leaves_the_records_of_the_new_branch_as_they_are():
    table, fix = parted()
    fix.append(rows([10], "a"))

    def stand_still(path):
        new = made_again(table)
        new.append(rows([20], "b"))
        table.merge_branch("fix")

    late = through(table, run("before", "put_if_absent", stand_still, where="*/MERGE-1.done"))
    late.merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 20]
    (end,) = merge_log(table.branch("fix").context).ends.values()
    assert end.snapshot.id == table.snapshot.id
    check_goes_on(table, [1, 2, 3, 10, 20])


def test_who_still_has_the_branch_that_is_gone_ends_no_merge_of_the_new_one():
    table, old = parted()
    old.append(rows([10], "a"))
    table.merge_branch("fix")
    (end,) = merge_log(old.context).ends.values()
    new = made_again(table)
    new.append(rows([20], "b"))
    table.merge_branch("fix")
    mine = merge_log(new.context).ends
    put_end(old.context, end)
    assert merge_log(through(table).branch("fix").context).ends == mine
