"""The same where another engine wrote late: its snapshots say neither who put them nor what they were built on."""

import os
from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.log.properties import PARENT_PROPERTY, WRITER_PROPERTY
from tests.kernel.leaving import (
    die,
    drop_hints,
    file_of,
    foreign_commit,
    fresh,
    leave,
    leave_foreign,
    roll_back,
    roll_back_elsewhere,
    table,
)
from tests.support.dying import Died, through
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

__all__ = ["table"]


@pytest.mark.parametrize("hints", first_short([True, False]), ids=["hints", "no hints"])
def test_what_another_engine_appended_stays_without_what_was_rolled_back(table, hints):
    leave_foreign(table, roll_back(table))
    if not hints:
        drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1], "rolled-back rows are gone"
    for row in range(10, 18):
        fresh(table).append(rows(row, 1))
        got = ids_of(fresh(table))
        assert [r for r in got if r != 50] == [0, 1, *range(10, row + 1)]
    assert 50 in ids_of(fresh(table)), "the other engine was told that its row is in"


def test_what_another_engine_left_is_recognised_by_what_it_builds_on_not_by_counts(table):
    """As many rows before and after: only the files tell the two histories apart."""
    leave_foreign(table, roll_back(table))
    for row in (10, 11, 12):
        fresh(table).append(rows(row, 1))
    left = fresh(table).context.snapshots.find(6)
    assert left.total_record_count == 6
    table.context.storage.put(table.context.layout.latest_hint_path, b"6")
    assert ids_of(fresh(table)) == [0, 1, 10, 11, 12]
    fresh(table).append(rows(13, 1))
    assert ids_of(fresh(table)) == [0, 1, 10, 11, 12, 13, 50]


def test_another_engine_that_builds_on_ours_is_followed(table):
    last = table.append(rows(5, 1))
    plain = replace(last, properties={}, uuid=None)
    table.context.storage.put(table.context.layout.snapshot_path(6), plain.to_json())
    drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4, 5]
    assert fresh(table).append(rows(6, 1)).id == 7


def test_an_overwrite_of_another_engine_is_kept_under_a_tag(table):
    faults = [
        run("before", "put_if_absent", lambda path: roll_back(table)(), where="snapshot/*"),
        run("after", "put_if_absent", die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).overwrite(rows(50, 1))
    left = fresh(table).context.snapshots.find(6)
    plain = replace(left, properties={}, uuid=None)
    table.context.storage.put("snapshot/snapshot-6", plain.to_json())
    for row in range(10, 15):
        fresh(table).append(rows(row, 1))
    assert ids_of(fresh(table)) == [0, 1, 10, 11, 12, 13, 14]
    (tag,) = fresh(table).tags()
    assert (tag, ids_of(fresh(table).at(tag))) == (f"leftover-6-{plain.stamp[:8]}", [50])


@pytest.mark.parametrize("hints", [True, False], ids=["hints", "no hints"])
def test_two_late_commits_of_other_engines_on_top_of_each_other_hide_nothing(table, hints):
    """After another engine's rollback, of which there is no record."""
    third = table.context.snapshots.find(3)
    roll_back_elsewhere(table, 2)()
    assert fresh(table).append(rows(10, 1)).id == 3
    late = foreign_commit(table, 4, third, 50)
    foreign_commit(table, 5, late, 51)
    if not hints:
        drop_hints(table)
    assert ids_of(fresh(table)) == [0, 1, 10]
    for row in range(11, 15):
        fresh(table).append(rows(row, 1))
        got = ids_of(fresh(table))
        assert [r for r in got if r < 50] == [0, 1, *range(10, row + 1)]
    assert {50, 51} <= set(ids_of(fresh(table))), "the other engine was told that its rows are in"


def test_a_late_commit_of_another_engine_on_one_of_ours_that_died_hides_nothing(table):
    third = table.context.snapshots.find(3)
    roll_back_elsewhere(table, 2)()
    assert fresh(table).append(rows(10, 1)).id == 3
    foreign = foreign_commit(table, 4, third, 50)
    ours = replace(foreign, properties={WRITER_PROPERTY: "anabranch 0", PARENT_PROPERTY: third.stamp})
    table.context.storage.put(table.context.layout.snapshot_path(4), ours.to_json())
    foreign_commit(table, 5, ours, 51)
    assert ids_of(fresh(table)) == [0, 1, 10]
    fresh(table).append(rows(11, 1))
    fresh(table).append(rows(12, 1))
    assert ids_of(fresh(table)) == [0, 1, 10, 11, 12, 51], "nobody was told that row 50 is in"


def test_what_another_engine_builds_on_a_commit_that_is_about_to_be_replaced_hides_nothing(table):
    """Though all snapshots below it are younger: history was led on by empty ones, and what was before them expired."""
    seen, back = [], roll_back_elsewhere(table, 1)

    def go_on(_):
        fresh(table).expire_snapshots(retain_max=3, retain_min=1)
        foreign_commit(table, 7, table.context.snapshots.find(6), 70)
        seen.append(ids_of(fresh(table)))

    faults = [
        run("before", "put_if_absent", lambda _: back(), where="snapshot/snapshot-6"),
        run("before", "put", go_on, where="snapshot/snapshot-6"),
    ]
    through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert seen == [[0]]
    fresh(table).append(rows(80, 1))
    fresh(table).append(rows(81, 1))
    assert ids_of(fresh(table)) == [0, 50, 70, 80, 81]


@pytest.mark.parametrize("went_on", ["before", "after"])
def test_a_late_commit_of_another_engine_above_a_gap_does_not_hide_what_was_committed(table, went_on):
    """Before it came or after; its writer had been paused for an hour."""
    fourth = table.context.snapshots.find(4)
    roll_back_elsewhere(table, 2)()
    if went_on == "before":
        fresh(table).append(rows(10, 1))
    late = foreign_commit(table, 5, fourth, 50)
    if went_on == "after":
        table.context.storage.put(table.context.layout.latest_hint_path, b"2")
        fresh(table).append(rows(10, 1))
    old = replace(late, time_millis=late.time_millis - 3_600_000 * (went_on == "before"))
    before = table.context.storage.info("snapshot/snapshot-5").modified_millis
    table.context.storage.put("snapshot/snapshot-5", old.to_json())
    if went_on == "after":
        os.utime(file_of(table, "snapshot/snapshot-5"), (before / 1000, before / 1000))
    table.context.storage.put(table.context.layout.latest_hint_path, b"5")
    assert ids_of(fresh(table)) == [0, 1, 10]
    fresh(table).append(rows(11, 1))
    fresh(table).append(rows(12, 1))
    assert ids_of(fresh(table)) == [0, 1, 10, 11, 12, 50]


def _roll_back_until_its_record(table, to):
    """A rollback for good dies when it has said what it removes, and removed nothing."""
    fault = run("after", "put", die, where="snapshot/LATEST")
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
        built_on = fresh(table).append(rows(60, 1))
        for number in (7, 8):
            built_on = foreign_commit(table, number, built_on, number * 10)
        for number in range(1, 7 if next_to_it else 8):
            storage.delete(layout.snapshot_path(number))
        storage.put(layout.earliest_hint_path, b"7" if next_to_it else b"8")

    leave(table, meanwhile)
    assert 6 in table.context.snapshots.ids(), "the late writer's"
    there = [0, 1, 2, 3, 4, 60, 70, 80]
    assert sorted(ids_of(fresh(table))) == there
    for row in range(10, 14):
        fresh(table).append(rows(row, 1))
        there.append(row)
        assert sorted(ids_of(fresh(table))) == sorted(there)
    drop_hints(table)
    assert sorted(ids_of(fresh(table))) == sorted(there)


def test_a_paused_writer_keeps_no_leftover_that_has_expired(table):
    """Its tag would name files that are gone, and nothing could expire any more."""
    left = _leave_foreign_overwrite(table)
    storage, path = table.context.storage, table.context.layout.snapshot_path(left.id)
    paused = FaultyStorage(
        storage, [run("before", "put_if_absent", lambda _: storage.delete(path), where="tag/*")]
    )
    through(table, paused).append(rows(92, 1))
    assert fresh(table).tags(include_internal=True) == []


def _leave_foreign_overwrite(table):
    left = leave_foreign(table, roll_back(table, to=4))
    fresh(table).append(rows(90, 1))
    changed = replace(left, commit_kind=CommitKind.OVERWRITE)
    table.context.storage.put(table.context.layout.snapshot_path(left.id), changed.to_json())
    return changed


def test_what_another_engine_has_built_on_stays_though_the_late_commit_is_refused(table):
    """The other engine's snapshot names the manifests of the one that is taken back."""

    def roll_back(path):
        roll_back_elsewhere(table, 4)()
        fresh(table).append(rows(10, 1))

    def build(path):
        foreign_commit(table, 7, fresh(table).context.snapshots.find(6), 51)

    faults = [
        run("before", "put_if_absent", roll_back, where="snapshot/snapshot-6"),
        run("before", "put_if_absent", build, where="lineage/removed-*"),
    ]
    late = through(table, FaultyStorage(table.context.storage, faults))
    with pytest.raises(anabranch.CommitConflictError):
        late.overwrite(rows(50, 1), if_unchanged_since=5)
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 10]
    for row in range(11, 16):
        fresh(table).append(rows(row, 1))
    assert ids_of(fresh(table))[:10] == [0, 1, 2, 3, *range(10, 16)]
    assert [p for p in fresh(table).verify().problems if p.severity == "error"] == []
