"""In what order an expiry works, so that it may die, fail or meet others at any moment."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.kernel.expiry import snapshot_removal
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.ledger import find_commit
from anabranch.storage.memory import MemoryStorage
from tests.kernel.expiring import expire_to, fill, ids, new_table, through
from tests.kernel.leaving import roll_back_elsewhere
from tests.support.clock import DAY, HOUR, MINUTE, Clock
from tests.support.faults import fail, run
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return new_table(clock)


# In what order


def test_ledger_then_snapshots_then_refs_then_files(table, monkeypatch):
    monkeypatch.setattr(snapshot_removal, "_REMOVED_AT_ONCE", 2)
    identity = CommitIdentity("job@1", 1)
    table.commit(table.overwriting([]), identity=identity)
    fill(table, 6, overwrite=True)
    table.create_tag("good", 3)
    watched = through(table)
    done = watched.expire_snapshots(retain_max=2)
    calls = watched.context.storage.calls
    places = {}
    for place, (name, path) in enumerate(calls):
        places.setdefault((name, path.partition("/")[0]), []).append(place)
    assert done.snapshots == tuple(range(1, 6))
    removed = [path for name, path in calls if name == "delete_many" and path.startswith("snapshot/")]
    assert removed == ["snapshot/snapshot-1", "snapshot/snapshot-3", "snapshot/snapshot-5"]
    (mark, ledger), deletions = places["put", "ledger"], places["delete_many", "snapshot"]
    (hint,) = [place for place, call in enumerate(calls) if call == ("put", "snapshot/EARLIEST")]
    (files,) = [
        p for p, call in enumerate(calls) if call.name == "delete_many" and p > hint and call.path > ""
    ]
    assert mark < ledger < min(deletions)
    assert max(deletions) < hint < files
    for folder in ("snapshot", "tag", "savepoint"):
        assert any(max(deletions) < place < files for place in places["list", folder])
    assert table.context.storage.get("snapshot/EARLIEST") == b"6"
    floor = SnapshotRef(table.branch_uuid, 0, "")
    assert find_commit(table.context, identity, table.snapshot, floor).snapshot_id == 1


@pytest.mark.long
def test_the_ledger_stays_small(clock):
    table = new_table(clock, **{"sink.ledger.time-retained": "2 min"})
    floor = SnapshotRef(table.branch_uuid, 0, "")
    for number in range(40):
        table.commit(table.overwriting([]), identity=CommitIdentity("job@1", number))
        clock.now += MINUTE
        if number > 2:
            table.expire_snapshots(retain_max=2)
        assert len([*table.context.storage.list("ledger")]) <= 17
    head = table.snapshot
    recent = replace(floor, id=36)
    assert find_commit(table.context, CommitIdentity("job@1", 39), head, recent) == head
    with pytest.raises(CommitOutcomeUnknownError):
        find_commit(table.context, CommitIdentity("job@2", 0), head, floor)


def unreadable(table):
    """What stays and cannot be read, by name."""
    storage, layout = table.context.storage, table.context.layout
    head = table.snapshot
    (manifest, *_) = table.context.manifests.of_snapshot(head)
    return {
        "list": lambda: storage.delete(layout.manifest_path(head.base_manifest_list)),
        "manifest": lambda: storage.delete(layout.manifest_path(manifest.file_name)),
        "tag": lambda: storage.put("tag/tag-x", b"nonsense"),
        "branch": lambda: storage.put("branch/branch-b/snapshot/snapshot-1", head.to_json()),
    }


@pytest.mark.parametrize("what", ["list", "manifest", "tag", "branch"])
def test_where_something_that_stays_cannot_be_read_nothing_is_changed(table, what):
    fill(table, 6, overwrite=True)
    unreadable(table)[what]()
    before = {info.path for info in table.context.storage.list(recursive=True)}
    fresh = through(table)
    for dry_run in (True, False):
        with pytest.raises(CorruptTableError):
            fresh.expire_snapshots(retain_max=2, dry_run=dry_run)
    assert {info.path for info in table.context.storage.list(recursive=True)} == before


def test_damage_in_what_goes_does_not_keep_it(table):
    fill(table, 8, overwrite=True)
    storage, layout = table.context.storage, table.context.layout
    second, third = (table.context.snapshots.get(i) for i in (2, 3))
    storage.delete(layout.manifest_path(second.base_manifest_list))
    storage.put(layout.manifest_path(third.delta_manifest_list), b"nonsense")
    done = through(table).expire_snapshots(retain_max=2)
    assert ids(table) == [7, 8]
    assert done.unreadable == 2
    assert ids_of(table) == [8]
    assert stored_paths(table) > reached_paths(table), "what only the damaged lists named is left"
    table.remove_orphan_files(older_than="0 s")
    assert stored_paths(table) == reached_paths(table)


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"changelog.time-retained": "1 d"}, "decoupled-changelog"),
        ({"data-file.external-paths": "s3://elsewhere"}, "external-paths"),
        ({"deletion-vectors.enabled": "true"}, "deletion-vectors"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_is_done(table, options, feature):
    fill(table, 6, overwrite=True)
    storage, path = table.context.storage, table.context.layout.schema_path(0)
    schema = json.loads(storage.get(path))
    storage.put(path, json.dumps({**schema, "options": {**schema["options"], **options}}).encode())
    fresh = anabranch.Table(replace(table.context))
    with pytest.raises(UnsupportedFeatureError) as refused:
        fresh.expire_snapshots(retain_max=2)
    assert refused.value.feature == feature
    assert len([*storage.list("snapshot")]) == 7


# Others at the same time


def copy_of(table):
    """The table as it is now, in a store of its own."""
    storage = MemoryStorage(runtime=table.context.runtime)
    for info in table.context.storage.list(recursive=True):
        storage.put(info.path, table.context.storage.get(info.path))
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


CALLS = ("get", "list", "list_folders", "exists", "put", "delete", "delete_many")


def interrupted_at(table, place, action):
    """The table, with `action` coming in between before the call of that number."""
    begun = []

    def act(_):
        begun.append(None)
        if len(begun) == place:
            action()

    return through(table, *(run("before", call, act, times=10**9) for call in CALLS)), begun


EVERY_THIRD_CALL_OR_EVERY = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])


@EVERY_THIRD_CALL_OR_EVERY
def test_a_tag_that_is_made_while_its_snapshot_goes_is_whole_or_fails(clock, step):
    """Between two calls of an expiry somebody tags the snapshot that goes next."""
    whole = new_table(clock)
    fill(whole, 5, overwrite=True)
    made, place, calls = 0, 1, [None]
    while place <= len(calls):
        table = copy_of(whole)

        def tag(table=table):
            nonlocal made
            try:
                table.create_tag("late", 2)
                made += 1
            except NotFoundError:
                pass

        slow, calls = interrupted_at(table, place, tag)
        expire_to(slow, 2)
        for name in table.tags():
            assert ids_of(table.at(name)) == [2]
        assert stored_paths(table) == reached_paths(table)
        place += step
    assert 0 < made < len(calls)


def watch(table, **how):
    """The storage calls of one expiry."""
    watched = through(table)
    expire_to(watched, **how)
    return watched.context.storage.calls


def test_a_rollback_meanwhile_ends_it(table):
    fill(table, 10, overwrite=True)
    storage, layout = table.context.storage, table.context.layout

    def roll_back(_):
        for number in range(10, 4, -1):
            storage.delete(layout.snapshot_path(number))

    caught = through(table, run("before", "put", roll_back, where="ledger/*"))
    with pytest.raises(CommitConflictError, match="rolled back"):
        caught.expire_snapshots(retain_max=3)
    assert ids(table) == [1, 2, 3, 4]
    assert ids_of(table) == [4]


@EVERY_THIRD_CALL_OR_EVERY
def test_two_expiries_meet(clock, step):
    """One does all of its work between two calls of the other."""
    whole = new_table(clock)
    fill(whole, 6, overwrite=True)
    place, calls = 1, [None]
    while place <= len(calls):
        table = copy_of(whole)
        slow, calls = interrupted_at(table, place, lambda table=table: expire_to(table, 2))
        expire_to(slow, 3)
        assert ids(table) == [5, 6]
        assert len([*table.context.storage.list("snapshot")]) == 4
        assert ids_of(table) == [6]
        assert stored_paths(table) == reached_paths(table)
        place += step


@pytest.mark.parametrize("work", ["append", "overwrite"])
def test_a_commit_whose_base_expires_while_it_is_read_is_built_on_the_next(table, work):
    """Others were so fast that what it was built on expires before it has been read in full."""
    fill(table, 3, overwrite=True)
    data, done = pa.table({"id": [99], "p": ["b"]}), []

    def overtake(_):
        if not done:
            done.append(None)
            fill(table, 3, overwrite=True)
            expire_to(table, 2)

    slow = through(table, run("before", "get", overtake, where="manifest/*"))
    getattr(slow, work)(data)
    assert done
    assert ids(table) == [5, 6, 7]
    assert ids_of(table) == [6, 99]


def test_a_writer_of_a_queue_whose_last_look_has_expired_looks_again(clock):
    table = new_table(clock, bucket="1")
    fill(table, 2)
    overtaken = []

    def overtake(path):
        if path == overtaken[-1]:
            fill(table, 1)
            expire_to(table, 2)

    slow = through(table, run("before", "get", overtake, where="manifest/*", times=10**9))
    overtaken.append(None)
    slow.append(pa.table({"id": [3], "p": ["a"]}))  # it knows where the queue ends now
    fill(table, 3)
    between = table.context.snapshots.get(5)
    overtaken.append(table.context.layout.manifest_path(between.delta_manifest_list))
    slow.append(pa.table({"id": [8], "p": ["a"]}))
    assert ids(table) == [6, 7, 8]
    assert table.scan().to_arrow()["id"].to_pylist() == [*range(1, 9)]


class Died(BaseException):
    """The process ended."""


def die(_):
    raise Died


def changes_of(table):
    """(name, nth of that name) of every call of the next expiry that changes the store, and of the last that does not.

    To die before a call that changes nothing is to die after the one before it.
    """
    seen = {}
    for name, _ in watch(table, at_most=3):
        seen[name] = seen.get(name, 0) + 1
        if name in ("put", "delete", "delete_many"):
            yield name, seen[name]
    yield "list", seen["list"]


@pytest.mark.parametrize("when", first_short(["before", "after"]))
def test_killed_at_every_storage_call(when, clock):
    whole = new_table(clock)
    fill(whole, 2, overwrite=True)
    whole.create_tag("good", 1)
    fill(whole, 2)
    fill(whole, 3, overwrite=True)
    states = {number: ids_of(whole.at(number)) for number in range(1, 8)}
    calls = [*changes_of(copy_of(whole))]
    assert {"put", "delete_many"} <= {name for name, _ in calls}
    killed = 0
    for name, nth in calls:
        table = copy_of(whole)
        try:
            expire_to(through(table, run(when, name, die, nth=nth)), 3)
        except Died:
            killed += 1
        left = ids(table)
        assert left == [*range(left[0], 8)], "history has no gap"
        for number in {left[0], left[-1]}:
            assert ids_of(table.at(number)) == states[number]
        assert ids_of(table.at("good")) == [1]
        table.append(pa.table({"id": [99], "p": ["b"]}))
        expire_to(table, 3)
        table.remove_orphan_files(older_than="0 s")
        assert ids(table) == [6, 7, 8]
        assert ids_of(table) == [7, 99]
        assert ids_of(table.at("good")) == [1]
        assert stored_paths(table) == reached_paths(table)
    assert killed == len(calls)


@pytest.mark.parametrize("call", ["get", "list", "put", "delete_many"])
def test_a_store_that_fails_is_an_error_and_the_next_run_goes_on(table, call):
    fill(table, 9, overwrite=True)
    nth = 2 if call == "put" else 1  # the first asks for the store's time, which may fail
    with pytest.raises(StorageError):
        through(table, fail(call, nth=nth)).expire_snapshots(retain_max=4)
    table.expire_snapshots(retain_max=4)
    table.remove_orphan_files(older_than="0 s")
    assert ids(table) == [6, 7, 8, 9]
    assert ids_of(table) == [9]
    assert stored_paths(table) == reached_paths(table)


# What lies beside history


def test_what_a_late_writer_left_below_history_is_removed_when_it_is_old(table, clock):
    fill(table, 3)
    late = table.context.snapshots.get(2)
    fill(table, 4)
    table.expire_snapshots(retain_max=4)
    assert ids(table) == [4, 5, 6, 7]
    path = table.context.layout.snapshot_path(2)
    table.context.storage.put(path, late.to_json())
    clock.now += HOUR
    table.expire_snapshots(retain_max=3)
    assert table.context.storage.exists(path), "a writer may be about to take it back"
    clock.now += DAY
    table.expire_snapshots(retain_max=3, dry_run=True)
    assert table.context.storage.exists(path)
    table.expire_snapshots(retain_max=3)
    assert not table.context.storage.exists(path)
    assert ids_of(table) == [*range(1, 8)]


def test_what_a_late_writer_left_above_history_does_not_count_as_history(table):
    fill(table, 12)
    storage, layout = table.context.storage, table.context.layout
    late = replace(table.snapshot, id=14)
    storage.put(layout.snapshot_path(14), late.to_json())
    assert table.snapshot.id == 12
    assert table.expire_snapshots(retain_max=3).snapshots == tuple(range(1, 10))
    assert ids(table) == [10, 11, 12]
    assert ids_of(table) == [*range(1, 13)]


@pytest.mark.parametrize(
    ("to", "seen", "at_once"),
    first_short(
        [
            (5, "", 1),
            (7, "snapshot/snapshot-1", 1),
            (7, "snapshot/snapshot-7", 1),
            (3, "", 1),
            (7, "snapshot/snapshot-1", 64),
            (7, "snapshot/snapshot-5", 4),
        ],
        2,
    ),
)
def test_a_rollback_for_good_while_an_expiry_is_paused_leaves_what_it_goes_to(
    table, to, seen, at_once, monkeypatch
):
    """The expiry took the target for old. Whichever of both comes second sees to it that it stays.

    Once it removes snapshots, only other engines begin a rollback: ours is refused.
    """
    monkeypatch.setattr(snapshot_removal, "_REMOVED_AT_ONCE", at_once)
    fill(table, 10, overwrite=True)
    wanted = ids_of(table.at(to))

    def roll_back(_):
        if not seen:
            through(table).rollback(to, destructive=True)
            return
        with pytest.raises(CommitConflictError, match=f"EXPIRY_UNDERWAY.* from {to} on are expiring"):
            through(table).rollback(to, destructive=True)
        roll_back_elsewhere(table, to)()

    fault = (
        run("before", "delete_many", roll_back, where=seen)
        if seen
        else run("before", "put", roll_back, where="ledger/*")
    )
    with pytest.raises(CommitConflictError, match="rolled back"):
        through(table, fault).expire_snapshots(retain_max=3)
    left = through(table)
    assert (left.snapshot.id, ids_of(left)) == (to, wanted)
    assert left.tags(include_internal=True) == []
    left.append(pa.Table.from_pylist([{"id": 77}], schema=left.writer().schema))
    assert left.verify().problems == ()


@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("to", [1, 5, 6])
def test_nobody_rolls_back_for_good_below_what_is_expiring(table, to, at_once, monkeypatch):
    """What is appended afterwards would have the number of a snapshot that is removed by its number."""
    monkeypatch.setattr(snapshot_removal, "_REMOVED_AT_ONCE", at_once)
    fill(table, 10)
    refused = []

    def roll_back(_):
        with pytest.raises(CommitConflictError, match=f"EXPIRY_UNDERWAY.* from {to} on are expiring"):
            through(table).rollback(to, destructive=True)
        refused.append(to)

    fault = run("before", "delete_many", roll_back, where="snapshot/snapshot-1")
    assert through(table, fault).expire_snapshots(retain_max=3).snapshots == tuple(range(1, 8))
    left = through(table)
    assert (refused, ids(left), left.tags(include_internal=True)) == ([to], [8, 9, 10], [])


def test_nobody_begins_anew_while_an_expiry_puts_back_what_a_rollback_for_good_went_to(table):
    """The number of the target had been removed by an earlier rollback, which seemed to say why it was gone."""
    fill(table, 9)
    table.rollback(3, destructive=True)
    fill(table, 7)
    wanted, refused = ids_of(table.at(8)), []

    def roll_back(_):
        roll_back_elsewhere(table, 8)()

    def append(_):
        with pytest.raises(
            CorruptTableError, match="the newest snapshot is 8 by the hint, but it is not there"
        ):
            fill(through(table), 1)
        refused.append(True)

    at = {"where": "snapshot/snapshot-*"}
    faults = (run("before", "delete_many", roll_back, **at), run("after", "delete_many", append, **at))
    with pytest.raises(CommitConflictError, match="rolled back"):
        through(table, *faults).expire_snapshots(retain_max=2)
    left = through(table)
    assert refused
    assert (left.snapshot.id, ids_of(left)) == (8, wanted)
    fill(left, 1)
    assert ids(left) == [*range(1, 10)]


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.long)])
def test_an_expiry_meets_a_rollback_for_good_at_any_moment(clock, step):
    """The other way about: the expiry happens while the rollback is paused."""
    for place in range(1, 200, step):
        table = new_table(clock)
        fill(table, 10, overwrite=True)
        wanted = ids_of(table.at(5))

        def expire(table=table):
            through(table).expire_snapshots(retain_max=2)

        watched, begun = interrupted_at(table, place, expire)
        try:
            watched.rollback(5, destructive=True)
        except (CommitConflictError, CorruptTableError, NotFoundError):
            assert ids(through(table)) == [9, 10], place
        else:
            left = through(table)
            assert (left.snapshot.id, ids_of(left)) == (5, wanted), place
            assert left.verify().problems == (), place
        if len(begun) < place:
            break
    assert 20 < place < 190
