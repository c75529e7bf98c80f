"""Snapshots above the newest, left by writers that were overtaken by a rollback for good: they are no history."""

import os
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CorruptTableError, NotFoundError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.properties import LEFTOVER_PROPERTY, PARENT_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.repair.repair import sweep
from tests.support.dying import Died, copy_of, through
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    """Five snapshots, one row each."""
    made = make_table(tmp_path, options={"write-only": "true"})
    for start in range(5):
        made.append(rows(start, 1))
    return made


def _die(path):
    raise Died


def _fresh(table):
    return through(table, table.context.storage)


def _leave(table, meanwhile, row=50):
    """A writer of ours is paused before its put, `meanwhile` happens, it puts its snapshot and dies."""
    faults = [
        run("before", "put_if_absent", lambda path: meanwhile(), where="snapshot/*"),
        run("after", "put_if_absent", _die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).append(rows(row, 1))


def _leave_foreign(table, meanwhile, row=50):
    """The same by another engine, which is not killed: it does not look back, and says where its snapshot is."""
    _leave(table, meanwhile, row)
    log = _fresh(table).context.snapshots
    left = log.find(max(log.ids()))
    plain = replace(left, properties={}, uuid=None)
    table.context.storage.put(table.context.layout.snapshot_path(left.id), plain.to_json())
    table.context.storage.put(table.context.layout.latest_hint_path, str(left.id).encode())
    return plain


def _roll_back(table, to=2):
    return lambda: _fresh(table).rollback(to, destructive=True)


def _file_of(table, path):
    return os.path.join(table.context.storage.url.removeprefix("file://"), path)


def _drop_hints(table):
    table.context.storage.delete(table.context.layout.latest_hint_path)
    table.context.storage.delete(table.context.layout.earliest_hint_path)


@pytest.mark.parametrize("to", [4, 3])
@pytest.mark.parametrize("paused", ["delete", "put"])
def test_a_writer_that_takes_its_late_snapshot_away_takes_no_commit_with_it(table, paused, to):
    """It is paused once more in the moment before, and others commit on what they store in its place."""
    acknowledged, handles = [*range(to), 50], [_fresh(table)]

    def others(_):
        for row in (70, 71, 72):
            handles.append(_fresh(table))
            handles[-1].append(rows(row, 1))
            acknowledged.append(row)

    faults = [
        run("before", "put_if_absent", lambda _: _roll_back(table, to)(), where="snapshot/snapshot-6"),
        run("before", paused, others, where="snapshot/snapshot-*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert sorted(ids_of(_fresh(table))) == sorted(acknowledged)
    for row, handle in enumerate(handles, 80):
        handle.append(rows(row, 1))
        acknowledged.append(row)
        assert sorted(ids_of(_fresh(table))) == sorted(acknowledged)
    _drop_hints(table)
    assert sorted(ids_of(_fresh(table))) == sorted(acknowledged)
    assert not [p for p in _fresh(table).verify().problems if p.severity == "error"]


@pytest.mark.parametrize("to", [4, 2])
def test_a_writer_that_lost_its_number_to_a_late_one_does_not_build_on_it(table, to):
    """Both had seen the same newest snapshot, which was rolled back before the late one was put."""
    late = run(
        "before", "put_if_absent", lambda _: _leave(table, _roll_back(table, to)), where="snapshot/snapshot-6"
    )
    through(table, FaultyStorage(table.context.storage, [late])).append(rows(60, 1))
    assert ids_of(_fresh(table)) == [*range(to), 60]
    _drop_hints(table)
    assert ids_of(_fresh(table)) == [*range(to), 60]


@pytest.mark.parametrize("hints", [True, False], ids=["hints", "no hints"])
def test_acknowledged_commits_stay_and_rolled_back_rows_do_not_return(table, hints):
    _leave(table, _roll_back(table))
    if not hints:
        _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1]
    for row in range(10, 18):
        _fresh(table).append(rows(row, 1))
        assert ids_of(_fresh(table)) == [0, 1, *range(10, row + 1)]
        if not hints:
            _drop_hints(table)
            assert ids_of(_fresh(table)) == [0, 1, *range(10, row + 1)]
    history = [s.id for s in _fresh(table).snapshots()]
    assert history == list(range(history[0], 0, -1)), "without gap"


def test_one_handle_that_lives_through_it_sees_the_same(table):
    _leave(table, _roll_back(table))
    for row in range(10, 18):
        table.append(rows(row, 1))
        assert ids_of(table) == [0, 1, *range(10, row + 1)]


@pytest.mark.parametrize("hints", [True, False], ids=["hints", "no hints"])
def test_what_another_engine_appended_stays_without_what_was_rolled_back(table, hints):
    _leave_foreign(table, _roll_back(table))
    if not hints:
        _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1], "rolled-back rows are gone"
    for row in range(10, 18):
        _fresh(table).append(rows(row, 1))
        got = ids_of(_fresh(table))
        assert [r for r in got if r != 50] == [0, 1, *range(10, row + 1)]
    assert 50 in ids_of(_fresh(table)), "the other engine was told that its row is in"


def test_what_another_engine_left_is_recognised_by_what_it_builds_on_not_by_counts(table):
    """As many rows before and after: only the files tell the two histories apart."""
    _leave_foreign(table, _roll_back(table))
    for row in (10, 11, 12):
        _fresh(table).append(rows(row, 1))
    left = _fresh(table).context.snapshots.find(6)
    assert left.total_record_count == 6
    table.context.storage.put(table.context.layout.latest_hint_path, b"6")
    assert ids_of(_fresh(table)) == [0, 1, 10, 11, 12]
    _fresh(table).append(rows(13, 1))
    assert ids_of(_fresh(table)) == [0, 1, 10, 11, 12, 13, 50]


def test_another_engine_that_builds_on_ours_is_followed(table):
    last = table.append(rows(5, 1))
    plain = replace(last, properties={}, uuid=None)
    table.context.storage.put(table.context.layout.snapshot_path(6), plain.to_json())
    _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4, 5]
    assert _fresh(table).append(rows(6, 1)).id == 7


def test_an_overwrite_of_another_engine_is_kept_under_a_tag(table):
    faults = [
        run("before", "put_if_absent", lambda path: _roll_back(table)(), where="snapshot/*"),
        run("after", "put_if_absent", _die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).overwrite(rows(50, 1))
    left = _fresh(table).context.snapshots.find(6)
    plain = replace(left, properties={}, uuid=None)
    table.context.storage.put("snapshot/snapshot-6", plain.to_json())
    for row in range(10, 15):
        _fresh(table).append(rows(row, 1))
    assert ids_of(_fresh(table)) == [0, 1, 10, 11, 12, 13, 14]
    (tag,) = _fresh(table).tags()
    assert (tag, ids_of(_fresh(table).at(tag))) == (f"leftover-6-{plain.stamp[:8]}", [50])


def test_sweeping_leaves_no_number_to_a_late_writer(table):
    _leave(table, _roll_back(table))
    assert [left.id for left in sweep(table.context, dry_run=True)] == [6]
    assert table.context.snapshots.head().id == 2
    assert [left.id for left in sweep(table.context)] == [6]
    assert ids_of(_fresh(table)) == [0, 1]
    assert [s.id for s in _fresh(table).snapshots()] == [6, 5, 4, 3, 2, 1]
    assert sweep(table.context) == []
    _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1]


def test_a_sweep_that_is_paused_does_no_harm(table):
    """Two sweep at once; the first goes on after the other has ended and commits were made above it."""
    _leave(table, _roll_back(table))

    def others(path):
        sweep(_fresh(table).context)
        _fresh(table).append(rows(10, 1))

    fault = run("before", "put", others, where="snapshot/snapshot-6")
    sweep(through(table, FaultyStorage(table.context.storage, [fault])).context)
    assert ids_of(_fresh(table)) == [0, 1, 10]
    assert [s.id for s in _fresh(table).snapshots()] == [7, 6, 5, 4, 3, 2, 1]


def test_a_paused_writer_that_lives_commits_once(table):
    """It finds that its snapshot was taken out of the way meanwhile, and leaves what came in its place."""

    def others(path):
        for row in range(10, 16):
            _fresh(table).append(rows(row, 1))

    faults = [
        run("before", "put_if_absent", lambda path: _roll_back(table)(), where="snapshot/snapshot-6"),
        run("after", "put_if_absent", others, where="snapshot/snapshot-6"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert ids_of(_fresh(table)) == [0, 1, *range(10, 16), 50]
    history = [s.id for s in _fresh(table).snapshots()]
    assert history == list(range(history[0], 0, -1))


def test_a_late_writer_does_not_remove_what_took_its_number(table):
    """Between its look and its removal others took its snapshot out of the way and went on."""
    late = []

    def others(path):
        if len(late) == 1:
            late.append("others")
            for row in range(10, 16):
                _fresh(table).append(rows(row, 1))

    faults = [
        run("before", "put_if_absent", lambda path: _roll_back(table)(), where="snapshot/snapshot-6"),
        run("after", "put_if_absent", late.append, where="snapshot/snapshot-6"),
        run("before", "exists", others, times=10**6, where="schema/*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert late == ["snapshot/snapshot-6", "others"]
    assert ids_of(_fresh(table)) == [0, 1, *range(10, 16), 50]


def test_the_same_snapshot_is_made_by_whoever_sweeps(table):
    _leave(table, _roll_back(table))
    left = table.context.snapshots.find(6)
    sweep(table.context)
    first = [table.context.storage.get(table.context.layout.snapshot_path(n)) for n in (6,)]
    table.context.storage.put("snapshot/snapshot-6", left.to_json())
    sweep(_fresh(table).context)
    assert [table.context.storage.get("snapshot/snapshot-6")] == first
    assert Snapshot.from_json(first[0], path="").delta_record_count == 0


def _roll_back_elsewhere(table, to):
    """As other engines roll back: the hint, then the newest snapshots; nothing says what was removed."""

    def roll_back():
        storage, layout = table.context.storage, table.context.layout
        newest = max(_fresh(table).context.snapshots.ids())
        storage.put(layout.latest_hint_path, str(to).encode())
        for number in range(newest, to, -1):
            storage.delete(layout.snapshot_path(number))

    return roll_back


def _foreign_commit(table, number, on, row):
    """Another engine puts a snapshot by number and hint, built on what it read before."""
    other = copy_of(table)
    other.context.storage.delete_folder(other.context.layout.snapshot_folder)
    other.context.storage.put(other.context.layout.snapshot_path(on.id), on.to_json())
    other.context.storage.put(other.context.layout.latest_hint_path, str(on.id).encode())
    before = {info.path for info in other.context.storage.list(recursive=True)}
    made = _fresh(other).append(rows(row, 1))
    plain = replace(made, properties={}, uuid=None)
    for info in other.context.storage.list(recursive=True):
        if info.path not in before and not info.path.startswith("snapshot/"):
            table.context.storage.put(info.path, other.context.storage.get(info.path))
    table.context.storage.put(table.context.layout.snapshot_path(number), plain.to_json())
    table.context.storage.put(table.context.layout.latest_hint_path, str(number).encode())
    return plain


@pytest.mark.parametrize("hints", [True, False], ids=["hints", "no hints"])
def test_two_late_commits_of_other_engines_on_top_of_each_other_hide_nothing(table, hints):
    """After another engine's rollback, of which there is no record."""
    third = table.context.snapshots.find(3)
    _roll_back_elsewhere(table, 2)()
    assert _fresh(table).append(rows(10, 1)).id == 3
    late = _foreign_commit(table, 4, third, 50)
    _foreign_commit(table, 5, late, 51)
    if not hints:
        _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1, 10]
    for row in range(11, 15):
        _fresh(table).append(rows(row, 1))
        got = ids_of(_fresh(table))
        assert [r for r in got if r < 50] == [0, 1, *range(10, row + 1)]
    assert {50, 51} <= set(ids_of(_fresh(table))), "the other engine was told that its rows are in"


def test_a_late_commit_of_another_engine_on_one_of_ours_that_died_hides_nothing(table):
    third = table.context.snapshots.find(3)
    _roll_back_elsewhere(table, 2)()
    assert _fresh(table).append(rows(10, 1)).id == 3
    foreign = _foreign_commit(table, 4, third, 50)
    ours = replace(foreign, properties={WRITER_PROPERTY: "anabranch 0", PARENT_PROPERTY: third.stamp})
    table.context.storage.put(table.context.layout.snapshot_path(4), ours.to_json())
    _foreign_commit(table, 5, ours, 51)
    assert ids_of(_fresh(table)) == [0, 1, 10]
    _fresh(table).append(rows(11, 1))
    _fresh(table).append(rows(12, 1))
    assert ids_of(_fresh(table)) == [0, 1, 10, 11, 12, 51], "nobody was told that row 50 is in"


def test_what_another_engine_builds_on_a_commit_that_is_about_to_be_replaced_hides_nothing(table):
    """Though all snapshots below it are younger: history was led on by empty ones, and what was before them expired."""
    seen, back = [], _roll_back_elsewhere(table, 1)

    def go_on(_):
        _fresh(table).expire_snapshots(retain_max=3, retain_min=1)
        _foreign_commit(table, 7, table.context.snapshots.find(6), 70)
        seen.append(ids_of(_fresh(table)))

    faults = [
        run("before", "put_if_absent", lambda _: back(), where="snapshot/snapshot-6"),
        run("before", "put", go_on, where="snapshot/snapshot-6"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert seen == [[0]]
    _fresh(table).append(rows(80, 1))
    _fresh(table).append(rows(81, 1))
    assert ids_of(_fresh(table)) == [0, 50, 70, 80, 81]


@pytest.mark.parametrize("went_on", ["before", "after"])
def test_a_late_commit_of_another_engine_above_a_gap_does_not_hide_what_was_committed(table, went_on):
    """Before it came or after; its writer had been paused for an hour."""
    fourth = table.context.snapshots.find(4)
    _roll_back_elsewhere(table, 2)()
    if went_on == "before":
        _fresh(table).append(rows(10, 1))
    late = _foreign_commit(table, 5, fourth, 50)
    if went_on == "after":
        table.context.storage.put(table.context.layout.latest_hint_path, b"2")
        _fresh(table).append(rows(10, 1))
    old = replace(late, time_millis=late.time_millis - 3_600_000 * (went_on == "before"))
    before = table.context.storage.info("snapshot/snapshot-5").modified_millis
    table.context.storage.put("snapshot/snapshot-5", old.to_json())
    if went_on == "after":
        os.utime(_file_of(table, "snapshot/snapshot-5"), (before / 1000, before / 1000))
    table.context.storage.put(table.context.layout.latest_hint_path, b"5")
    assert ids_of(_fresh(table)) == [0, 1, 10]
    _fresh(table).append(rows(11, 1))
    _fresh(table).append(rows(12, 1))
    assert ids_of(_fresh(table)) == [0, 1, 10, 11, 12, 50]


@pytest.mark.parametrize("to", [1, 2])
def test_nobody_reads_what_a_late_writer_is_about_to_take_back(table, to):
    """Also where another engine rolled back, to the first snapshot or the oldest that is left."""
    seen = []
    if to == 2:
        table.expire_snapshots(retain_max=4, retain_min=4)
    faults = [
        run("before", "put_if_absent", lambda path: _roll_back_elsewhere(table, to)(), where="snapshot/*"),
        run("after", "put_if_absent", lambda path: seen.append(ids_of(_fresh(table))), where="snapshot/*"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert seen[0] == [*range(to)]
    assert ids_of(_fresh(table)) == [*range(to), 50]


def test_two_late_commits_of_ours_above_a_gap_are_not_read(table):
    """The upper one has one below it, on which it was not built; neither of what they were built on is there."""

    def meanwhile():
        _fresh(table).append(rows(40, 1))
        _leave(table, _roll_back_elsewhere(table, 1), row=51)

    _leave(table, meanwhile)
    assert _fresh(table).context.snapshots.ids() == [1, 6, 7]
    assert ids_of(_fresh(table)) == [0]
    for row in range(10, 18):
        _fresh(table).append(rows(row, 1))
        assert ids_of(_fresh(table)) == [0, *range(10, row + 1)]


def test_a_snapshot_above_a_gap_that_nobody_rolled_back_is_the_newest(table):
    """Deleting snapshots by hand is damage, not a rollback: nothing that was acknowledged goes out of sight."""
    for number in (3, 4):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4]
    assert anabranch.Table(_fresh(table).context).append(rows(5, 1)).id == 6


def _roll_back_until_its_record(table, to):
    """A rollback for good dies when it has said what it removes, and removed nothing."""
    fault = run("after", "put", _die, where="snapshot/LATEST")
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, [fault])).rollback(to, destructive=True)
    return any("/removed-" in info.path for info in table.context.storage.list("lineage"))


@pytest.mark.parametrize("next_to_it", [True, False])
def test_what_an_expiry_left_is_history_although_a_rollback_meant_to_remove_what_it_was_built_on(
    table, next_to_it
):
    """The rollback dies, ours and other engines go on above, one of them expires the rest, a late writer comes last."""

    def meanwhile():
        assert _roll_back_until_its_record(table, 2)
        storage, layout = table.context.storage, table.context.layout
        built_on = _fresh(table).append(rows(60, 1))
        for number in (7, 8):
            built_on = _foreign_commit(table, number, built_on, number * 10)
        for number in range(1, 7 if next_to_it else 8):
            storage.delete(layout.snapshot_path(number))
        storage.put(layout.earliest_hint_path, b"7" if next_to_it else b"8")

    _leave(table, meanwhile)
    assert 6 in table.context.snapshots.ids(), "the late writer's"
    there = [0, 1, 2, 3, 4, 60, 70, 80]
    assert sorted(ids_of(_fresh(table))) == there
    for row in range(10, 14):
        _fresh(table).append(rows(row, 1))
        there.append(row)
        assert sorted(ids_of(_fresh(table))) == sorted(there)
    _drop_hints(table)
    assert sorted(ids_of(_fresh(table))) == sorted(there)


def test_nobody_steps_onto_what_a_late_writer_put_on_what_is_gone(table):
    """Two writers are paused: one has seen the newest and looks for what follows, when history is rolled back below it."""

    def meanwhile(path):
        _leave(table, _roll_back(table, to=2))

    number = table.snapshot.id
    watched = FaultyStorage(
        table.context.storage, [run("before", "get", meanwhile, where=f"snapshot/snapshot-{number + 1}")]
    )
    made = through(table, watched).append(rows(90, 1))
    assert ids_of(_fresh(table)) == [0, 1, 90]
    _fresh(table).append(rows(91, 1))
    assert ids_of(_fresh(table)) == [0, 1, 90, 91]
    assert made.stamp in [s.stamp for s in _fresh(table).snapshots()]


def test_what_leads_history_on_is_not_kept_under_a_tag(table):
    """It changes nothing, and what it needs may be gone by the time that a paused writer finds it."""
    _leave(table, _roll_back(table, to=4))
    _fresh(table).append(rows(90, 1))
    head = _fresh(table).append(rows(91, 1))
    (bridge,) = [s for s in _fresh(table).snapshots() if s.properties.get(LEFTOVER_PROPERTY)]
    stranger = replace(
        bridge, id=head.id + 1, properties={**bridge.properties, PARENT_PROPERTY: "of another history"}
    )
    table.context.storage.put(table.context.layout.snapshot_path(stranger.id), stranger.to_json())
    _fresh(table).append(rows(92, 1))
    assert _fresh(table).tags(include_internal=True) == []
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 90, 91, 92]


def test_a_paused_writer_keeps_no_leftover_that_has_expired(table):
    """Its tag would name files that are gone, and nothing could expire any more."""
    left = _leave_foreign_overwrite(table)
    storage, path = table.context.storage, table.context.layout.snapshot_path(left.id)
    paused = FaultyStorage(
        storage, [run("before", "put_if_absent", lambda _: storage.delete(path), where="tag/*")]
    )
    through(table, paused).append(rows(92, 1))
    assert _fresh(table).tags(include_internal=True) == []


def _leave_foreign_overwrite(table):
    left = _leave_foreign(table, _roll_back(table, to=4))
    _fresh(table).append(rows(90, 1))
    changed = replace(left, commit_kind=CommitKind.OVERWRITE)
    table.context.storage.put(table.context.layout.snapshot_path(left.id), changed.to_json())
    return changed


def test_a_writer_that_commits_again_lets_go_of_what_others_kept_for_it(table):
    """It deletes what only its lost attempt needs, which a tag would name for ever."""
    storage = table.context.storage

    def roll_back_and_go_on(path):
        _roll_back_elsewhere(table, 4)()
        _fresh(table).append(rows(90, 1))

    faults = [
        run("before", "put_if_absent", roll_back_and_go_on, where="snapshot/*"),
        run("after", "put_if_absent", lambda _: _fresh(table).append(rows(91, 1)), where="snapshot/*"),
    ]
    through(table, FaultyStorage(storage, faults)).append(rows(50, 1))
    assert sorted(ids_of(_fresh(table))) == [0, 1, 2, 3, 50, 90, 91]
    assert _fresh(table).tags(include_internal=True) == []
    assert [p for p in _fresh(table).verify().problems if p.severity == "error"] == []


def test_a_late_snapshot_above_a_commit_whose_hint_is_to_come_is_not_the_newest(table):
    """Another engine rolled back; the writer after it has stored its snapshot and not yet said where it is."""
    _leave(table, _roll_back_elsewhere(table, 1))
    storage, log = table.context.storage, _fresh(table).context.snapshots
    late = log.find(max(log.ids()))
    ahead = replace(late, time_millis=late.time_millis + 20_000)  # its writer's clock is ahead
    storage.put(table.context.layout.snapshot_path(late.id), ahead.to_json())
    seen = []
    watched = FaultyStorage(
        storage, [run("before", "put", lambda _: seen.append(ids_of(_fresh(table))), where="*LATEST")]
    )
    through(table, watched).append(rows(90, 1))
    assert seen == [[0, 90]]


def test_what_another_engine_has_built_on_stays_though_the_late_commit_is_refused(table):
    """The other engine's snapshot names the manifests of the one that is taken back."""

    def roll_back(path):
        _roll_back_elsewhere(table, 4)()
        _fresh(table).append(rows(10, 1))

    def build(path):
        _foreign_commit(table, 7, _fresh(table).context.snapshots.find(6), 51)

    faults = [
        run("before", "put_if_absent", roll_back, where="snapshot/snapshot-6"),
        run("before", "put_if_absent", build, where="lineage/removed-*"),
    ]
    late = through(table, FaultyStorage(table.context.storage, faults))
    with pytest.raises(anabranch.CommitConflictError):
        late.overwrite(rows(50, 1), if_unchanged_since=5)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 10]
    for row in range(11, 16):
        _fresh(table).append(rows(row, 1))
    assert ids_of(_fresh(table))[:10] == [0, 1, 2, 3, *range(10, 16)]
    assert [p for p in _fresh(table).verify().problems if p.severity == "error"] == []


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
    _leave(table, _roll_back_elsewhere(table, 1))
    storage = _SlowLister(table.context.storage)
    storage.meanwhile = lambda: _fresh(table).append(rows(90, 1))
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
    fresh = _fresh(table)
    for name, use in {
        "read": lambda: fresh.at(left).to_arrow(),
        "tag": lambda: fresh.create_tag("t", left),
        "roll back": lambda: fresh.rollback(left),
        "for good": lambda: fresh.rollback(left, destructive=True, force=True),
    }.items():
        with pytest.raises(NotFoundError, match="does not exist.*no part of history") as error:
            use()
        assert "nearest snapshot is 10" in error.value.hint, name
    assert ids_of(_fresh(table)) == [*range(5), *range(10, 20)]
    assert ids_of(_fresh(table).at(10)) == [*range(5), *range(10, 15)]


def test_what_a_late_writer_put_above_the_newest_is_no_moment(table):
    _leave(table, _roll_back(table))
    with pytest.raises(NotFoundError, match="the latest is 2.*no part of history"):
        _fresh(table).at(6).to_arrow()


def test_nothing_is_read_on_top_of_what_was_rolled_back_though_the_target_is_gone_for_a_moment(table):
    """An expiry that began before the rollback takes away what it went to, and puts it back once it notices."""
    refused = []

    def disturb(_):
        _leave(table, _roll_back(table))

    def read(_):
        with pytest.raises(CorruptTableError, match="the newest that is there is none") as caught:
            ids_of(_fresh(table))  # which is not empty
        refused.append(caught.value)

    faults = [
        run("before", "delete_many", disturb, where="snapshot/*"),
        run("after", "delete_many", read, where="snapshot/*"),
    ]
    expiring = through(table, FaultyStorage(table.context.storage, faults))
    with pytest.raises(CommitConflictError, match="rolled back while"):
        expiring.expire_snapshots(retain_max=3, retain_min=1)
    assert len(refused) == 1
    assert ids_of(_fresh(table)) == [0, 1]
    _fresh(table).append(rows(60, 1))
    assert ids_of(_fresh(table)) == [0, 1, 60]
