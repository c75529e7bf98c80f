"""Expiring snapshots: which go, which files go with them, in what order, and what keeps either."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.kernel.actions.append import Append
from anabranch.kernel.cache import MetadataCache
from anabranch.kernel.commit.identity import CommitIdentity
from anabranch.kernel.commit.ledger import find_commit
from anabranch.kernel.expiry.expire import expire
from anabranch.kernel.expiry.retention import Retention
from anabranch.lake import Lake
from anabranch.maintenance.expire import expire_after_commit
from anabranch.runtime import Runtime
from anabranch.spec.refs import Consumer
from anabranch.spec.snapshot import CommitKind, Snapshot
from anabranch.spec.snapshot_ref import SnapshotRef
from anabranch.storage.memory import MemoryStorage
from tests.support.canonical import canonical_rows, digest
from tests.support.faults import FaultyStorage, fail, run
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of, make_table

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 1_700_000_000_000


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: int = START

    def now_millis(self):
        return self.now

    def monotonic(self):
        return self.now / 1000

    def local_offset_millis(self, at_millis):
        return 0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    """A table in memory, its snapshots a minute apart as far as the tests move the clock."""
    return new_table(clock)


def new_table(clock, **options):
    runtime = Runtime(clock=clock)
    lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
    options = {key.replace("_", "-"): value for key, value in options.items()}
    return lake.create_table("db.t", "id BIGINT, p STRING", partition_by=["p"], options=options)


def fill(table, count, *, clock=None, overwrite=False, expires=False):
    """Snapshots of one row each; ids count on from the last snapshot."""
    table = table if expires else table.with_options({"write-only": "true"})
    first = 0 if table.snapshot is None else table.snapshot.id
    for number in range(first + 1, first + count + 1):
        data = pa.table({"id": [number], "p": ["a"]})
        (table.overwrite if overwrite else table.append)(data)
        if clock is not None:
            clock.now += MINUTE


def ids(table):
    return sorted(snapshot.id for snapshot in table.snapshots())


def expire_to(table, at_most):
    """Expire all snapshots but the newest, and do nothing else."""
    return expire(table.context, Retention(at_least=1, at_most=at_most, replaced_before=0))


def through(table, *faults):
    """The table through a store with faults."""
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


# Which snapshots go


def snapshots(*times):
    """Snapshots 1, 2, ... that were made at these times."""
    return [
        Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list="b",
            delta_manifest_list="d",
            commit_user="u",
            commit_identifier=1,
            commit_kind=CommitKind.APPEND,
            time_millis=time,
        )
        for number, time in enumerate(times, 1)
    ]


@pytest.mark.parametrize(
    ("times", "retention", "unread", "expected"),
    [
        ((), {}, None, 0),
        ((1,), {}, None, 0),
        # A snapshot is as old as the one after it is young.
        ((1, 2, 3, 4, 5), {"replaced_before": 3}, None, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 0}, None, 0),
        ((1, 9, 9, 9, 9), {"replaced_before": 8}, None, 0),
        # Two stay in any case.
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, None, 3),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "at_least": 4}, None, 1),
        ((1, 2, 3, 4, 5), {"at_most": 3}, None, 2),
        ((1, 2, 3, 4, 5), {"at_most": 1}, None, 3),
        ((1, 2, 3, 4, 5), {"at_most": 9}, None, 0),
        # Too many go whatever their age, unless they are in their grace.
        ((1, 2, 3, 4, 5), {"at_most": 2, "in_grace_since": 2}, None, 1),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "in_grace_since": 2}, None, 1),
        ((1, 2, 3, 4, 5), {"at_most": 4, "replaced_before": 3}, None, 2),
        # Clocks that went backwards: the first that is too young ends it.
        ((1, 9, 2, 3, 4), {"replaced_before": 5}, None, 0),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "limit": 2}, None, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "limit": 0}, None, 0),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 3, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 1, 0),
        ((1, 2, 3, 4, 5), {"at_most": 2}, 2, 1),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 77, 3),
    ],
)
def test_what_is_due(times, retention, unread, expected):
    chosen = Retention(**{"at_least": 1, "at_most": 10**6, "replaced_before": 0, **retention})
    due = chosen.due(snapshots(*times), unread)
    assert [snapshot.id for snapshot in due] == [*range(1, expected + 1)]


def test_the_newest_ten_stay_and_what_is_younger_than_an_hour(table, clock):
    fill(table, 30, clock=clock)
    clock.now = START + 75 * MINUTE
    done = table.expire_snapshots()
    # Snapshot n + 1, which replaced snapshot n, was made n minutes after the start.
    assert done.snapshots == tuple(range(1, 16))
    assert ids(table) == [*range(16, 31)] == [*range(31 - done.left, 31)]
    clock.now += DAY
    assert table.expire_snapshots().snapshots == tuple(range(16, 21))
    assert ids_of(table) == [*range(1, 31)]


@pytest.mark.parametrize(
    ("options", "how", "left"),
    [
        ({}, {}, 20),
        ({}, {"retain_max": 5}, 5),
        ({}, {"retain_max": 1}, 2),
        ({}, {"retain_max": 5, "retain_min": 3}, 5),
        ({}, {"older_than": "10 min"}, 11),
        ({}, {"older_than": "2 min"}, 10),
        ({}, {"older_than": "2 min", "retain_min": 4}, 4),
        ({}, {"older_than": START + 9 * MINUTE}, 11),
        ({}, {"older_than": "2023-11-14 22:22:20"}, 11),
        ({}, {"older_than": "2 min", "retain_max": 15}, 10),
        ({"snapshot.num-retained.max": "7"}, {}, 7),
        ({"snapshot.num-retained.max": "7", "snapshot.num-retained.min": "3"}, {"older_than": "2 min"}, 3),
        ({"snapshot.num-retained.max": "7"}, {"retain_min": 12}, 12),
        ({"snapshot.time-retained": "5 min"}, {}, 10),
        ({"snapshot.time-retained": "5 min", "snapshot.num-retained.min": "2"}, {}, 6),
        ({"snapshot.num-retained.max": "7", "anabranch.expire-grace": "15 min"}, {}, 16),
        ({"anabranch.expire-grace": "15 min"}, {"retain_max": 2}, 16),
    ],
)
def test_options_and_arguments(clock, options, how, left):
    table = new_table(clock, **options)
    fill(table, 20, clock=clock)
    clock.now -= MINUTE  # when the newest was made
    dry = table.expire_snapshots(**how, dry_run=True)
    assert ids(table) == [*range(1, 21)]
    done = table.expire_snapshots(**how)
    assert ids(table) == [*range(21 - left, 21)]
    assert done.left == left
    assert dry == replace(done, dry_run=True, files=dry.files)
    assert dry.files.equals(done.files)


@pytest.mark.parametrize(
    "how", [{"retain_max": 0}, {"retain_min": 0}, {"retain_max": 3, "retain_min": 5}, {"older_than": "soon"}]
)
def test_arguments_that_mean_nothing(table, how):
    fill(table, 8)
    with pytest.raises(InvalidInputError):
        table.expire_snapshots(**how)
    assert ids(table) == [*range(1, 9)]


def test_a_table_without_snapshots_has_none_to_expire(table):
    assert table.expire_snapshots(retain_max=1).snapshots == ()


# What goes with them


def test_files_that_were_replaced_go_and_nothing_else(table):
    fill(table, 12, overwrite=True)
    fill(table, 3)
    before = stored_paths(table)
    dry = table.expire_snapshots(retain_max=3, dry_run=True)
    assert stored_paths(table) == before
    done = table.expire_snapshots(retain_max=3)
    assert stored_paths(table) == before - set(done.files["path"]) == reached_paths(table)
    assert done.removed["data"].files == 11
    assert done.removed["manifest-list"].files == 2 * 12
    assert done.removed == dry.removed
    assert done.held == {}
    assert ids_of(table) == [12, 13, 14, 15]
    assert done.removed["data"].bytes > 11 * 100


def test_a_file_is_told_once(table):
    fill(table, 8, overwrite=True)
    told = []
    for kept in (6, 5, 2):
        before = stored_paths(table)
        dry = table.expire_snapshots(retain_max=kept, dry_run=True)
        done = table.expire_snapshots(retain_max=kept)
        assert set(done.files["path"]) == set(dry.files["path"]) <= before
        told += done.files["path"].to_list()
    assert len(told) == len(set(told))


def test_tags_and_savepoints_keep_their_files_but_not_their_snapshots(table):
    fill(table, 3, overwrite=True)
    table.create_tag("good", 2)
    fill(table, 3, overwrite=True)
    table.create_savepoint(5)
    fill(table, 6, overwrite=True)
    done = table.expire_snapshots(retain_max=2)
    assert ids(table) == [11, 12]
    assert ids_of(table.at("good")) == [2]
    assert ids_of(table.at("savepoint.1")) == [5]
    assert done.removed["data"].files == 8
    assert done.held.keys() == {"tag 'good'", "savepoint 1", "tag 'anabranch-savepoint-1'"}
    assert done.held["tag 'good'"].files >= 2
    assert stored_paths(table) == reached_paths(table)
    table.delete_tag("good")
    assert table.expire_snapshots(retain_max=2).snapshots == ()
    moved = table.remove_orphan_files(older_than="0 s").moved
    assert moved["data"].files == 1
    assert stored_paths(table) == reached_paths(table)
    assert ids_of(table.at("savepoint.1")) == [5]


def test_a_dry_run_counts_what_only_tags_hold_that_would_go_with_it(table, clock):
    fill(table, 3, overwrite=True)
    table.create_tag("short", 1, retained="1 h")
    table.create_tag("long", 2, retained="1 d")
    fill(table, 5, overwrite=True)
    clock.now += 2 * HOUR
    dry = table.expire_snapshots(retain_max=2, dry_run=True)
    assert table.tags() == ["long", "short"]
    done = table.expire_snapshots(retain_max=2)
    assert table.tags() == ["long"]
    assert dry.tags == done.tags == ("short",)
    assert dry.removed == done.removed
    assert dry.removed["data"].files == 5
    assert set(dry.files["path"]) == set(done.files["path"])
    assert dry.held == done.held
    assert dry.held.keys() == {"tag 'long'"}


def branch_from(table, name, tag):
    """A branch as other engines make it: metadata is copied, files are shared."""
    storage, snapshot = table.context.storage, table.tag(tag).snapshot
    for path in (f"tag/tag-{tag}", "schema/schema-0"):
        storage.put(f"branch/branch-{name}/{path}", storage.get(path))
    storage.put(f"branch/branch-{name}/snapshot/snapshot-{snapshot.id}", snapshot.to_json())
    return table.branch(name)


def test_branches_keep_what_they_share_in_both_directions(table):
    fill(table, 5, overwrite=True)
    table.create_tag("fork", 3)
    fix = branch_from(table, "fix", "fork")
    table.delete_tag("fork")  # other engines would now delete the branch's files
    fix.delete_tag("fork")
    fill(fix, 2)
    fill(table, 5)
    done = table.expire_snapshots(retain_max=2)
    assert ids_of(fix) == [3, 4, 5]
    assert done.held.keys() == {"snapshot 3 of branch 'fix'", "snapshot 4 of branch 'fix'"} & done.held.keys()
    assert done.held
    fill(fix, 4, overwrite=True)
    gone = fix.expire_snapshots(retain_max=2)
    assert gone.snapshots == (3, 4, 5, 6, 7)
    assert ids(fix) == [8, 9]
    assert ids_of(table) == [5, 6, 7, 8, 9, 10]
    assert stored_paths(table) == reached_paths(table)


def test_a_consumer_keeps_what_it_has_not_read_on_its_own_branch(table, clock):
    fill(table, 10)
    table.create_tag("fork", 5)
    fix = branch_from(table, "fix", "fork")
    fill(fix, 4)
    storage, path = table.context.storage, table.context.layout.consumer_path("a name, of others!")
    storage.put(path, Consumer(4).to_json())
    assert table.expire_snapshots(retain_max=2).snapshots == (1, 2, 3)
    assert fix.expire_snapshots(retain_max=2).snapshots == (5, 6, 7)
    storage.put(path, Consumer(8).to_json())
    assert table.expire_snapshots(retain_max=2).snapshots == (4, 5, 6, 7)
    storage.delete(path)
    assert table.expire_snapshots(retain_max=2).snapshots == (8,)


def test_consumers_that_stand_still_expire(clock):
    table = new_table(clock, **{"consumer.expiration-time": "1 h"})
    storage, layout = table.context.storage, table.context.layout
    fill(table, 6)
    storage.put(layout.consumer_path("old"), Consumer(2).to_json())
    clock.now += HOUR
    storage.put(layout.consumer_path("young"), Consumer(4).to_json())
    clock.now += 1
    dry = table.expire_snapshots(retain_max=2, dry_run=True)
    assert (dry.consumers, dry.snapshots) == (("old",), (1, 2, 3))
    assert storage.exists(layout.consumer_path("old"))
    done = table.expire_snapshots(retain_max=2)
    assert (done.consumers, done.snapshots) == (("old",), (1, 2, 3))
    assert not storage.exists(layout.consumer_path("old"))
    assert storage.exists(layout.consumer_path("young"))


def test_a_consumer_that_is_being_written_is_waited_for(table):
    fill(table, 6)
    storage, path = table.context.storage, table.context.layout.consumer_path("c")
    storage.put(path, b"")

    def finish(_):
        storage.put(path, Consumer(3).to_json())

    slow = through(table, run("before", "get", finish, where="consumer/*", nth=3))
    assert slow.expire_snapshots(retain_max=2).snapshots == (1, 2)
    storage.put(path, b"")
    with pytest.raises(CorruptTableError, match="consumer"):
        table.expire_snapshots(retain_max=2)
    assert ids(table) == [3, 4, 5, 6]


def test_emptied_folders_go_unless_somebody_writes_there(tmp_path):
    whole = {"dynamic-partition-overwrite": "false"}
    table = make_table(tmp_path, schema="id BIGINT, p STRING", partition_by=["p"], options=whole)
    for p in "abc":
        table.append(pa.table({"id": [1], "p": [p]}))
    pending = table.writer().write(pa.table({"id": [2], "p": ["c"]}).to_batches())
    table.overwrite(pa.table({"id": [3], "p": ["d"]}))
    table.append(pa.table({"id": [4], "p": ["d"]}))
    table.append(pa.table({"id": [5], "p": ["d"]}))
    folder = Path(tmp_path) / "db.db/t"
    assert {path.name for path in folder.glob("p=*")} == {"p=a", "p=b", "p=c", "p=d"}
    table.expire_snapshots(retain_max=2)
    assert {path.name for path in folder.glob("p=*")} == {"p=c", "p=d"}
    table.commit(Append(pending))
    table.append(pa.table({"id": [6], "p": ["a"]}))
    assert ids_of(table) == [2, 3, 4, 5, 6]


# In what order


def test_ledger_then_snapshots_then_refs_then_files(table):
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
    removed = [path for name, path in calls if name == "delete"]
    assert (
        removed
        == [f"snapshot/snapshot-{i}" for i in done.snapshots]
        == [f"snapshot/snapshot-{i}" for i in range(1, 6)]
    )
    (ledger,), deletions = places["put", "ledger"], places["delete", "snapshot"]
    (hint,) = [place for place, call in enumerate(calls) if call == ("put", "snapshot/EARLIEST")]
    (files,) = [p for p, call in enumerate(calls) if call.name == "delete_many" and call.path > ""]
    assert ledger < min(deletions)
    assert max(deletions) < hint < files
    for folder in ("snapshot", "tag", "savepoint"):
        assert any(hint < place < files for place in places["list", folder])
    assert table.context.storage.get("snapshot/EARLIEST") == b"6"
    floor = SnapshotRef(table.branch_uuid, 0, "")
    assert find_commit(table.context, identity, table.snapshot, floor).snapshot_id == 1


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
        "branch": lambda: storage.put("branch/branch-b/tag/tag-x", head.to_json()),
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


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_storage_call(when, clock):
    whole = new_table(clock)
    fill(whole, 2, overwrite=True)
    whole.create_tag("good", 1)
    fill(whole, 2)
    fill(whole, 3, overwrite=True)
    states = {number: ids_of(whole.at(number)) for number in range(1, 8)}
    calls = [*changes_of(copy_of(whole))]
    assert {"put", "delete", "delete_many"} <= {name for name, _ in calls}
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


@pytest.mark.parametrize("call", ["get", "list", "put", "delete", "delete_many"])
def test_a_store_that_fails_is_an_error_and_the_next_run_goes_on(table, call):
    fill(table, 9, overwrite=True)
    with pytest.raises(StorageError):
        through(table, fail(call)).expire_snapshots(retain_max=4)
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


# In writing jobs


def test_a_job_expires_what_is_due_and_not_more_than_it_may(clock):
    table = new_table(clock, **{"snapshot.expire.limit": "7"})
    context, options = table.context, table.options
    assert expire_after_commit(context, options) is None
    fill(table, 12)
    assert expire_after_commit(context, options) is None, "they are young"
    clock.now += 2 * HOUR
    assert expire_after_commit(context, options).snapshots == (1, 2)
    fill(table, 20)
    assert expire_after_commit(context, options).snapshots == tuple(range(3, 10))
    assert expire_after_commit(context, options).snapshots == (10, 11)
    assert expire_after_commit(context, options) is None
    assert expire_after_commit(context, {**options, "write-only": "true"}) is None
    assert ids_of(table) == [*range(1, 33)]


def test_a_job_asks_little_while_nothing_is_due(table, clock):
    fill(table, 60)
    for expected in (None, None):
        watched = through(table)
        assert expire_after_commit(watched.context, watched.options) is expected
        assert len(watched.context.storage.calls) <= 11
    clock.now += 2 * HOUR
    table.context.storage.put(table.context.layout.consumer_path("c"), Consumer(1).to_json())
    watched = through(table)
    assert expire_after_commit(watched.context, watched.options) is None, "a consumer holds all of it"
    assert len(watched.context.storage.calls) <= 15


def test_where_many_are_kept_a_job_waits_until_it_is_worth_it(clock):
    table = new_table(clock, **{"snapshot.num-retained.max": "60"})
    fill(table, 58)
    expired = []
    for _ in range(10):
        fill(table, 1)
        done = expire_after_commit(table.context, table.options)
        expired.append(0 if done is None else len(done.snapshots))
        assert len(ids(table)) <= 63
    assert expired == [0, 0, 0, 0, 3, 0, 0, 3, 0, 0]


# Tables of other engines

DATA = Path(__file__).parent.parent / "data" / "paimon"


@pytest.mark.parametrize(
    "path", sorted(DATA.glob("*/*/expected/case.json")), ids=lambda p: p.parent.parent.name
)
def test_tables_of_other_engines_keep_everything_that_stays_readable(path, tmp_path):
    case = json.loads(path.read_text())
    shutil.copytree(path.parent.parent / "warehouse", tmp_path / "warehouse")
    table = anabranch.connect(str(tmp_path / "warehouse")).table(case["table"])
    for view in (table, *map(table.branch, table.branches())):
        try:
            view.expire_snapshots(retain_max=2)
        except UnsupportedFeatureError:
            return
    table.remove_orphan_files(older_than="0 s")
    checked = 0
    for state in case["states"]:
        select = state["select"]
        view = table.branch(select["branch"]) if "branch" in select else table
        if "snapshot" in select and not view.context.snapshots.find(select["snapshot"]):
            continue
        if "snapshot" in select:
            view = view.at(select["snapshot"])
        if "tag" in select:
            view = view.with_options({"scan.tag-name": select["tag"]})
        found = canonical_rows(view.scan().to_arrow(), view.schema.fields)
        assert digest([f.name for f in view.schema.fields], found) == state["sha256"]
        checked += 1
    assert checked
    assert stored_paths(table) == reached_paths(table)
    for view in (table, *map(table.branch, table.branches())):
        assert len([*view.snapshots()]) <= 2


EXPIRING = {"snapshot.num-retained.min": "5", "snapshot.time-retained": "30 min"}


def test_appending_expires_now_and_then_and_write_only_never(clock):
    table = new_table(clock, **EXPIRING)
    fill(table, 100, clock=clock, expires=True)
    kept = [snapshot.id for snapshot in table.snapshots()]
    assert kept[0] == 100
    assert 30 <= len(kept) <= 52
    writing = new_table(clock, **EXPIRING, write_only="true")
    fill(writing, 100, clock=clock, expires=True)
    assert len([*writing.snapshots()]) == 100
    assert ids_of(table) == ids_of(writing) == list(range(1, 101))


def test_jobs_let_go_of_pins_as_expiry_by_hand_does(clock):
    table = new_table(clock, **EXPIRING)
    fill(table, 3, clock=clock, overwrite=True)
    table.rollback(1)  # pins what comes back
    make_savepoint_that_dies(table)
    assert len(table.tags(include_internal=True)) == 3
    clock.now += 2 * DAY
    fill(table, 100, clock=clock, expires=True)
    assert table.tags(include_internal=True) == []
    table.remove_orphan_files("0 s")
    assert stored_paths(table) == reached_paths(table)


def make_savepoint_that_dies(table):
    """It leaves the pin that held its snapshot."""

    class Died(BaseException):
        pass

    def die(_):
        raise Died

    with pytest.raises(Died):
        through(table, run("before", "put_if_absent", die)).create_savepoint()


def test_an_append_is_acknowledged_although_expiring_fails(clock, caplog):
    table = new_table(clock, **EXPIRING)
    fill(table, 79, clock=clock, expires=True)
    table.context.storage.put(table.context.layout.tag_path("bad"), b"{")
    fill(table, 1, clock=clock, expires=True)
    assert ids_of(table) == list(range(1, 81))
    assert "not expired" in caplog.text
