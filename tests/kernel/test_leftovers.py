"""Snapshots above the newest, left by writers that were overtaken by a rollback for good: they are no history."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CorruptTableError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.properties import LEFTOVER_PROPERTY, PARENT_PROPERTY
from anabranch.kernel.repair.repair import sweep
from anabranch.kernel.rollback import history_removal
from tests.kernel.leaving import drop_hints, fresh, leave, roll_back, roll_back_elsewhere, table
from tests.support.dying import through
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

__all__ = ["table"]


@pytest.mark.parametrize("to", [4, 3])
@pytest.mark.parametrize("paused", ["delete", "put"])
def test_a_writer_that_takes_its_late_snapshot_away_takes_no_commit_with_it(table, paused, to):
    """It is paused once more in the moment before, and others commit on what they store in its place."""
    acknowledged, handles = [*range(to), 50], [fresh(table)]

    def others(_):
        for row in (70, 71, 72):
            handles.append(fresh(table))
            handles[-1].append(rows(row, 1))
            acknowledged.append(row)

    faults = [
        run("before", "put_if_absent", lambda _: roll_back(table, to)(), where="snapshot/snapshot-6"),
        run("before", paused, others, where="snapshot/snapshot-*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert sorted(ids_of(fresh(table))) == sorted(acknowledged)
    for row, handle in enumerate(handles, 80):
        handle.append(rows(row, 1))
        acknowledged.append(row)
        assert sorted(ids_of(fresh(table))) == sorted(acknowledged)
    drop_hints(table)
    assert sorted(ids_of(fresh(table))) == sorted(acknowledged)
    assert not [p for p in fresh(table).verify().problems if p.severity == "error"]


@pytest.mark.parametrize("to", [4, 2])
def test_a_writer_that_lost_its_number_to_a_late_one_does_not_build_on_it(table, to):
    """Both had seen the same newest snapshot, which was rolled back before the late one was put."""
    late = run(
        "before", "put_if_absent", lambda _: leave(table, roll_back(table, to)), where="snapshot/snapshot-6"
    )
    through(table, FaultyStorage(table.context.storage, [late])).append(rows(60, 1))
    assert ids_of(fresh(table)) == [*range(to), 60]
    drop_hints(table)
    assert ids_of(fresh(table)) == [*range(to), 60]


@pytest.mark.parametrize("hints", first_short([True, False]), ids=["hints", "no hints"])
def test_acknowledged_commits_stay_and_rolled_back_rows_do_not_return(table, hints):
    leave(table, roll_back(table))
    if not hints:
        drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1]
    for row in range(10, 18):
        fresh(table).append(rows(row, 1))
        assert ids_of(fresh(table)) == [0, 1, *range(10, row + 1)]
        if not hints:
            drop_hints(table)
            assert ids_of(fresh(table)) == [0, 1, *range(10, row + 1)]
    history = [s.id for s in fresh(table).snapshots()]
    assert history == list(range(history[0], 0, -1)), "without gap"


def test_one_handle_that_lives_through_it_sees_the_same(table):
    leave(table, roll_back(table))
    for row in range(10, 18):
        table.append(rows(row, 1))
        assert ids_of(table) == [0, 1, *range(10, row + 1)]


def test_sweeping_leaves_no_number_to_a_late_writer(table):
    leave(table, roll_back(table))
    assert [left.id for left in sweep(table.context, dry_run=True)] == [6]
    assert table.context.snapshots.head().id == 2
    assert [left.id for left in sweep(table.context)] == [6]
    assert ids_of(fresh(table)) == [0, 1]
    assert [s.id for s in fresh(table).snapshots()] == [6, 5, 4, 3, 2, 1]
    assert sweep(table.context) == []
    drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1]


def test_a_sweep_that_is_paused_does_no_harm(table):
    """Two sweep at once; the first goes on after the other has ended and commits were made above it."""
    leave(table, roll_back(table))

    def others(path):
        sweep(fresh(table).context)
        fresh(table).append(rows(10, 1))

    fault = run("before", "put", others, where="snapshot/snapshot-6")
    sweep(through(table, FaultyStorage(table.context.storage, [fault])).context)
    assert ids_of(fresh(table)) == [0, 1, 10]
    assert [s.id for s in fresh(table).snapshots()] == [7, 6, 5, 4, 3, 2, 1]


def test_a_paused_writer_that_lives_commits_once(table):
    """It finds that its snapshot was taken out of the way meanwhile, and leaves what came in its place."""

    def others(path):
        for row in range(10, 16):
            fresh(table).append(rows(row, 1))

    faults = [
        run("before", "put_if_absent", lambda path: roll_back(table)(), where="snapshot/snapshot-6"),
        run("after", "put_if_absent", others, where="snapshot/snapshot-6"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert ids_of(fresh(table)) == [0, 1, *range(10, 16), 50]
    history = [s.id for s in fresh(table).snapshots()]
    assert history == list(range(history[0], 0, -1))


def test_a_late_writer_does_not_remove_what_took_its_number(table):
    """Between its look and its removal others took its snapshot out of the way and went on."""
    late = []

    def others(path):
        if len(late) == 1:
            late.append("others")
            for row in range(10, 16):
                fresh(table).append(rows(row, 1))

    faults = [
        run("before", "put_if_absent", lambda path: roll_back(table)(), where="snapshot/snapshot-6"),
        run("after", "put_if_absent", late.append, where="snapshot/snapshot-6"),
        run("before", "exists", others, times=10**6, where="schema/*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert late == ["snapshot/snapshot-6", "others"]
    assert ids_of(fresh(table)) == [0, 1, *range(10, 16), 50]


def test_the_same_snapshot_is_made_by_whoever_sweeps(table):
    leave(table, roll_back(table))
    left = table.context.snapshots.find(6)
    sweep(table.context)
    first = [table.context.storage.get(table.context.layout.snapshot_path(n)) for n in (6,)]
    table.context.storage.put("snapshot/snapshot-6", left.to_json())
    sweep(fresh(table).context)
    assert [table.context.storage.get("snapshot/snapshot-6")] == first
    assert Snapshot.from_json(first[0], path="").delta_record_count == 0


@pytest.mark.parametrize("to", [1, 2])
def test_nobody_reads_what_a_late_writer_is_about_to_take_back(table, to):
    """Also where another engine rolled back, to the first snapshot or the oldest that is left."""
    seen = []
    if to == 2:
        table.expire_snapshots(retain_max=4, retain_min=4)
    faults = [
        run("before", "put_if_absent", lambda path: roll_back_elsewhere(table, to)(), where="snapshot/*"),
        run("after", "put_if_absent", lambda path: seen.append(ids_of(fresh(table))), where="snapshot/*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert seen[0] == [*range(to)]
    assert ids_of(fresh(table)) == [*range(to), 50]


def test_two_late_commits_of_ours_above_a_gap_are_not_read(table):
    """The upper one has one below it, on which it was not built; neither of what they were built on is there."""

    def meanwhile():
        fresh(table).append(rows(40, 1))
        leave(table, roll_back_elsewhere(table, 1), row=51)

    leave(table, meanwhile)
    assert fresh(table).context.snapshots.ids() == [1, 6, 7]
    assert ids_of(fresh(table)) == [0]
    for row in range(10, 18):
        fresh(table).append(rows(row, 1))
        assert ids_of(fresh(table)) == [0, *range(10, row + 1)]


def test_a_snapshot_above_a_gap_that_nobody_rolled_back_is_the_newest(table):
    """Deleting snapshots by hand is damage, not a rollback: nothing that was acknowledged goes out of sight."""
    for number in (3, 4):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4]
    assert anabranch.Table(fresh(table).context).append(rows(5, 1)).id == 6


def test_nobody_steps_onto_what_a_late_writer_put_on_what_is_gone(table):
    """Two writers are paused: one has seen the newest and looks for what follows, when history is rolled back below it."""

    def meanwhile(path):
        leave(table, roll_back(table, to=2))

    number = table.snapshot.id
    watched = FaultyStorage(
        table.context.storage, [run("before", "get", meanwhile, where=f"snapshot/snapshot-{number + 1}")]
    )
    made = through(table, watched).append(rows(90, 1))
    assert ids_of(fresh(table)) == [0, 1, 90]
    fresh(table).append(rows(91, 1))
    assert ids_of(fresh(table)) == [0, 1, 90, 91]
    assert made.stamp in [s.stamp for s in fresh(table).snapshots()]


def test_what_leads_history_on_is_not_kept_under_a_tag(table):
    """It changes nothing, and what it needs may be gone by the time that a paused writer finds it."""
    leave(table, roll_back(table, to=4))
    fresh(table).append(rows(90, 1))
    head = fresh(table).append(rows(91, 1))
    (bridge,) = [s for s in fresh(table).snapshots() if s.properties.get(LEFTOVER_PROPERTY)]
    stranger = replace(
        bridge, id=head.id + 1, properties={**bridge.properties, PARENT_PROPERTY: "of another history"}
    )
    table.context.storage.put(table.context.layout.snapshot_path(stranger.id), stranger.to_json())
    fresh(table).append(rows(92, 1))
    assert fresh(table).tags(include_internal=True) == []
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 90, 91, 92]


def test_a_writer_that_commits_again_lets_go_of_what_others_kept_for_it(table):
    """It deletes what only its lost attempt needs, which a tag would name for ever."""
    storage = table.context.storage

    def roll_back_and_go_on(path):
        roll_back_elsewhere(table, 4)()
        fresh(table).append(rows(90, 1))

    faults = [
        run("before", "put_if_absent", roll_back_and_go_on, where="snapshot/*"),
        run("after", "put_if_absent", lambda _: fresh(table).append(rows(91, 1)), where="snapshot/*"),
    ]
    through(table, FaultyStorage(storage, faults)).append(rows(50, 1))
    assert sorted(ids_of(fresh(table))) == [0, 1, 2, 3, 50, 90, 91]
    assert fresh(table).tags(include_internal=True) == []
    assert [p for p in fresh(table).verify().problems if p.severity == "error"] == []


def test_a_late_snapshot_above_a_commit_whose_hint_is_to_come_is_not_the_newest(table):
    """Another engine rolled back; the writer after it has stored its snapshot and not yet said where it is."""
    leave(table, roll_back_elsewhere(table, 1))
    storage, log = table.context.storage, fresh(table).context.snapshots
    late = log.find(max(log.ids()))
    ahead = replace(late, time_millis=late.time_millis + 20_000)  # its writer's clock is ahead
    storage.put(table.context.layout.snapshot_path(late.id), ahead.to_json())
    seen = []
    watched = FaultyStorage(
        storage, [run("before", "put", lambda _: seen.append(ids_of(fresh(table))), where="*LATEST")]
    )
    through(table, watched).append(rows(90, 1))
    assert seen == [[0, 90]]


class _SlowLister(FaultyStorage):
    """What is stored while a folder is listed is not in the listing."""

    meanwhile = None

    def list(self, path="", **how):
        found = [*super().list(path, **how)]
        if path == "snapshot" and self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return found


def test_what_is_committed_while_a_reader_judges_a_late_snapshot_is_seen(table):
    """The listing has it not yet, the hint already."""
    leave(table, roll_back_elsewhere(table, 1))
    storage = _SlowLister(table.context.storage)
    storage.meanwhile = lambda: fresh(table).append(rows(90, 1))
    assert ids_of(through(table, storage)) == [0, 90]


@pytest.mark.parametrize("left", [8, 9])
def test_what_a_late_writer_left_where_history_has_expired_is_no_moment(table, left):
    """Neither to read, nor to tag, nor to roll back to: what it was built on is gone."""
    for row in range(10, 20):
        table.append(rows(row, 1))
    table.expire_snapshots(retain_max=6, retain_min=1)
    assert table.context.snapshots.ids() == [10, 11, 12, 13, 14, 15]
    late = replace(
        table.context.snapshots.find(11), id=left, uuid=None, properties={PARENT_PROPERTY: "0" * 32}
    )
    table.context.storage.put(table.context.layout.snapshot_path(left), late.to_json())
    opened = fresh(table)
    for name, use in {
        "read": lambda: opened.at(left).to_arrow(),
        "tag": lambda: opened.create_tag("t", left),
        "roll back": lambda: opened.rollback(left),
        "for good": lambda: opened.rollback(left, destructive=True, force=True),
    }.items():
        with pytest.raises(NotFoundError, match="does not exist.*no part of history") as error:
            use()
        assert "nearest snapshot is 10" in error.value.hint, name
    assert ids_of(fresh(table)) == [*range(5), *range(10, 20)]
    assert ids_of(fresh(table).at(10)) == [*range(5), *range(10, 15)]


def test_what_a_late_writer_put_above_the_newest_is_no_moment(table):
    leave(table, roll_back(table))
    with pytest.raises(NotFoundError, match="the latest is 2.*no part of history"):
        fresh(table).at(6).to_arrow()


def test_nothing_is_read_on_top_of_what_was_rolled_back_though_the_target_is_gone_for_a_moment(
    table, monkeypatch
):
    """An expiry that began before a rollback by an earlier release takes away what it went to, and puts it back once it notices."""
    monkeypatch.setattr(history_removal, "is_expiring", lambda *_: False)  # it went to the last that expires
    refused = []

    def disturb(_):
        leave(table, roll_back(table))

    def read(_):
        with pytest.raises(CorruptTableError, match="the newest that is there is none") as caught:
            ids_of(fresh(table))  # which is not empty
        refused.append(caught.value)

    faults = [
        run("before", "delete_many", disturb, where="snapshot/*"),
        run("after", "delete_many", read, where="snapshot/*"),
    ]
    expiring = through(table, FaultyStorage(table.context.storage, faults))
    with pytest.raises(CommitConflictError, match="rolled back while"):
        expiring.expire_snapshots(retain_max=3, retain_min=1)
    assert len(refused) == 1
    assert ids_of(fresh(table)) == [0, 1]
    fresh(table).append(rows(60, 1))
    assert ids_of(fresh(table)) == [0, 1, 60]
