"""A replacement, an undo and a drop that die at any storage call: done again they end in the same place."""

import itertools
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import AnabranchError
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.replacement.take_past import copy_past
from tests.branches.replacing import BEFORE, Time, again, files, parted, timed
from tests.support.dying import deaths
from tests.support.faults import Fault, FaultyStorage
from tests.support.tables import ids_of, rows

SOME = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
"""Of the deaths, every so many are tried."""


def some(left, every):
    return itertools.islice(left, every // 2, None, every)


def living(table):
    """A process that comes a while after the dead one: time passes for it as it waits."""
    time = Time()
    time.sleep(10)
    return timed(table, time)


def replaced(table):
    table.replace_main_branch("fix", by="a")


@SOME
def test_a_replacement(every):
    for left in some(deaths(parted(), replaced), every):
        table = living(left)
        table.append(rows(500, 1))  # nobody is held up for ever
        is_made = bool(replacements(table.context))
        table.replace_main_branch("fix", by="b")
        assert ids_of(table) == [*BEFORE, 100, *([500] if is_made else [])]
        assert ids_of(table.branch("main@1") if is_made else former(table)) == [
            *BEFORE,
            *([] if is_made else [500]),
            1000,
        ]
        assert [s.id for s in table.snapshots()][-3:] == [3, 2, 1]
        assert (table.tags(), [s.id for s in table.savepoints()]) == (["good", "old"], [1])
        assert len(replacements(table.context)) == 1


def former(table):
    return table.branch(f"main@{replacements(table.context)[-1].generation}")


@SOME
def test_an_undo(every):
    def undone(table):
        table.undo_replace(by="a")

    begun = parted()
    begun.replace_main_branch("fix")
    for left in some(deaths(begun, undone), every):
        table = living(left)
        table.append(rows(500, 1))
        is_made = table.context.branch is None
        table.undo_replace()
        assert ids_of(table) == [*BEFORE, *([500] if is_made else []), 1000]
        assert ids_of(table.branch("fix")) == [*BEFORE, 100, *([] if is_made else [500])]
        table.append(rows(501, 1))
        assert [p.replaced.undoes for p in replacements(table.context)] == [None, 1]


@SOME
def test_a_replacement_as_a_commit(every):
    def committed(table):
        table.replace_main_branch("fix", mode="commit")

    begun = parted()
    begun.branch("fix").alter().add_column("w", "INT").apply()
    for left in some(deaths(begun, committed), every):
        table = living(left)
        assert ids_of(table) in ([*BEFORE, 1000], [*BEFORE, 100])
        table.replace_main_branch("fix", mode="commit")
        assert ids_of(table) == [*BEFORE, 100]
        assert [f.name for f in table.schema.fields] == ["id", "v", "w"]
        table.replace_main_branch("fix", mode="commit")
        assert table.snapshot.id == 4


@pytest.mark.long
@SOME
def test_a_drop(every):
    def dropped(table):
        table.maintain()

    begun = parted(options={"branch.replaced-main.time-retained": "1 ms"})
    begun.replace_main_branch("fix")
    for left in some(deaths(begun, dropped, limit=2_000), every):
        table = living(left)
        table.maintain()
        with pytest.raises(AnabranchError, match="was dropped"):
            table.branch("main@1")
        assert files(table, "snapshot") == ["snapshot/snapshot-1", "snapshot/snapshot-4"]
        assert not files(table, "tag")
        assert ids_of(table) == [*BEFORE, 100]
        assert ids_of(table.at("old")) == [0, 1, 2]
        assert ids_of(table.at("savepoint.1")) == BEFORE
        again(table).append(rows(7, 1))


class Killed(BaseException):
    pass


def kill(path):
    raise Killed


def through(table, *faults):
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, faults)))


def copies(table, name):
    """Copy main's past to a branch, as a cascade does before it replays what comes after."""
    branch = open_branch(table.context, name)
    copy_past(main_of(table.context), branch, branch.fork.snapshot)


@pytest.mark.parametrize("then", ["maintain", "repeat"])
def test_a_copy_of_a_snapshot_that_expired_meanwhile(then):
    """Its files are gone, and the replacement dies before it sees that: nobody shall meet the copy later."""
    table = parted(main=2)
    table.delete_tag("old")

    def expires(path):
        again(table).expire_snapshots(retain_max=2, retain_min=1, older_than=10**14)

    at = {"call": "put_if_absent", "where": "branch/branch-fix/snapshot/snapshot-1"}
    dying = through(table, Fault("before", action=expires, **at), Fault("after", action=kill, **at))
    with pytest.raises(Killed):
        copies(dying, "fix")
    assert "branch/branch-fix/snapshot/snapshot-1" in files(table, "branch/branch-fix/snapshot")
    table = living(table)
    if then == "repeat":
        table.replace_main_branch("fix")
    table.maintain()
    fix = again(table).branch("fix")
    assert [ids_of(fix.at(s.id)) for s in fix.snapshots()] == [[*BEFORE, 100], BEFORE]
    table.append(rows(500, 1))
    table.remove_orphan_files()


def test_two_replacements_that_copy_what_expires_leave_no_gap():
    """One has copied all of main's past, which then expires; the other, which was paused, takes its copy back."""
    table = parted(main=0, fix=0)
    table.append(rows(6, 1))
    table.create_tag("later")
    table.create_branch("new", "later")

    def meanwhile(path):
        copies(through(table), "new")
        again(table).append(rows(7, 1))
        again(table).expire_snapshots(retain_max=2, retain_min=1, older_than=10**14)

    at = "branch/branch-new/snapshot/snapshot-2"
    copies(through(table, Fault("before", "put_if_absent", meanwhile, where=at)), "new")
    table.replace_main_branch("new")
    assert sorted(s.id for s in again(table).snapshots()) == [3]
    assert files(table, "branch/branch-new/snapshot") == [
        f"branch/branch-new/snapshot/{name}" for name in ("EARLIEST", "LATEST", "snapshot-3")
    ]
