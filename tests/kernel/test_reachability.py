"""What the refs of a table reach, beside the slow way; and what makes it impossible to tell."""

import io
import random
from dataclasses import dataclass, replace

import fastavro
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.manifest import encode_manifest
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.commit.base import Change
from anabranch.kernel.expiry.reachability import Reachability
from anabranch.kernel.expiry.ref_files import RefReader
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import make_table, rows


def reached_names(context, names=None):
    if names is None:
        names = {path.rpartition("/")[2] for path in stored_paths(anabranch.Table(context))}
    return set(Reachability(context, names).now()["file_name"])


def through(table, faults):
    """The table's context through a store with faults, remembering nothing."""
    storage = FaultyStorage(table.context.storage, faults)
    return replace(table.context, storage=storage, cache=MetadataCache())


def copy_branch(table, name, tag):
    """A branch from a tag, as other engines make one."""
    storage = table.context.storage
    snapshot = table.tag(tag).snapshot
    for path in (f"tag/tag-{tag}", *(f"schema/schema-{i}" for i in range(snapshot.schema_id + 1))):
        storage.put(f"branch/branch-{name}/{path}", storage.get(path))
    storage.put(f"branch/branch-{name}/snapshot/snapshot-{snapshot.id}", snapshot.to_json())
    return table.branch(name)


SETTINGS = [
    {},
    {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "8 kb"},
    {"manifest.merge-min-count": "3", "manifest.target-file-size": "3 kb"},
]


@pytest.mark.parametrize("seed", first_short(range(6)))
def test_it_is_what_every_ref_reaches_by_itself(seed):
    """Random histories with files that were deleted and taken in again, on two branches, without any gap left out."""
    rng = random.Random(seed)
    options = {"compaction.min.file-num": "2", **rng.choice(SETTINGS)}
    main = Lake(MemoryStorage()).create_table(
        "db.t", "id BIGINT, p STRING", partition_by=["p"], options=options
    )
    views, storage = [main], main.context.storage
    for step in range(35):
        table = rng.choice(views)
        act = rng.choices(
            ["append", "overwrite", "compact", "rollback", "tag", "savepoint", "branch", "forget"],
            [8, 3, 3, 3, 2, 1, 1, 3],
        )[0]
        ids = [s.id for s in table.snapshots()]
        data = pa.table({"id": [step] * 3, "p": [rng.choice("ab") for _ in range(3)]})
        if act == "append" or not ids:
            table.append(data)
        elif act == "overwrite":
            table.overwrite(data)
        elif act == "compact":
            table.compact(full=True)
        elif act == "rollback":
            table.rollback(rng.choice(ids))
        elif act == "tag":
            table.create_tag(f"t{step}", rng.choice(ids))
        elif act == "savepoint":
            table.create_savepoint(rng.choice(ids))
        elif act == "branch" and len(views) == 1:
            table.create_tag("fork", rng.choice(ids))
            views.append(copy_branch(table, "fix", "fork"))
        elif act == "forget" and len(ids) > 2:  # as an expiry of another engine: no file goes with them
            for number in sorted(ids)[: rng.randrange(1, len(ids) - 1)]:
                storage.delete(table.context.layout.snapshot_path(number))
    stored = {path.rpartition("/")[2]: path for path in stored_paths(main)}
    found = Reachability(main.context, stored).now()
    assert {stored[name] for name in found["file_name"]} == reached_paths(main)
    assert found.height
    assert all(storage.exists(path) for path in found["holder_path"])


@dataclass(frozen=True)
class TakeBack:
    """Adds the files of an earlier snapshot again, as engines do that do not tidy up behind them."""

    snapshot: Snapshot
    depends_on_base = True

    def on(self, base):
        manifests = base.context.manifests
        earlier = manifests.entries(manifests.of_snapshot(self.snapshot)).live().to_entries()
        removed = base.live.with_kind(FileKind.DELETE).to_entries()
        return Change(CommitKind.OVERWRITE, [*removed, *earlier])


@pytest.mark.parametrize("merging", first_short(["2", "30"]))
def test_a_file_may_be_deleted_and_taken_in_again_many_times(merging):
    table = make_table(f"memory://reach-again-{merging}", options={"manifest.merge-min-count": merging})
    first = table.append(rows(0, 2))
    second = table.overwrite(rows(10, 2))
    for snapshot in (first, second, first, second, first):
        table.commit(TakeBack(snapshot))
    layout, storage = table.context.layout, table.context.storage
    for head in range(7, 1, -1):
        stored = {path.rpartition("/")[2]: path for path in stored_paths(table)}
        assert {stored[name] for name in reached_names(table.context, stored)} == reached_paths(table)
        data = [name for name in stored if name.startswith("data-")]
        assert len(reached_names(table.context, data)) == 2
        only_head = [ref for ref in RefReader(table.context).look().refs if ref.name == f"snapshot {head}"]
        assert Reachability(table.context, data).through(only_head).height == 1
        storage.delete(layout.snapshot_path(head))


def test_asked_again_it_reads_only_what_is_new():
    table = make_table("memory://reach-only-new")
    for i in range(5):
        table.append(rows(i, 1))
    context = through(table, [])
    names = [path.rpartition("/")[2] for path in stored_paths(table)]
    reachability = Reachability(context, names)
    before = reachability.now()
    table.append(rows(5, 1))
    context.storage.forget_calls()
    assert reachability.now().sort("file_name").equals(before.sort("file_name"))
    got = [call.path for call in context.storage.calls if call.name == "get"]
    assert len([path for path in got if path.startswith("snapshot/")]) == 1
    assert len([path for path in got if path.startswith("manifest/")]) == 3


def test_what_lies_beside_a_data_file_is_reached_with_it():
    table = make_table("memory://reach-beside")
    table.append(rows(0, 1))
    context = table.context
    manifests = context.manifests.of_snapshot(table.snapshot)
    (entry,) = context.manifests.entries(manifests).to_entries()
    entry = replace(entry, file=replace(entry.file, extra_files=(f"{entry.file.file_name}.index",)))
    context.storage.put(context.layout.manifest_path(manifests[0].file_name), encode_manifest([entry]))
    fresh = replace(context, cache=MetadataCache())
    names = [entry.file.file_name, f"{entry.file.file_name}.index", "another.index"]
    assert reached_names(fresh, names) == set(names[:2])


INDEX_ENTRY = {
    "type": "record",
    "name": "IndexManifestEntry",
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
    ],
}


def edit_snapshot(table, **changes):
    table.context.storage.put(
        table.context.layout.snapshot_path(table.snapshot.id), replace(table.snapshot, **changes).to_json()
    )


def put_index_manifest(table, name, *files):
    records = [
        {"_VERSION": 1, "_KIND": 0, "_INDEX_TYPE": "btree", "_FILE_NAME": file, "_FILE_SIZE": 7}
        for file in files
    ]
    buffer = io.BytesIO()
    fastavro.writer(buffer, INDEX_ENTRY, records)
    table.context.storage.put(table.context.layout.manifest_path(name), buffer.getvalue())


def test_index_files_are_reached_through_their_manifest():
    table = make_table("memory://reach-index")
    table.append(rows(0, 1))
    put_index_manifest(table, "index-manifest-1", "index-1", "index-2")
    edit_snapshot(table, index_manifest="index-manifest-1")
    names = ["index-manifest-1", "index-1", "index-2"]
    assert reached_names(table.context, [*names, "index-3"]) == set(names)


def test_an_index_manifest_that_leads_out_of_the_table_is_refused():
    table = make_table("memory://reach-hostile-index")
    table.append(rows(0, 1))
    put_index_manifest(table, "index-manifest-1", "../snapshot/snapshot-1")
    edit_snapshot(table, index_manifest="index-manifest-1")
    with pytest.raises(CorruptTableError, match="plain file name"):
        reached_names(table.context)


def test_statistics_are_reached():
    table = make_table("memory://reach-statistics")
    table.append(rows(0, 1))
    edit_snapshot(table, statistics="stat-1")
    assert reached_names(table.context, ["stat-1", "stat-2"]) == {"stat-1"}


def test_a_snapshot_that_expires_meanwhile_is_no_error():
    table = make_table("memory://reach-vanishing")
    for i in range(4):
        table.overwrite(rows(i, 1))
    storage, layout = table.context.storage, table.context.layout
    oldest = table.context.snapshots.get(1)

    def expire(path):
        storage.delete(layout.snapshot_path(1))
        storage.delete_many([layout.manifest_path(oldest.delta_manifest_list)])

    context = through(table, [run("before", "get", expire, where="manifest/*")])
    everything = {path.rpartition("/")[2] for path in stored_paths(table)}
    found = reached_names(context, everything)
    assert found == {path.rpartition("/")[2] for path in reached_paths(table)}
    assert found < everything


def test_what_a_vanishing_snapshot_handed_to_a_new_tag_is_not_missed():
    table = make_table("memory://reach-handed-over")
    for i in range(4):
        table.overwrite(rows(i, 1))
    storage, layout = table.context.storage, table.context.layout
    first = table.context.snapshots.get(1)

    def tag_and_expire(path):
        """The second is tagged, then both expire, and what only the first named is deleted."""
        table.create_tag("late", 2)
        for number in (1, 2):
            storage.delete(layout.snapshot_path(number))
        storage.delete(layout.manifest_path(first.delta_manifest_list))

    hook = run("before", "get", tag_and_expire, where=layout.manifest_path(first.delta_manifest_list))
    everything = {path.rpartition("/")[2] for path in stored_paths(table)}
    found = reached_names(through(table, [hook]), everything)
    assert found == {path.rpartition("/")[2] for path in reached_paths(table)}
    assert len([name for name in found if name.startswith("data-")]) == 3


def test_a_tag_that_is_renamed_while_we_look_is_not_missed():
    table = make_table("memory://reach-renamed")
    table.append(rows(0, 1))
    table.create_tag("before")
    table.overwrite(rows(1, 1))
    storage = table.context.storage
    storage.delete(table.context.layout.snapshot_path(1))  # the tag alone holds its files now
    held = [path.rpartition("/")[2] for path in stored_paths(table)]

    def rename(path):
        storage.put("tag/tag-after", storage.get("tag/tag-before"))
        storage.delete("tag/tag-before")

    # Listed under the old name, and gone when it is read.
    context = through(table, [run("before", "get", rename, where="tag/*")])
    refs = RefReader(context).look().refs
    assert [ref.name for ref in refs] == ["snapshot 2"], "one look misses it"
    storage.put("tag/tag-before", storage.get("tag/tag-after"))
    storage.delete("tag/tag-after")
    context = through(table, [run("before", "get", rename, where="tag/*")])
    assert reached_names(context, held) == set(held)


def damage(table):
    """Everything that makes it impossible to tell what is reached, by name."""
    storage, layout = table.context.storage, table.context.layout
    snapshot = table.snapshot
    list_path = layout.manifest_path(snapshot.base_manifest_list)
    (manifest, *_) = table.context.manifests.of_snapshot(snapshot)
    manifest_path = layout.manifest_path(manifest.file_name)
    return {
        "a list is gone": lambda: storage.delete(list_path),
        "a list is cut off": lambda: storage.put(list_path, storage.get(list_path)[:-20]),
        "a manifest is gone": lambda: storage.delete(manifest_path),
        "a manifest is cut off": lambda: storage.put(manifest_path, storage.get(manifest_path)[:-20]),
        "a snapshot is damaged": lambda: storage.put(layout.snapshot_path(snapshot.id), b"{"),
        "a snapshot holds another": lambda: storage.put(layout.snapshot_path(9), snapshot.to_json()),
        "a tag is damaged": lambda: storage.put("tag/tag-x", b"{}"),
        "a savepoint is damaged": lambda: storage.put("savepoint/savepoint-1", b"{}"),
        "a branch has no schema": lambda: storage.put(
            "branch/branch-fix/snapshot/snapshot-3", snapshot.to_json()
        ),
        "a branch is called main": lambda: storage.put("branch/branch-main/schema/schema-0", b"{}"),
    }


@pytest.mark.parametrize(
    "what",
    [
        *("a list is gone", "a list is cut off", "a manifest is gone", "a manifest is cut off"),
        *("a snapshot is damaged", "a snapshot holds another", "a tag is damaged", "a savepoint is damaged"),
        *("a branch has no schema", "a branch is called main"),
    ],
)
def test_what_cannot_be_read_in_full_is_an_error(what):
    table = make_table(f"memory://reach-damaged-{what.replace(' ', '-')}")
    for i in range(3):
        table.append(rows(i, 1))
    names = [path.rpartition("/")[2] for path in stored_paths(table)]
    damage(table)[what]()
    with pytest.raises(CorruptTableError):
        reached_names(replace(table.context, cache=MetadataCache()), names)


def test_a_changelog_of_its_own_is_refused():
    table = make_table("memory://reach-changelog")
    table.append(rows(0, 1))
    table.context.storage.put("changelog/changelog-1", b"{}")
    with pytest.raises(UnsupportedFeatureError, match="changelog"):
        reached_names(table.context)


def test_folders_of_branches_without_refs_do_not_matter():
    table = make_table("memory://reach-empty-branch")
    table.append(rows(0, 1))
    table.context.storage.put("branch/branch-new/FORK", b"{}")  # being made
    table.context.storage.put("branch/MAIN-1", b"{}")
    names = {path.rpartition("/")[2] for path in stored_paths(table)}
    assert reached_names(table.context) == names
