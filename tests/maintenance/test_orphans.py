"""Cleaning finds what nothing refers to, and only that; what it moved can be brought back until it is purged."""

import json
import time
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pytest
from obstore.store import MemoryStore

import anabranch
from anabranch.cli.main import run as run_command
from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError, NotFoundError, StorageError
from anabranch.kernel.actions.append import Append
from anabranch.kernel.expiry.result import Tally
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.maintenance.orphans import orphan_runs
from anabranch.runtime import Runtime
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.object_options import Clients
from anabranch.storage.objects import ObjectStorage
from tests.support.clock import DAY, Clock
from tests.support.faults import Fault, FaultyStorage, fail, no_space, run
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import make_table


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    """A partitioned table in memory, whose files are as old as the clock says."""
    runtime = Runtime(clock=clock)
    lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
    made = lake.create_table("db.t", "id BIGINT, p STRING, h INT", partition_by=["p", "h"])
    made.append(data(0))
    made.append(data(1))
    return made


def data(*numbers, p="a"):
    return pa.table(
        {"id": [*numbers], "p": [p] * len(numbers), "h": pa.array([7] * len(numbers), pa.int32())}
    )


def ids_of(table):
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def everything(table):
    infos = table.context.storage.list(recursive=True, include_temporary=True)
    return {info.path for info in infos}


def through(table, *faults):
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


ORPHANS = {
    "p=a/h=7/bucket-0/data-1.parquet": "data",
    "p=a/h=7/bucket-0/data-1.parquet.index": "data",
    "p=a/h=7/bucket-0/.data-2.parquet.uuid.tmp": "temporary",
    "p=z/h=1/bucket-3/data-3.orc": "data",
    "manifest/manifest-x-0": "manifest",
    "manifest/manifest-list-x-0": "manifest",
    "manifest/.manifest-y-0.uuid.tmp": "temporary",
    "index/index-x-0": "index",
    "statistics/stat-x-0": "statistics",
    "snapshot/.snapshot-3.uuid.tmp": "temporary",
    "snapshot/snapshot-3-copy": "snapshot",
    "schema/.schema-1.uuid.tmp": "temporary",
    "tag/.tag-x.uuid.tmp": "temporary",
    "consumer/.consumer-x.uuid.tmp": "temporary",
    "savepoint/.savepoint-1.uuid.tmp": "temporary",
    "ledger/.expired-1-2.uuid.tmp": "temporary",
    "branch/.MAIN-1.uuid.tmp": "temporary",
    "branch/branch-b/.FORK.uuid.tmp": "temporary",
    "branch/branch-b/snapshot/.snapshot-1.uuid.tmp": "temporary",
    "branch/branch-b/snapshot/snapshot-leftover": "snapshot",
}
OTHERS = (
    *("README.md", "notes/today.txt", "bucket-0/data-1.parquet", "p=a/readme", "p=a/bucket-0/data-1.parquet"),
    *(
        "p=a/h=7/x=1/bucket-0/data-1.parquet",
        "q=a/h=7/bucket-0/data-1.parquet",
        "p=a/h=7/bucket-x/data-1.parquet",
    ),
    *(
        "schema/notes",
        "consumer/consumer-x.bak",
        "tag/notes",
        "ledger/expired-1-2",
        "savepoint/savepoint-9.deleted",
    ),
    *(
        "branch/SEAL-1",
        "branch/branch-b/FORK",
        "branch/branch-b/MERGE-1.done",
        "branch/notes",
        "manifest/sub/file",
    ),
    *("snapshot/sub/file", ".hidden", ".hidden.tmp", "p=a/h=7/bucket-0/sub/file"),
)


def test_every_kind_of_orphan_is_found_and_nothing_else(table):
    storage = table.context.storage
    before = everything(table)
    storage.put_many(dict.fromkeys(ORPHANS, b"12345"))
    storage.put_many(dict.fromkeys(OTHERS, b"12345"))
    dry = table.remove_orphan_files(older_than="0 s", dry_run=True)
    assert dry.run is None
    assert everything(table) == before | {*ORPHANS, *OTHERS}
    done = table.remove_orphan_files(older_than="0 s")
    assert dict(done.files.select("path", "kind").iter_rows()) == ORPHANS
    assert done.files.equals(dry.files)
    assert done.moved["temporary"] == Tally(11, 55)
    assert done.moved == dry.moved
    moved = {f".orphans/{done.run}/{path}" for path in ORPHANS}
    assert everything(table) == before | {*OTHERS} | moved
    assert ids_of(table) == [0, 1]
    assert table.remove_orphan_files(older_than="0 s").run is None


def test_the_clock_of_a_machine_does_not_make_files_older(table, clock):
    """Whoever cleans up has a clock that is days ahead of the store's, or of which the store's is ahead."""
    table.context.storage.put("manifest/manifest-young", b"1")
    ahead = replace(table.context, runtime=Runtime(clock=Clock(clock.now + 2 * DAY)))
    assert anabranch.Table(ahead).remove_orphan_files().files.is_empty()
    assert anabranch.Table(ahead).remove_orphan_files("1 s").files.is_empty()
    assert anabranch.Table(ahead).expire_snapshots(older_than="1 h", retain_min=1).snapshots == ()
    behind = replace(table.context, runtime=Runtime(clock=Clock(clock.now - 2 * DAY)))
    assert anabranch.Table(behind).remove_orphan_files("1 s").files.is_empty()
    clock.now += DAY
    assert table.remove_orphan_files().files["path"].to_list() == ["manifest/manifest-young"]
    assert [path for path in everything(table) if "clock" in path] == []


def test_a_store_that_takes_nothing_tells_no_time_and_nothing_is_taken_for_older(table, clock):
    """Its newest snapshot was stored at this time at the latest."""
    table.context.storage.put("manifest/manifest-old", b"1")
    clock.now += 2 * DAY
    table.append(data(2))
    table.context.storage.put("manifest/manifest-young", b"1")
    ahead = Runtime(clock=Clock(clock.now + 5 * DAY))
    full = FaultyStorage(table.context.storage, [no_space("put")])
    cleaning = anabranch.Table(replace(table.context, storage=full, runtime=ahead))
    assert cleaning.remove_orphan_files(dry_run=True).files["path"].to_list() == ["manifest/manifest-old"]


def test_what_is_younger_than_a_day_is_spared(table, clock):
    storage = table.context.storage
    storage.put("manifest/manifest-old", b"1")
    clock.now += 1
    storage.put("manifest/manifest-young", b"2")
    clock.now += DAY - 1
    assert table.remove_orphan_files().files["path"].to_list() == ["manifest/manifest-old"]
    clock.now += 1
    assert table.remove_orphan_files("1 h").files["path"].to_list() == ["manifest/manifest-young"]
    with pytest.raises(InvalidInputError, match="neither an age nor a time"):
        table.remove_orphan_files("tomorrow")


def test_moved_files_come_back_or_are_purged_later(table, clock):
    storage = table.context.storage
    storage.put_many({"manifest/manifest-a": b"1", "p=a/h=7/bucket-0/.data.uuid.tmp": b"22"})
    first = table.remove_orphan_files("0 s").run
    clock.now += DAY // 2
    storage.put("manifest/manifest-b", b"333")
    second = table.remove_orphan_files("0 s").run
    assert orphan_runs(table.context) == [second], "nothing was spared: the first run was purged"
    with pytest.raises(NotFoundError, match=str(first)) as missing:
        table.restore_orphan_files(first)
    assert str(second) in missing.value.hint
    assert table.restore_orphan_files(second) == Tally(1, 3)
    assert orphan_runs(table.context) == []
    assert storage.get("manifest/manifest-b") == b"333"

    clock.now += DAY // 2
    third = table.remove_orphan_files("1 h").run
    clock.now += DAY // 2
    assert table.remove_orphan_files("1 d").purged == Tally(0, 0)
    clock.now += DAY // 2
    assert table.remove_orphan_files("1 d", dry_run=True).purged == Tally(1, 3)
    assert orphan_runs(table.context) == [third]
    assert table.remove_orphan_files("1 d").purged == Tally(1, 3)
    assert orphan_runs(table.context) == []
    assert not [path for path in everything(table) if path.startswith(".orphans")]


def test_a_file_that_has_come_back_by_itself_stays_as_it_is(table):
    storage = table.context.storage
    storage.put_many({"manifest/manifest-a": b"old", "manifest/manifest-b": b"old"})
    done = table.remove_orphan_files("0 s")
    storage.put("manifest/manifest-a", b"new")
    assert table.restore_orphan_files(done.run) == Tally(1, 3)
    assert storage.get("manifest/manifest-a") == b"new"
    assert storage.get("manifest/manifest-b") == b"old"
    assert storage.get(f".orphans/{done.run}/manifest/manifest-a") == b"old"


def test_what_is_committed_between_the_listing_and_the_look_at_the_refs_stays(table):
    """With no age to spare, the order alone protects a commit that is under way."""
    messages = table.writer().write(data(5).to_batches())
    committed = []

    def commit(_):
        if not committed:
            committed.append(table.commit(Append(messages)))

    # The listing of the data comes last; then the branches are listed, for their refs.
    slow = through(table, run("before", "list_folders", commit, where="branch", nth=2))
    done = slow.remove_orphan_files("0 s")
    assert committed
    assert done.files.height == 0
    assert ids_of(table) == [0, 1, 5]


def test_files_of_branches_are_not_orphans_until_the_branch_is_gone(table):
    storage = table.context.storage
    snapshot = table.snapshot
    storage.put("branch/branch-fix/schema/schema-0", storage.get("schema/schema-0"))
    storage.put(f"branch/branch-fix/snapshot/snapshot-{snapshot.id}", snapshot.to_json())
    fix = table.branch("fix")
    fix.append(data(9))
    assert table.remove_orphan_files("0 s").files.height == 0
    assert fix.remove_orphan_files("0 s").files.height == 0
    assert ids_of(fix) == [0, 1, 9]
    storage.delete_folder("branch/branch-fix")
    done = table.remove_orphan_files("0 s")
    assert {kind: tally.files for kind, tally in done.moved.items()} == {"data": 1, "manifest": 3}
    assert ids_of(table) == [0, 1]


@pytest.mark.parametrize("what", ["tag", "manifest", "branch"])
def test_where_something_cannot_be_read_nothing_is_moved(table, what):
    storage, layout = table.context.storage, table.context.layout
    (manifest, *_) = table.context.manifests.of_snapshot(table.snapshot)
    storage.put("manifest/manifest-orphan", b"1")
    if what == "tag":
        storage.put("tag/tag-x", b"{")
    elif what == "manifest":
        storage.delete(layout.manifest_path(manifest.file_name))
    else:
        storage.put("branch/branch-x/snapshot/snapshot-1", table.snapshot.to_json())
    before = everything(table)
    with pytest.raises(CorruptTableError):
        through(table).remove_orphan_files("0 s")
    assert everything(table) == before


class Died(BaseException):
    """The process ended."""


def die(_):
    raise Died


READS = ("get", "get_range", "info", "exists", "open_input", "list", "list_folders")


def changes_of(table, work):
    """(name, nth of that name) of every storage call of some work that changes the store.

    To die before a call that changes nothing is to die after the one before it.
    """
    watched = through(table)
    work(watched)
    seen = {}
    for name, _ in watched.context.storage.calls:
        seen[name] = seen.get(name, 0) + 1
        if name not in READS:
            yield name, seen[name]


@pytest.mark.parametrize("work", first_short(["append", "overwrite", "compact", "tag", "savepoint"], 2))
def test_a_killed_writer_leaves_orphans_only_and_cleaning_finds_exactly_these(table, work):
    def change(view):
        match work:
            case "append":
                view.append(data(100, p="b"))
            case "overwrite":
                view.overwrite(data(101))
            case "compact":
                view.compact(full=True)
            case "tag":
                view.create_tag(f"t{len(view.tags())}")
            case "savepoint":
                view.create_savepoint()

    for (name, nth), when in product([*changes_of(table, change)], ["before", "after"]):
        table.append(data(7))
        with suppress(Died):
            change(through(table, run(when, name, die, nth=nth)))
        before = ids_of(table)
        table.remove_orphan_files("0 s")
        assert stored_paths(table) == reached_paths(table)
        assert ids_of(table) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cleaning_that_is_killed_is_finished_by_the_next(table, when):
    storage = table.context.storage
    storage.put_many(dict.fromkeys(["manifest/manifest-x", "p=a/h=7/bucket-0/data-x"], b"1"))
    calls = [*changes_of(table, lambda view: view.remove_orphan_files("0 s"))]
    assert {"move_many", "delete_folder"} & {name for name, _ in calls}
    for number, (name, nth) in enumerate(calls):
        storage.put_many(
            dict.fromkeys([f"manifest/manifest-x{number}", f"p=a/h=7/bucket-0/data-x{number}"], b"1")
        )
        with suppress(Died):
            through(table, run(when, name, die, nth=nth)).remove_orphan_files("0 s")
        assert ids_of(table) == [0, 1]
        table.remove_orphan_files("0 s")
        assert stored_paths(table) == reached_paths(table)


def test_moving_that_fails_is_an_error_and_repeatable(table):
    table.context.storage.put("manifest/manifest-x", b"1")
    with pytest.raises(AnabranchError):
        through(table, fail("move_many")).remove_orphan_files("0 s")
    assert table.context.storage.exists("manifest/manifest-x")
    assert table.remove_orphan_files("0 s").files.height == 1


def test_the_file_that_tells_the_time_is_no_orphan(table):
    """On a store far away nobody waits for its removal, unless files are listed next."""
    slow = Fault("before", "delete", lambda _: time.sleep(0.3))
    storage = FaultyStorage(table.context.storage, [slow], is_far=True)
    done = anabranch.Table(replace(table.context, storage=storage)).remove_orphan_files("0 s")
    assert storage.counts()["delete"]
    assert done.files.height == 0


def bucket_in_memory():
    store = MemoryStore()
    return ObjectStorage(Clients(store, store), url="bucket-in-memory://").scoped("warehouse")


@pytest.mark.parametrize("kind", ["local", "objects"])
def test_on_every_kind_of_store(kind, tmp_path):
    storage = LocalStorage(tmp_path) if kind == "local" else bucket_in_memory()
    table = Lake(storage).create_table("db.t", "id BIGINT, p STRING, h INT", partition_by=["p", "h"])
    table.append(data(1))
    table.context.storage.put_many(dict.fromkeys(ORPHANS, b"12345"))
    done = table.remove_orphan_files("0 s")
    assert set(done.files["path"]) == {*ORPHANS}
    assert stored_paths(table) == reached_paths(table)
    if kind == "local":
        assert not (tmp_path / "db.db/t/p=z").exists()
    table.restore_orphan_files(done.run)
    assert stored_paths(table) > reached_paths(table)
    assert ids_of(table) == [1]


def test_the_listing_of_many_partitions_is_split(monkeypatch, table):
    monkeypatch.setattr("anabranch.maintenance.orphan_listing._FOLDERS_AT_ONCE", 2)
    monkeypatch.setattr("anabranch.maintenance.orphans._FILES_AT_ONCE", 2)
    for p in "bcdef":
        table.append(data(1, p=p))
        table.context.storage.put(f"p={p}/h=7/bucket-0/data-orphan", json.dumps(p).encode())
    done = table.remove_orphan_files("0 s")
    assert sorted(done.files["path"]) == [f"p={p}/h=7/bucket-0/data-orphan" for p in "bcdef"]
    assert stored_paths(table) == reached_paths(table)


def test_linked_folders_are_left_alone_with_all_that_they_lead_to(tmp_path):
    other = make_table(tmp_path / "other", schema="id BIGINT, p STRING, h INT", partition_by=["p", "h"])
    other.append(data(1))
    theirs = {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()}
    table = make_table(tmp_path / "lake", schema="id BIGINT, p STRING, h INT", partition_by=["p", "h"])
    table.append(data(2))
    root, away = tmp_path / "lake/db.db/t", tmp_path / "other/db.db/t"
    (root / "p=x").symlink_to(away / "p=a")
    (root / "p=a/h=8").symlink_to(away / "p=a/h=7")
    (root / "p=a/h=7/bucket-9").symlink_to(away / "p=a/h=7/bucket-0")
    for name in ("index", "statistics"):
        (root / name).symlink_to(away / "manifest")
    done = table.remove_orphan_files("0 s")
    assert done.files.is_empty()
    assert {"p=x", "p=a/h=8", "p=a/h=7/bucket-9", "index", "statistics"} <= {*done.foreign}
    for path in ("p=x/h=7/bucket-0", "p=a/h=7/bucket-9", "index"):
        for name in table.context.storage.list(path):
            for change in (
                table.context.storage.delete,
                lambda found: table.context.storage.move_many({found: "gone"}),
            ):
                with pytest.raises(StorageError, match="leads out"):
                    change(name.path)
        with pytest.raises(StorageError, match="leads out"):
            table.context.storage.delete_folder(f"{path}/sub")
    assert {path: path.read_bytes() for path in theirs} == theirs
    assert ids_of(table) == [2]


def test_files_that_no_engine_of_the_format_wrote_are_left_alone_and_told(tmp_path, capsys):
    table = make_table(tmp_path, schema="id BIGINT, p STRING, h INT", partition_by=["p", "h"])
    table.append(data(1))
    mine = [
        "p=a/h=7/bucket-0/notes.txt",
        "p=a/h=7/bucket-0/part-0.parquet",
        "manifest/README",
        "snapshot/notes",
    ]
    table.context.storage.put_many(dict.fromkeys([*mine, "manifest/manifest-x-0"], b"1"))
    done = table.remove_orphan_files("0 s")
    assert done.files["path"].to_list() == ["manifest/manifest-x-0"]
    assert done.foreign == tuple(sorted(mine))
    assert all(table.context.storage.exists(path) for path in mine)
    assert (
        run_command(["-w", str(tmp_path), "remove-orphan-files", "db.t", "--older-than", "0 s", "--yes"]) == 0
    )
    assert "left alone" in (said := capsys.readouterr().out)
    assert "manifest/README" in said


def _fresh(table):
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


@pytest.mark.parametrize("branch", [None, "fix"])
def test_nothing_is_cleaned_while_the_newest_snapshot_is_missing(table, clock, branch):
    """What only a snapshot reaches that somebody deleted is no orphan: a repair needs it."""
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    for one in (table, table.branch("fix")):
        for row in (2, 3, 4):
            one.append(data(row))
    clock.now += 2 * DAY
    damaged = _fresh(table) if branch is None else _fresh(table).branch("fix")
    damaged.context.storage.delete(damaged.context.layout.snapshot_path(5))
    before = set(table.context.storage.list(recursive=True))
    for clean in (
        _fresh(table).remove_orphan_files,
        lambda: _fresh(table).expire_snapshots(retain_max=2, retain_min=1),
        lambda: _fresh(table).branch("fix").expire_snapshots(retain_max=2, retain_min=1),
    ):
        with pytest.raises(CorruptTableError, match="is not there; the newest that is there is 4"):
            clean()
    assert set(table.context.storage.list(recursive=True)) == before
    clock.now += 2 * DAY
    _fresh(table).repair()
    assert ids_of(_fresh(table) if branch is None else _fresh(table).branch("fix")) == [0, 1, 2, 3, 4]
    assert _fresh(table).remove_orphan_files().purged == Tally()


@pytest.mark.parametrize("count", [0, 2])
def test_all_snapshots_of_a_branch_are_missing(table, clock, count):
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    for row in range(2, 2 + count):
        table.branch("fix").append(data(row))
    clock.now += 2 * DAY
    for number in range(2, 3 + count):
        table.context.storage.delete(f"branch/branch-fix/snapshot/snapshot-{number}")
    with pytest.raises(CorruptTableError, match="is not there; the newest that is there is none"):
        _fresh(table).remove_orphan_files()
    done = _fresh(table).repair()
    assert ids_of(_fresh(table).branch("fix")) == [0, 1, *range(2, 2 + count)], done
    assert [commit.id for commit in _fresh(table).branch("fix").snapshots()] == [*range(2 + count, 1, -1)]
    assert _fresh(table).remove_orphan_files().moved == {}


def test_what_a_branch_lets_go_of_is_needed_by_a_snapshot_of_main_that_is_missing(table):
    table.create_branch("fix", "good", snapshot=table.snapshot.id)
    fix = table.branch("fix")
    fix.append(data(2))
    table.merge_branch("fix")
    for number in (3, 4):
        fix.overwrite(data(number))
    table.context.storage.delete("snapshot/snapshot-3")
    with pytest.raises(CorruptTableError, match="the newest that is there is 2"):
        _fresh(table).branch("fix").expire_snapshots(retain_max=2, retain_min=1)
    _fresh(table).repair()
    assert ids_of(_fresh(table)) == [0, 1, 2]


def test_nothing_is_cleaned_while_main_is_missing(table, clock):
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").append(data(2))
    table.replace_main_branch("fix", force=True)
    clock.now += 2 * DAY
    table.context.storage.delete_folder("branch/branch-fix")
    with pytest.raises(CorruptTableError, match="branch 'fix', which is main, is not there"):
        _fresh(table).remove_orphan_files()
    _fresh(table).repair()
    assert ids_of(_fresh(table)) == [0, 1, 2]
