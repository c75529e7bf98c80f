"""A writer that was paused while history moved on must not take a number that history has left."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.manifest_list import encode_manifest_list
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.commit.leftovers import take_over
from anabranch.kernel.log.cache import MetadataCache
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows


def _paused(table, meanwhile):
    """The table as a writer sees it that is overtaken right before it puts its snapshot."""
    fault = run("before", "put_if_absent", lambda path: meanwhile(), where="snapshot/*")
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


def _remove(table, *ids):
    for number in ids:
        table.context.storage.delete(table.context.layout.snapshot_path(number))


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    made.append(rows(0, 1))
    made.append(rows(1, 1))
    return made


def test_a_put_below_the_expired_part_of_history_is_taken_back(table):
    def expire_past_it():
        for i in range(4):
            table.append(rows(10 + i, 1))
        _remove(table, 1, 2, 3, 4)

    snapshot = _paused(table, expire_past_it).append(rows(5, 1))
    assert snapshot.id == 7
    assert ids_of(table) == [0, 1, 5, 10, 11, 12, 13]
    assert [s.id for s in table.snapshots()] == [7, 6, 5]


def test_a_put_right_below_what_is_left_is_taken_back(table):
    def expire_up_to_it():
        for i in range(3):
            table.append(rows(10 + i, 1))
        _remove(table, 1, 2, 3)

    snapshot = _paused(table, expire_up_to_it).append(rows(5, 1))
    assert snapshot.id == 6
    assert ids_of(table) == [0, 1, 5, 10, 11, 12]


def test_a_put_above_a_rolled_back_history_is_taken_back(table):
    snapshot = _paused(table, lambda: _remove(table, 2)).append(rows(5, 1))
    assert snapshot.id == 4, "in the place of what was put, and below it, nothing changes"
    assert [s.delta_record_count for s in table.snapshots()] == [1, 0, 0, 1]
    assert ids_of(table) == [0, 5]


def test_what_it_was_built_on_is_put_again_just_as_it_was(table):
    """A snapshot that only leads history on follows from the one before it, so it is the same after a rollback."""
    take_over(table.context)
    paused = _paused(table, lambda: table.rollback(2, destructive=True, force=True))
    snapshot = paused.append(rows(5, 1))
    fresh = anabranch.Table(replace(table.context, cache=MetadataCache()))
    assert ids_of(fresh) == [0, 1, 5]
    assert fresh.snapshot.id == snapshot.id
    fresh.append(rows(6, 1))
    assert ids_of(fresh) == [0, 1, 5, 6]


def test_the_first_put_of_a_table_can_come_too_late_as_well(tmp_path):
    table = make_table(tmp_path)

    def expire_past_it():
        for i in range(4):
            table.append(rows(10 + i, 1))
        _remove(table, 1, 2)

    snapshot = _paused(table, expire_past_it).append(rows(5, 1))
    assert snapshot.id == 5
    assert ids_of(table) == [5, 10, 11, 12, 13]
    assert [s.id for s in table.snapshots()] == [5, 4, 3]


@pytest.mark.parametrize("before", [0, 2])
def test_a_put_that_others_built_on_and_expired_is_not_repeated_on_a_guess(tmp_path, before):
    """Between our put and our look at it, history went on above it and its snapshot expired."""
    table = make_table(tmp_path)
    for i in range(before):
        table.append(rows(i, 1))

    def go_on(path):
        table.append(rows(10, 1))
        table.append(rows(11, 1))
        _remove(table, *range(1, before + 2))

    late = FaultyStorage(table.context.storage, [run("after", "put_if_absent", go_on, where="snapshot/*")])
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="commit user"):
        anabranch.Table(replace(table.context, storage=late)).append(rows(5, 1))
    assert ids_of(table) == [*range(before), 5, 10, 11]


def test_files_stay_when_what_follows_cannot_be_judged(table):
    """Another engine built on our snapshot, and the list of what it took over is gone: its snapshot does not tell."""

    def go_on(path):
        snapshot = table.append(rows(10, 1))
        theirs = replace(snapshot, properties={}, base_manifest_list="manifest-list-gone")
        table.context.storage.put(table.context.layout.snapshot_path(4), theirs.to_json())
        _remove(table, 1, 2)

    late = FaultyStorage(table.context.storage, [run("after", "put_if_absent", go_on, where="snapshot/*")])
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="does not tell"):
        anabranch.Table(replace(table.context, storage=late)).append(rows(5, 1))
    assert ids_of(table.at(3)) == [0, 1, 5]


def test_a_put_below_another_engines_snapshot_is_taken_back(table):
    """That does not say what it was built on, but its base has not the rows of the late writer."""

    def go_on():
        for i in range(2):
            snapshot = table.append(rows(10 + i, 1))
        theirs = replace(snapshot, properties={})
        table.context.storage.put(table.context.layout.snapshot_path(4), theirs.to_json())
        _remove(table, 1, 2, 3)

    snapshot = _paused(table, go_on).append(rows(5, 1))
    assert snapshot.id == 5
    assert ids_of(table) == [0, 1, 5, 10, 11]


@pytest.mark.parametrize("call", ["list", "get"])
def test_a_store_that_fails_while_the_foothold_is_checked_leaves_the_outcome_open(table, call):
    broken = []

    def act(path):
        _remove(table, 1, 2)
        broken.append(path)

    def fail_then(path):
        if broken:
            raise anabranch.StorageError("the test made it fail")

    storage = FaultyStorage(
        table.context.storage,
        [
            run("after", "put_if_absent", act, where="snapshot/*"),
            run("before", call, fail_then, times=10**6),
        ],
    )
    with pytest.raises(anabranch.CommitOutcomeUnknownError):
        anabranch.Table(replace(table.context, storage=storage)).append(rows(5, 1))
    assert ids_of(table) == [0, 1, 5]


def test_what_a_killed_writer_left_below_history_is_not_taken_for_the_newest(table):
    """It was paused for long, put its snapshot and died before it could take it back."""
    writer = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    writer.append(rows(2, 1))
    left = replace(writer.snapshot, commit_user="killed")
    for i in range(4):
        table.append(rows(10 + i, 1))
    _remove(table, 1, 2, 3, 4, 5)
    table.context.storage.put(table.context.layout.snapshot_path(3), left.to_json())
    assert writer.append(rows(3, 1)).id == 8
    assert ids_of(table) == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize("number", [1, 3])
def test_a_stale_hint_to_what_a_killed_writer_left_does_not_mislead(table, number):
    """Hints are written as far as possible: the last one may be old when its snapshot's number is taken again."""
    for i in range(6):
        table.append(rows(10 + i, 1))
    left = replace(table.context.snapshots.get(number), commit_user="killed")
    _remove(table, 1, 2, 3, 4, 5)
    table.context.storage.put(table.context.layout.snapshot_path(number), left.to_json())
    table.context.storage.put(table.context.layout.latest_hint_path, str(number).encode())
    fresh = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    assert fresh.snapshot.id == 8
    assert fresh.append(rows(5, 1)).id == 9
    assert len(ids_of(fresh)) == 9


def test_a_put_whose_predecessor_expired_afterwards_counts(table):
    snapshot = _paused(table, lambda: _remove(table, 1, 2)).append(rows(5, 1))
    assert snapshot.id == 3
    assert ids_of(table) == [0, 1, 5]


def _built_by_another_engine_on(table, number):
    """A compaction of manifests on top of a snapshot, which names no parent."""
    context = table.context
    below = context.snapshots.get(number)
    lists = {
        "base_manifest_list": encode_manifest_list(
            tuple(context.manifests.of_snapshot(below)), codec="zstandard"
        ),
        "delta_manifest_list": encode_manifest_list((), codec="zstandard"),
    }
    for name, content in lists.items():
        context.storage.put(context.layout.manifest_path(f"manifest-list-{name}"), content)
    made = replace(
        below,
        id=number + 1,
        commit_kind=CommitKind.COMPACT,
        commit_user="another engine",
        properties={},
        delta_record_count=0,
        **{name: f"manifest-list-{name}" for name in lists},
        **{f"{name}_size": len(content) for name, content in lists.items()},
    )
    context.storage.put(context.layout.snapshot_path(made.id), made.to_json())
    context.snapshots.put_hint(made.id)


@pytest.mark.parametrize("is_displaced", [False, True])
def test_what_another_engine_builds_on_a_stray_snapshot_makes_it_no_part_of_history(table, is_displaced):
    """It takes whatever has the highest number for the newest; what our own writers have committed lies below."""

    def rolls_back():  # as another engine does, which says nothing of it
        table.context.snapshots.put_hint(1)
        _remove(table, 2)

    def goes_on(_):
        fresh = anabranch.Table(replace(table.context, cache=MetadataCache()))
        fresh.append(rows(20, 1))
        _built_by_another_engine_on(table, 3)

    def displaces(_):
        anabranch.Table(replace(table.context, cache=MetadataCache())).append(rows(30, 1))

    faults = [
        run("before", "put_if_absent", lambda _: rolls_back(), where="snapshot/*"),
        run("after", "put_if_absent", goes_on, where="snapshot/snapshot-3"),
        *([run("before", "get", displaces, where="snapshot/EARLIEST")] if is_displaced else []),
    ]
    storage = FaultyStorage(table.context.storage, faults)
    anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache())).append(rows(5, 1))
    fresh = anabranch.Table(replace(table.context, cache=MetadataCache()))
    assert ids_of(fresh) == [0, 5, 20, *([30] if is_displaced else [])]
    fresh.append(rows(6, 1))
    assert ids_of(fresh) == [0, 5, 6, 20, *([30] if is_displaced else [])]


def test_a_put_that_another_engine_built_on_does_not_take_back_a_rollback_for_good_to_below_it(table):
    """It was overtaken by one such rollback before its put, and by another before it looked what had become of that."""

    def before(path):
        table.rollback(1, destructive=True)
        table.append(rows(10, 1))

    def after(path):
        _built_by_another_engine_on(table, 3)
        again = anabranch.Table(replace(table.context, cache=MetadataCache()))
        assert again.snapshot.id == 2
        again.rollback(1, destructive=True)

    faults = [
        run(when, "put_if_absent", act, where="snapshot/*")
        for when, act in (("before", before), ("after", after))
    ]
    late = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, faults)))
    late.append(rows(5, 1))
    fresh = anabranch.Table(replace(table.context, cache=MetadataCache()))
    assert ids_of(fresh) == [0, 5], "neither rows that were rolled back for good nor none of ours"
    fresh.append(rows(6, 1))
    assert ids_of(fresh) == [0, 5, 6]
