"""The archive of history: what snapshots said is kept before they go, whoever removes them and wherever that dies."""

import itertools
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CorruptTableError, StorageError
from anabranch.format.records.history_segment import BranchFacts, HistorySegment, PastSnapshot, SegmentName
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.log.archive import (
    Following,
    archive,
    archived,
    archived_branch,
    forget_after,
    is_own,
    segment_names,
    tidy,
)
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.replacement.release import release_due
from tests.support.dying import deaths, through
from tests.support.faults import FaultyStorage, fail, run
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
ALL = 10**15
"""A moment after everything, in epoch milliseconds."""


def table_with(count, **how):
    table = make_table(f"memory://archive{next(_names)}", **how)
    for number in range(count):
        table.append(rows(number * 10, 2))
    return table


def branched():
    """`table_with` 3 snapshots, a tag on the second, and a branch of that with 3 of its own."""
    table = table_with(3)
    table.create_tag("good", 2)
    table.create_branch("fix", "good")
    for number in range(3):
        table.branch("fix").append(rows(100 + number, 1))
    return table


def expire(table, keep=2):
    return table.expire_snapshots(retain_max=keep, retain_min=2, older_than=ALL)


def live(table):
    """By branch, id and stamp, the snapshots that are there."""
    names = [None, *branch_names(table.context)]
    branches = [table.context.on_branch(name) for name in names]
    return {
        (branch.branch_uuid, number, branch.snapshots.get(number).stamp)
        for branch in branches
        for number in branch.snapshots.ids()
        if is_own(branch, number)
    }


def kept(table):
    """The same for the archive."""
    context = table.context
    uuids = {name.branch_uuid for name in segment_names(context)}
    return {(uuid, found.id, found.stamp) for uuid in uuids for found in archived(context, uuid)}


# What is kept


def test_what_expires_is_kept_as_it_was():
    table = table_with(5)
    before = {snapshot.id: PastSnapshot.of(snapshot) for snapshot in table.snapshots()}
    expire(table)
    assert [found.id for found in archived(table.context, table.table_uuid)] == [3, 2, 1]
    assert all(found == before[found.id] for found in archived(table.context, table.table_uuid))
    assert archived_branch(table.context, table.table_uuid) == BranchFacts(table.table_uuid, None, None)


def test_a_branch_is_kept_beside_those_that_are_there():
    table = branched()
    fork = table.branch("fix").context.fork
    before = live(table)
    expire(table.branch("fix"))
    assert live(table) | kept(table) == before
    table.delete_branch("fix")
    assert live(table) | kept(table) == before
    assert archived_branch(table.context, fork.branch_uuid) == BranchFacts(
        fork.branch_uuid, "fix", SnapshotRef(table.table_uuid, 2, fork.snapshot.stamp)
    )
    assert {uuid for uuid, _, _ in kept(table)} == {fork.branch_uuid}, "what it began with is main's"


def test_a_replaced_main_is_kept_when_it_is_dropped():
    table = branched()
    before = live(table)
    table.replace_main_branch("fix", force=True)
    sealed = live(table)
    assert release_due(table.context, 0).dropped == ("main@1",)
    assert live(table) | kept(table) == sealed
    assert before <= sealed
    left = [number for uuid, number, _ in live(table) if uuid == table.table_uuid]
    assert sorted(left) == [1, 4], "main's past and the seal stay"


def test_what_a_branch_took_over_is_not_kept_twice():
    table = branched()
    table.replace_main_branch("fix", force=True)
    expire(table)
    assert {number for uuid, number, _ in kept(table) if uuid != table.table_uuid} <= {3, 4, 5}
    assert [number for uuid, number, _ in kept(table) if uuid == table.table_uuid] == [1], "as what it was"


def test_nothing_is_removed_if_nothing_can_be_kept():
    table = table_with(4)
    storage = FaultyStorage(table.context.storage, [fail("put", where="lineage/*")])
    with pytest.raises(StorageError):
        expire(through(table, storage))
    assert [snapshot.id for snapshot in table.snapshots()] == [4, 3, 2, 1]
    assert len(ids_of(table)) == 8


def test_a_branch_with_a_damaged_snapshot_can_be_deleted(caplog):
    table = branched()
    fix = table.branch("fix").context
    fix.storage.put(fix.layout.snapshot_path(4), b"{")
    table.delete_branch("fix")
    assert table.branches() == []
    assert {number for uuid, number, _ in kept(table) if uuid == fix.branch_uuid} == {3, 5}
    assert "what snapshot 4 of 'db.t$branch_fix' said is lost" in caplog.text


def test_orphan_cleaning_lets_it_be_and_dropping_the_table_does_not(tmp_path):
    table = make_table(tmp_path)
    for number in range(4):
        table.append(rows(number, 1))
    expire(table)
    table.remove_orphan_files(older_than=ALL)
    assert len(kept(table)) == 2
    anabranch.connect(str(tmp_path)).drop_table("db.t")
    assert [path for path in tmp_path.rglob("*") if "history" in path.name] == []


# Dying


@pytest.mark.parametrize(
    ("make", "work"),
    [
        (lambda: table_with(4), expire),
        pytest.param(branched, lambda table: expire(table.branch("fix")), marks=pytest.mark.long),
        (branched, lambda table: table.delete_branch("fix")),
    ],
    ids=["expiry", "expiry of a branch", "deletion"],
)
def test_wherever_it_dies_nothing_is_lost_and_repeating_it_ends_the_same(make, work):
    table = make()
    before = live(table)
    for left in deaths(table, work):
        assert before == live(left) | kept(left)
        if work is expire or left.branches():
            work(left)
        assert before == live(left) | kept(left)


def test_wherever_the_dropping_of_a_main_dies_nothing_is_lost():
    table = branched()
    table.replace_main_branch("fix", force=True)
    before = live(table)
    for left in deaths(table, lambda table: release_due(table.context, 0)):
        assert before == live(left) | kept(left)
        release_due(left.context, 0)
        assert before == live(left) | kept(left)


def test_two_expiries_at_once_keep_everything():
    table = table_with(6)
    before = live(table)
    others = iter([4, 3, 2, 2])

    def other(path):
        expire(table, next(others))

    storage = FaultyStorage(table.context.storage, [run("before", "put", other, where="lineage/*")])
    expire(through(table, storage), 5)
    assert before == live(table) | kept(table)


# Rolling back for good


def test_what_is_rolled_back_for_good_is_forgotten():
    table = table_with(6)
    table.create_tag("good", 2)
    expire(table)
    assert {number for _, number, _ in kept(table)} == {1, 2, 3, 4}
    table.rollback("good", destructive=True)
    assert {number for _, number, _ in kept(table)} == {1, 2}
    table.append(rows(99, 1))
    table.append(rows(100, 1))
    table.append(rows(101, 1))
    before = live(table)
    expire(table)
    assert before <= live(table) | kept(table)
    assert sorted(number for _, number, _ in kept(table)) == [1, 2, 3]


@pytest.mark.long
def test_wherever_it_dies_the_past_below_stays_and_repeating_it_forgets():
    table = table_with(5)
    table.create_tag("good", 2)
    expire(table)
    before = {entry for entry in live(table) | kept(table) if entry[1] <= 2}

    def work(table):
        table.rollback("good", destructive=True, force=True)

    for left in deaths(table, work):
        assert before <= live(left) | kept(left)
        work(left)
        assert before == live(left) | kept(left)


def test_leavings_of_another_history_are_told_by_what_was_built_on():
    table = table_with(2)
    context = table.context
    two, one = (PastSnapshot.of(snapshot) for snapshot in table.snapshots())
    stale = replace(two, stamp="0" * 32, time_millis=two.time_millis + 1)
    facts = BranchFacts(table.table_uuid, None, None)
    for found in ([one, two], [stale]):
        segment = HistorySegment(facts, found)
        context.storage.put(context.layout.history_path(str(segment.name)), segment.to_bytes())
    table.append(rows(50, 1))
    third = Following.of(next(table.snapshots()))
    assert [found.stamp for found in archived(context, table.table_uuid, third)] == [two.stamp, one.stamp]
    assert [found.stamp for found in archived(context, table.table_uuid)] == [stale.stamp, one.stamp]
    other = Following(3, "1" * 32)
    assert [found.id for found in archived(context, table.table_uuid, other)] == [1]


# Many segments


def many_segments(count=20):
    table = table_with(count)
    for snapshot in table.snapshots():
        archive(table.context, [snapshot])
    return table


def test_many_small_segments_become_one():
    table = many_segments()
    before = kept(table)
    assert len(segment_names(table.context)) == 20
    tidy(table.context)
    assert [(name.first, name.last) for name in segment_names(table.context)] == [(1, 20)]
    assert kept(table) == before
    tidy(table.context)
    assert kept(table) == before


def test_wherever_joining_dies_nothing_is_lost():
    table = many_segments(16)
    before = kept(table)
    for left in deaths(table, lambda table: tidy(table.context)):
        assert kept(left) == before
        tidy(left.context)
        assert kept(left) == before


def test_who_reads_while_they_are_joined_reads_all():
    table = many_segments()
    context = table.context
    before = {found.stamp for found in archived(context, table.table_uuid)}
    storage = FaultyStorage(
        context.storage, [run("before", "get", lambda path: tidy(context), nth=3, where="lineage/*")]
    )
    found = [s.stamp for s in archived(through(table, storage).context, table.table_uuid)]
    assert len(found) == len(set(found))
    assert set(found) == before


def test_expiry_joins_what_earlier_expiries_left():
    table = many_segments(18)
    expire(table)
    assert len(segment_names(table.context)) == 1


def test_forgetting_cuts_the_segment_in_which_the_target_is():
    table = many_segments()
    tidy(table.context)
    forget_after(table.context, 7)
    assert [(name.first, name.last) for name in segment_names(table.context)] == [(1, 7)]


def test_a_damaged_segment_is_passed_over_and_left_where_it_is(caplog):
    table = many_segments(18)
    context = table.context
    harmed = segment_names(context)[4]
    path = context.layout.history_path(str(harmed))
    context.storage.put(path, b"harmed")
    others = {1, 2, 3, 4, *range(6, 19)}
    assert {found.id for found in archived(context, table.table_uuid)} == others
    assert f"what snapshots {harmed.first} to {harmed.last} of 'db.t' said is lost" in caplog.text
    tidy(context)
    assert {found.id for found in archived(context, table.table_uuid)} == others
    forget_after(context, 5)
    assert {found.id for found in archived(context, table.table_uuid)} == {1, 2, 3, 4}
    assert context.storage.get(path) == b"harmed"
    assert archived_branch(context, table.table_uuid) == BranchFacts(table.table_uuid, None, None)


# The file


def a_segment():
    table = table_with(1)
    return HistorySegment(
        BranchFacts("b", "fix", SnapshotRef("p", 3, "s")), [PastSnapshot.of(next(table.snapshots()))]
    )


def test_a_segment_says_what_was_put_into_it():
    segment = a_segment()
    assert HistorySegment.from_bytes(segment.to_bytes(), path="p") == segment
    assert segment.to_bytes() == segment.to_bytes(), "to repeat it changes nothing"
    assert SegmentName.parse(f"lineage/{segment.name}") == segment.name


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"history",
        lambda data: data[:20] + b"\0" * 8 + data[28:],
    ],
    ids=["cut off", "empty", "text", "changed"],
)
def test_a_damaged_segment_is_named(damage):
    with pytest.raises(CorruptTableError, match="lineage/history-1"):
        HistorySegment.from_bytes(damage(a_segment().to_bytes()), path="lineage/history-1")


@pytest.mark.parametrize(
    "name",
    ["history-b-0-3-0123456789abcdef", "history-b-1-3", "history-b-1-3-0123456789ABCDEF", "index.db", ""],
)
def test_other_files_are_no_segments(name):
    assert SegmentName.parse(name) is None
