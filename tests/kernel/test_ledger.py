"""Exactly-once after snapshots have expired: the snapshots, then the ledger, never a guess."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.ledger import hand_over, recorded_after, tidy
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.moments import forget
from tests.support.tables import ids_of, make_table, rows, written


def _commit(table, user, batch, start, floor=None):
    messages = written(table, start, 1)
    return table.commit(Append(messages), identity=CommitIdentity(user, batch), floor=floor)


def _expire(table, up_to, *, ledger):
    """Remove snapshots 1 to `up_to` as an expiry does: the ledger first, then the snapshot files."""
    gone = [s for s in table.snapshots() if s.id <= up_to]
    if ledger:
        hand_over(table.context, gone)
    for snapshot in gone:
        table.context.storage.delete(table.context.layout.snapshot_path(snapshot.id))


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def _floor(table):
    head = table.snapshot
    return SnapshotRef(table.branch_uuid, head.id if head else 0, head.stamp if head else "")


def test_the_query_snapshot_alone_is_enough(table):
    floor = _floor(table)
    _commit(table, "job", 0, 0, floor)
    _commit(table, "job", 1, 1, floor)
    _expire(table, 1, ledger=True)
    assert _commit(table, "job", 1, 1, floor).repeated
    assert not _commit(table, "job", 2, 2, floor).repeated
    assert ids_of(table) == [0, 1, 2]


def test_the_ledger_remembers_what_has_expired(table):
    floor = _floor(table)
    _commit(table, "job", 0, 0, floor)
    _commit(table, "job", 1, 1, floor)
    for i in range(3):
        table.append(rows(10 + i, 1))
    _expire(table, 4, ledger=True)
    found = _commit(table, "job", 1, 1, floor)
    assert found.repeated
    assert found.snapshot is None
    assert not _commit(table, "job", 2, 2, floor).repeated
    assert ids_of(table) == [0, 1, 2, 10, 11, 12]


def test_a_ledger_in_several_pages_is_read_as_one(table):
    floor = _floor(table)
    for batch in range(4):
        _commit(table, "job", batch, batch, floor)
    table.append(rows(10, 1))
    _expire(table, 2, ledger=True)
    _expire(table, 4, ledger=True)
    assert _commit(table, "job", 3, 3, floor).repeated
    assert not _commit(table, "job", 4, 4, floor).repeated


def test_a_user_that_never_committed_is_new_when_the_ledger_covers_the_gap(table):
    floor = _floor(table)
    for i in range(3):
        table.append(rows(i, 1))
    _expire(table, 2, ledger=True)
    assert not _commit(table, "job", 0, 7, floor).repeated


def test_where_nobody_can_answer_the_commit_is_refused(table):
    floor = _floor(table)
    _commit(table, "job", 0, 0, floor)
    for i in range(3):
        table.append(rows(10 + i, 1))
    _expire(table, 3, ledger=False)
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="snapshots 1 to 3 have expired"):
        _commit(table, "job", 0, 0, floor)
    with pytest.raises(anabranch.CommitOutcomeUnknownError):
        _commit(table, "job", 1, 1, floor)
    assert ids_of(table) == [0, 10, 11, 12]


def test_a_half_covered_gap_is_not_covered(table):
    floor = _floor(table)
    for i in range(5):
        table.append(rows(i, 1))
    _expire(table, 2, ledger=True)
    _expire(table, 4, ledger=False)
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="snapshots 3 to 4"):
        _commit(table, "job", 0, 9, floor)


def test_a_rewritten_history_is_noticed(table):
    table.append(rows(0, 1))
    floor = SnapshotRef(table.branch_uuid, 1, "0" * 32)
    table.append(rows(1, 1))
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="HISTORY_REWRITTEN"):
        _commit(table, "job", 0, 9, floor)


def test_a_history_that_ends_below_the_floor_was_rewritten(table):
    for i in range(3):
        table.append(rows(i, 1))
    floor = _floor(table)
    forget(table, 3, 2)
    with pytest.raises(
        anabranch.CommitOutcomeUnknownError, match="HISTORY_REWRITTEN.*knows snapshot 3.*is 1"
    ):
        _commit(table, "job", 0, 9, floor)
    forget(table, 1)
    table.context.storage.delete(table.context.layout.latest_hint_path)
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="HISTORY_REWRITTEN.*the newest is 0"):
        _commit(table, "job", 0, 9, floor)


def test_a_floor_of_another_table_is_not_this_ones(table):
    table.append(rows(0, 1))
    floor = SnapshotRef("another", 1, table.snapshot.stamp)
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="HISTORY_REWRITTEN.*another table"):
        _commit(table, "job", 0, 9, floor)


@pytest.mark.parametrize("engine", ["ours", "another"])
def test_what_a_killed_writer_left_below_history_is_no_commit(table, engine):
    """It came too late, put its snapshot where history had been, and died before it could take it back."""
    floor = _floor(table)
    for i in range(5):
        table.append(rows(i, 1))
    if engine == "another":
        above = replace(table.context.snapshots.get(4), properties={})
        table.context.storage.put(table.context.layout.snapshot_path(4), above.to_json())
    lists = {
        "delta_manifest_list": table.snapshot.delta_manifest_list
    }  # of rows that snapshot 4 does not have
    left = replace(table.context.snapshots.get(3), commit_user="job", commit_identifier=0, **lists)
    _expire(table, 3, ledger=True)
    table.context.storage.put(table.context.layout.snapshot_path(3), left.to_json())
    assert not _commit(table, "job", 0, 9, floor).repeated
    assert ids_of(table) == [0, 1, 2, 3, 4, 9]
    # That nothing was built on it another engine's snapshot does not say.
    assert [s.id for s in table.snapshots()] == ([6, 5, 4] if engine == "ours" else [6, 5, 4, 3])


def test_a_damaged_ledger_page_is_named(table):
    floor = _floor(table)
    for i in range(3):
        table.append(rows(i, 1))
    _expire(table, 2, ledger=True)
    table.context.storage.put("ledger/expired-1-2", b"{")
    with pytest.raises(anabranch.CorruptTableError, match="ledger/expired-1-2"):
        _commit(table, "job", 0, 9, floor)


def _pages(table):
    return sorted(info.path.removeprefix("ledger/expired-") for info in table.context.storage.list("ledger"))


def _many_pages(table, count=20):
    """A page a snapshot; two jobs commit by turns."""
    for number in range(count + 1):
        _commit(table, f"job-{number % 2}", number // 2, number)
    for number in range(1, count + 1):
        _expire(table, number, ledger=True)
    assert len(_pages(table)) == count


def test_many_pages_become_one_that_says_the_same(table):
    floor = _floor(table)
    _many_pages(table)
    tidy(table.context, 0)
    assert _pages(table) == ["1-20"]
    assert _commit(table, "job-1", 9, 99, floor).repeated
    assert not _commit(table, "job-1", 10, 99, floor).repeated
    assert not _commit(table, "job-2", 0, 98, floor).repeated
    tidy(table.context, 0)
    assert _pages(table) == ["1-20"]


def test_what_is_forgotten_is_not_covered_any_more(table):
    floor = _floor(table)
    _many_pages(table)
    times = {user: entry.time_millis for user, entry in recorded_after(table.context, 0).items()}
    later = table.context.snapshots.get(21)
    assert times["job-0"] <= times["job-1"] <= later.time_millis
    tidy(table.context, later.time_millis + 1)
    assert _pages(table) == []
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="snapshots 1 to 20"):
        _commit(table, "job-1", 9, 99, floor)
    with pytest.raises(anabranch.CommitOutcomeUnknownError):
        _commit(table, "job-3", 0, 99, floor)


def test_pages_that_do_not_follow_each_other_stay_apart(table):
    _many_pages(table)
    table.context.storage.delete("ledger/expired-9-9")
    tidy(table.context, 0)
    assert _pages(table) == ["1-8", "10-20"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_tidying_that_is_killed_loses_nothing(when):
    class Died(BaseException):
        pass

    def die(_):
        raise Died

    table = make_table("memory://ledger-killed-" + when)
    floor = _floor(table)
    _many_pages(table)
    pages = {path: table.context.storage.get(path) for path in map("ledger/expired-{}".format, _pages(table))}
    calls = [("list", 1), *(("get", i) for i in range(1, 21)), ("put", 1), ("delete_many", 1)]
    for name, nth in calls:
        table.context.storage.delete_folder("ledger")
        table.context.storage.put_many(pages)
        storage = FaultyStorage(table.context.storage, [run(when, name, die, nth=nth)])
        with pytest.raises(Died):
            tidy(replace(table.context, storage=storage), 0)
        assert _commit(table, "job-1", 9, 99, floor).repeated
        tidy(table.context, 0)
        assert _commit(table, "job-1", 9, 99, floor).repeated
        assert "1-20" in _pages(table)


def test_a_query_that_looks_while_pages_are_joined_gets_its_answer(table):
    floor = _floor(table)
    _many_pages(table)
    join = run("before", "get", lambda _: tidy(table.context, 0), where="ledger/*", nth=5)
    slow = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [join])))
    assert _commit(slow, "job-1", 9, 99, floor).repeated


class TornListing(FaultyStorage):
    """Listings that begin before pages are joined and end after, as those of a file system may: what has gone and what
    has come meanwhile is not in them."""

    join = None

    def list(self, path, **how):
        before = list(super().list(path, **how))
        if self.join is None or path != "ledger":
            return before
        self.join()
        self.join = None
        return [info for info in before if self.inner.exists(info.path)]


@pytest.mark.parametrize("repeated", first_short([True, False]))
def test_a_listing_that_is_torn_by_the_joining_of_pages_refuses_nobody(table, repeated):
    floor = _floor(table)
    _many_pages(table)
    storage = TornListing(table.context.storage)
    storage.join = lambda: tidy(table.context, 0)
    slow = anabranch.Table(replace(table.context, storage=storage))
    made = _commit(slow, "job-1", 9 if repeated else 10, 99, floor)
    assert _pages(table) == ["1-20"]
    assert made.repeated is repeated


def test_what_the_ledger_does_not_cover_is_still_refused_after_a_second_look(table):
    floor = _floor(table)
    _many_pages(table)
    table.context.storage.delete("ledger/expired-9-9")
    storage = FaultyStorage(table.context.storage)
    slow = anabranch.Table(replace(table.context, storage=storage))
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="snapshots 9 to 20"):
        _commit(slow, "job-1", 10, 99, floor)
    assert [call.path for call in storage.calls if call.name == "list"].count("ledger") == 2
