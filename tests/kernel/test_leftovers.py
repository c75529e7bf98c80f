"""Snapshots above the newest, left by writers that were overtaken by a rollback for good: they are no history."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.repair.sweep import sweep
from anabranch.spec.snapshot import Snapshot
from tests.support.dying import Died, through
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


def _drop_hints(table):
    table.context.storage.delete(table.context.layout.latest_hint_path)
    table.context.storage.delete(table.context.layout.earliest_hint_path)


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


def test_a_snapshot_above_a_gap_that_nobody_rolled_back_is_the_newest(table):
    """Deleting snapshots by hand is damage, not a rollback: nothing that was acknowledged goes out of sight."""
    for number in (3, 4):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    _drop_hints(table)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4]
    assert anabranch.Table(_fresh(table).context).append(rows(5, 1)).id == 6
