"""How many requests wait for each other on a store that is far away, where few are made side by side too."""

import re
from collections import Counter

import pyarrow as pa
import pytest

from anabranch.kernel.log.cache import DEFAULT_CAPACITY, SHARED
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.depth import Timing
from tests.support.faults import FaultyStorage
from tests.support.tables import ids_of

ROW = pa.table({"id": [1], "p": ["a"]})
SECONDS = 0.03


class FarAway:
    """A table of seven manifests in a store in which each request takes its time."""

    def __init__(self, *, is_far=True, seconds=SECONDS):
        inner = MemoryStorage()
        table = Lake(inner).create_table("db.t", "id BIGINT, p STRING", partition_by="p")
        for _ in range(7):
            table.append(ROW)
        self.near = table
        self.timing = Timing(seconds)
        self.storage = FaultyStorage(inner, self.timing.faults, is_far=is_far)
        self.lake = Lake(self.storage)

    def with_a_branch(self, before, after):
        """The table with as many commits before and after a branch of it was made, which has one of its own."""
        for number in range(before + after):
            self.near.append(ROW)
            if number + 1 == before:
                self.near.create_tag("base")
                self.near.create_branch("fix", tag="base")
                self.near.branch("fix").append(ROW)
        return self.lake.table("db.t")

    def reads(self, work):
        """How often each file was read, and what the work has made."""
        SHARED.limit_to(0)
        SHARED.limit_to(DEFAULT_CAPACITY)
        self.timing.cost()
        self.storage.forget_calls()
        made = work()
        return Counter(call.path for call in self.storage.calls if call.name == "get"), made

    def rounds(self, work):
        """Rounds of some work, without what a machine that is busy adds now and then."""
        return min(self._depth(work) for _ in range(3))

    def _depth(self, work):
        self.timing.cost()
        work()
        return self.timing.cost().depth


@pytest.fixture
def far():
    return FarAway()


def cold_plan(far):
    SHARED.limit_to(0)
    SHARED.limit_to(DEFAULT_CAPACITY)
    return far.lake.table("db.t").scan().plan()


def test_a_table_is_opened_in_one_round_and_planned_in_four(far):
    assert far.rounds(lambda: far.lake.table("db.t")) == 1
    assert far.rounds(lambda: cold_plan(far)) <= 5 + 1
    assert len(cold_plan(far).files) == 7


def test_a_plan_of_an_open_table_takes_two_rounds(far):
    table = far.lake.table("db.t")
    table.scan().plan()
    assert far.rounds(lambda: table.scan().plan()) <= 2


def test_an_append_to_an_open_table_takes_five_rounds(far):
    table = far.lake.table("db.t")
    table.append(ROW)
    assert far.rounds(lambda: table.append(ROW)) <= 5


@pytest.mark.long
def test_a_history_is_read_side_by_side_the_further_it_is_read(far):
    for _ in range(80):
        far.near.append(ROW)
    table = far.lake.table("db.t")
    assert far.rounds(lambda: [snapshot.id for snapshot in table.snapshots()]) <= 14
    assert [snapshot.id for snapshot in table.snapshots()] == [*range(87, 0, -1)]
    far.timing.cost()
    snapshots = table.snapshots()
    assert [next(snapshots).id, next(snapshots).id] == [87, 86]
    assert far.timing.cost().calls <= 7


@pytest.mark.long
def test_the_first_rows_of_a_backlog_come_after_few_rounds(far):
    for _ in range(80):
        far.near.append(ROW)
    table = far.lake.table("db.t")
    table.scan().plan()
    assert far.rounds(lambda: next(iter(table.tail(start="snapshot.1", idle=0)))) <= 30


def test_an_expiry_reads_history_and_lists_once(far):
    table, reads, done = expired(far)
    assert len(done.snapshots) == 87 - 5
    lists = {path: times for path, times in reads.items() if "/manifest-list-" in path}
    assert len(lists) > 2 * 80
    assert set(lists.values()) == {1}, (
        "of snapshots that go, of those that stay, and for what the branch must know"
    )
    going = [times for path, times in reads.items() if re.search(r"/t/snapshot/snapshot-[1-7]\d$", path)]
    assert going == [1] * 70
    depth = far.timing.cost().depth
    assert ids_of(table) == [1] * 87
    assert ids_of(table.branch("fix")) == [1] * 48
    for seconds in (
        0.1,
        0.3,
    ):  # a machine that is slow begins requests late: the longer each takes, the less that adds
        if depth > 36:
            again = FarAway(seconds=seconds)
            expired(again)
            depth = again.timing.cost().depth
    assert depth <= 36


def expired(far):
    """A table with a branch whose main has expired, how often each file was read for that, and what went."""
    table = far.with_a_branch(40, 40)
    reads, done = far.reads(lambda: table.expire_snapshots(retain_max=5, retain_min=1, older_than=0))
    return table, reads, done


@pytest.mark.long
def test_a_replacement_reads_mains_history_once(far):
    table = far.with_a_branch(40, 40)
    reads, _ = far.reads(lambda: table.replace_main_branch("fix", force=True))
    since = [times for path, times in reads.items() if re.search(r"/t/snapshot/snapshot-[5-7]\d$", path)]
    assert since == [1] * 30
    assert not [path for path in reads if re.search(r"/t/snapshot/snapshot-[1-3]\d$", path)]
    assert far.timing.cost().depth <= 66
    assert ids_of(table) == [1] * 48
    assert len([*table.branch("main@1").snapshots()]) == 88
    assert [snapshot.id for snapshot in table.snapshots()] == [*range(48, 0, -1)]


@pytest.mark.long
def test_a_merge_reads_each_change_once_beside_the_others(far):
    table = far.with_a_branch(40, 40)
    reads, done = far.reads(lambda: table.merge_branch("fix"))
    assert done.snapshot.id == 88
    history = [times for path, times in reads.items() if re.search(r"/t/snapshot/snapshot-([5-7])\d$", path)]
    assert history == [1] * 30
    changes = {path: times for path, times in reads.items() if "/manifest/manifest-" in path}
    assert len(changes) > 2 * 40
    assert set(changes.values()) == {1}, "lists and manifests, for the plan and for the notes"
    assert far.timing.cost().depth <= 48
    assert ids_of(table) == [1] * 88


@pytest.mark.long
def test_an_undo_of_a_replacement_waits_for_few_rounds(far):
    table = far.with_a_branch(40, 40)
    table.replace_main_branch("fix", force=True)
    _, done = far.reads(table.undo_replace)
    assert done.number == 2
    assert far.timing.cost().depth <= 38
    assert ids_of(table) == [1] * 87


def test_what_was_appended_just_now_is_found_in_one_round(far):
    table = far.lake.table("db.t")
    table.append(ROW)
    far.timing.cost()
    assert table.snapshot.id == 8
    assert far.timing.cost().depth <= 3, (
        "what is main, the newest and its neighbours, and maybe the hint of before"
    )


def test_a_near_store_is_asked_one_after_the_other():
    near = FarAway(is_far=False)
    table = near.lake.table("db.t")
    table.scan().plan()
    assert near.rounds(lambda: table.scan().plan()) == 6


@pytest.mark.long
def test_what_comes_between_is_seen_as_on_a_near_store(far):
    """Whatever is asked side by side: rows, columns, another main."""
    table = far.lake.table("db.t")
    table.scan().plan()
    far.near.append(ROW)
    assert table.scan().to_arrow().num_rows == 8
    far.near.alter().add_column("more", "STRING").apply()
    assert table.scan().to_arrow().column_names == ["id", "p", "more"]
    far.near.create_tag("base")
    far.near.create_branch("fix", tag="base")
    far.near.branch("fix").overwrite(pa.table({"id": [77], "p": ["a"]}))
    far.near.replace_main_branch("fix")
    assert ids_of(table) == [77]
    assert ids_of(table.branch("main")) == [77]
    table.append(ROW)
    assert ids_of(far.near.branch("main")) == [1, 77]
    far.near.branch("main").rollback(8, force=True, destructive=True)
    assert ids_of(table) == [1] * 8
    far.near.branch("main").append(ROW)
    table.append(ROW)
    assert ids_of(table) == [1] * 10
