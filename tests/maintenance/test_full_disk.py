"""A disk without a free block can be cleaned."""

import subprocess
from contextlib import suppress
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import StorageError
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import DAY, Clock
from tests.support.faults import FaultyStorage, _no_space
from tests.support.tables import SCHEMA, ids_of, rows

BLOCK = 4096


class SmallDisk(FaultyStorage):
    """A store of so many blocks, of which every file takes at least one."""

    blocks = None

    def _need(self, sizes, path):
        used = sum(-(-info.size // BLOCK) for info in self.inner.list(recursive=True, include_temporary=True))
        if self.blocks is not None and used + sum(-(-size // BLOCK) for size in sizes) > self.blocks:
            _no_space(path)

    def put(self, path, data, *, durable=True):
        self._need([len(data)], path)
        super().put(path, data, durable=durable)

    def put_many(self, objects):
        self._need(map(len, objects.values()), next(iter(objects), ""))
        super().put_many(objects)

    def put_if_absent(self, path, data):
        self._need([len(data)], path)
        return super().put_if_absent(path, data)

    def open_output(self, path):
        self._need([BLOCK], path)
        return super().open_output(path)


def full(table):
    disk = SmallDisk(table.context.storage)
    disk.blocks = sum(
        -(-info.size // BLOCK) for info in disk.inner.list(recursive=True, include_temporary=True)
    )
    return anabranch.Table(replace(table.context, storage=disk, cache=MetadataCache()))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    runtime = Runtime(clock=clock)
    made = Lake(MemoryStorage(runtime=runtime), runtime=runtime).create_table(
        "db.t", SCHEMA, options={"write-only": "true"}
    )
    for i in range(12):
        made.overwrite(rows(i, 1))
    return made


def test_expiry(table):
    disk = full(table)
    with pytest.raises(StorageError):
        disk.overwrite(rows(50, 1))
    done = disk.expire_snapshots(retain_max=3)
    assert done.snapshots == tuple(range(1, 10))
    assert done.removed["data"].files == 9
    assert ids_of(disk) == [11]
    disk.overwrite(rows(50, 1))
    assert ids_of(table.at(13)) == [50]
    assert [commit.id for commit in table.snapshots()] == [13, 12, 11, 10]


def test_expiry_where_tags_hold_all_files_of_the_oldest(table):
    """Their own files are all that the disk gets back for the records of their removal."""
    for number in range(1, 6):
        table.create_tag(f"t{number}", snapshot=number)
    disk = full(table)
    assert disk.expire_snapshots(retain_max=3).left == 3
    assert ids_of(disk) == [11]
    assert [ids_of(disk.at(f"t{number}")) for number in (1, 5)] == [[0], [4]]


def test_expiry_with_a_streaming_ledger_and_a_branch(table):
    table.create_tag("good")
    table.create_branch("fix", "good")
    identity = CommitIdentity("job@1", 1)
    table.commit(table.overwriting([]), identity=identity)
    for i in range(8):
        table.overwrite(rows(20 + i, 1))
    disk = full(table)
    disk.expire_snapshots(retain_max=2)
    assert ids_of(disk) == [27]
    assert ids_of(disk.branch("fix")) == [11]
    assert disk.commit(disk.overwriting([]), identity=identity).repeated, "the ledger was written"
    disk.branch("fix").append(rows(40, 1))


def test_expiry_after_a_rollback_that_was_killed(table):
    """What the rollback left out is put when there is room."""
    table.rollback("snapshot.6")
    storage, folder = table.context.storage, table.context.layout.tag_folder
    (left_out,) = (info.path for info in storage.list(folder) if info.path.endswith("-result"))
    pin = storage.get(left_out)
    storage.delete(left_out)
    disk = full(table)
    assert disk.expire_snapshots(retain_max=3).left == 3
    assert ids_of(disk) == [5]
    assert not storage.exists(left_out)
    table.expire_snapshots(retain_max=2)
    assert storage.get(left_out) == pin


def test_what_cannot_be_cleaned_is_an_error_and_nothing_is_lost(table):
    disk = full(table)
    disk.context.storage.blocks = 0  # others take every block that comes free
    with pytest.raises(StorageError, match="No space left"):
        disk.expire_snapshots(retain_max=3)
    assert len(list(table.snapshots())) == 12
    assert ids_of(table) == [11]
    assert table.expire_snapshots(retain_max=3).left == 3


def test_upkeep_and_orphans(table, clock):
    for i in range(8):
        table.append(rows(60 + i, 1))
    table.context.storage.put("bucket-0/data-x.parquet", b"1" * BLOCK)
    clock.now += 2 * DAY
    disk = full(table)
    done = disk.with_options({"snapshot.num-retained.max": "2"}).maintain()
    assert len(done.expiry.snapshots) > 15
    assert done.cleaning.moved["data"].files == 1
    assert ids_of(disk) == [11, *range(60, 68)]
    clock.now += 2 * DAY
    disk = full(table)
    assert disk.remove_orphan_files().purged.files >= 1


def test_on_a_real_disk(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "small", tmp_path], check=False).returncode:
        pytest.skip("file systems cannot be mounted here; the tests above fill one that is made up")
    try:
        table = anabranch.connect(str(tmp_path)).create_table(
            "db.t", SCHEMA, options={"write-only": "true", "snapshot.num-retained.min": "1"}
        )
        with suppress(StorageError):
            for i in range(1000):
                table.overwrite(rows(i, 1))
        newest = ids_of(table)
        with suppress(OSError), (tmp_path / "others").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(BLOCK))
        with pytest.raises(StorageError):
            table.append(rows(0, 1))
        assert len(table.expire_snapshots(retain_max=2).snapshots) > 2
        assert ids_of(table) == newest
        table.append(rows(5000, 1))
        table.maintain()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
