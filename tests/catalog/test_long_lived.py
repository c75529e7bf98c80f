"""A process that writes for years: its threads, its open files and what it remembers stay as many."""

import gc
import os
import threading
import time

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.log.cache import ENTRY_BYTES, MetadataCache
from anabranch.storage.files import KnownFolders

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def held():
    """Threads and open files of this process, once those that are about to end have ended."""
    found = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        gc.collect()
        found.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        if found[-3:].count(found[-1]) == 3:
            break
        time.sleep(0.1)
    return found[-1]


def commit(warehouse, first, commits):
    table = anabranch.connect(warehouse).table("db.t")
    for number in range(first, first + commits):
        table.append(ROWS)
        if number % 50 == 0:
            assert table.scan().to_arrow().num_rows == number + 1
            table.expire_snapshots(retain_max=20, retain_min=5, older_than="0 s")
        if number % 200 == 0:
            table.compact()


def commits_leave_nothing_behind(tmp_path, commits):
    warehouse = str(tmp_path / "warehouse")
    anabranch.connect(warehouse).create_table("db.t", ROWS.schema)
    commit(warehouse, 0, 60)
    before = held()
    commit(warehouse, 60, commits)
    after = held()
    assert after[0] <= before[0]
    assert after[1] <= before[1]


def tables_leave_nothing_behind(tmp_path, tables):
    warehouse = str(tmp_path / "warehouse")

    def visit(name):
        lake = anabranch.connect(warehouse)
        table = lake.create_table(name, ROWS.schema)
        table.append(ROWS)
        table.create_tag("kept")
        assert lake.table(name).at("kept").scan().to_arrow().num_rows == 1

    for number in range(10):
        visit(f"db.warm{number}")
    before = held()
    for number in range(tables):
        visit(f"db.t{number}")
    after = held()
    assert after[0] <= before[0]
    assert after[1] <= before[1]


@pytest.mark.long
def test_commits_leave_no_threads_and_no_files_open(tmp_path):
    commits_leave_nothing_behind(tmp_path, 60)


@pytest.mark.long
def test_tables_leave_no_threads_and_no_files_open(tmp_path):
    tables_leave_nothing_behind(tmp_path, 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_commits_in_one_process(tmp_path):
    commits_leave_nothing_behind(tmp_path, 10_000)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_thousand_tables_in_one_process(tmp_path):
    tables_leave_nothing_behind(tmp_path, 2_000)


def test_a_cache_of_many_small_values_is_bounded_too():
    """Whether a snapshot is the table's own is remembered for each, in few bytes."""
    cache = MetadataCache(1 << 20, entry=ENTRY_BYTES)
    for number in range(50_000):
        cache.put(("table", str(number)), True, 32)
    assert len(cache) <= (1 << 20) // ENTRY_BYTES
    assert cache.get(("table", "49999"))


def test_folders_that_are_known_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("anabranch.storage.files._MOST_FOLDERS", 20)
    folders = KnownFolders(str(tmp_path))
    for number in range(100):
        folders.ensure(str(tmp_path / "db.db" / f"day={number}"))
    assert len(folders._known) <= 20
    assert len(list((tmp_path / "db.db").iterdir())) == 100
