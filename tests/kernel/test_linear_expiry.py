"""An expiry of much at once costs what goes, and not the square of it."""

import tracemalloc
from collections import Counter

import pytest

from anabranch.kernel.expiry import expire as expiry
from anabranch.kernel.expiry import rounds
from tests.kernel.expiring import expire_to, fill, ids, new_table, through
from tests.support.clock import Clock
from tests.support.forged import forge_history
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of


def forged(count, *, options=None):
    table = new_table(Clock(), **(options or {}))
    fill(table, 1)
    forge_history(table, count)
    return table


def calls_of_expiry(count):
    """The calls of an expiry of half of so many snapshots."""
    watched = through(forged(count))
    done = expire_to(watched, count // 2)
    assert len(done.snapshots) == count + 1 - count // 2
    assert ids(watched)[0] == done.snapshots[-1] + 1
    return Counter(call.name for call in watched.context.storage.calls)


@pytest.mark.long
@pytest.mark.parametrize("size", [400, pytest.param(20_000, marks=pytest.mark.long)])
def test_calls_grow_with_what_goes_and_stays(size, monkeypatch):
    if size < 4_000:
        monkeypatch.setattr(expiry, "_SNAPSHOTS_AT_ONCE", 50)
    once, twice = calls_of_expiry(size), calls_of_expiry(2 * size)
    assert twice.total() <= 2.1 * once.total()
    assert twice["get"] <= 2.1 * once["get"]


def test_snapshots_go_in_batches():
    calls = calls_of_expiry(600)
    assert calls["delete"] <= 10
    assert calls["delete_many"] <= 301 // 64 + 5


@pytest.mark.long
def test_small_rounds_read_nothing_again(monkeypatch):
    """As on a full disk, or where more is deleted than memory holds."""
    at_once = through(forged(450))
    expire_to(at_once, 50)
    monkeypatch.setattr(expiry, "_SNAPSHOTS_AT_ONCE", 50)
    rounds = through(forged(450))
    expire_to(rounds, 50)
    reads = [t.context.storage.counts()["get"] for t in (at_once, rounds)]
    assert reads[1] <= reads[0] + 9 * 20


def test_what_is_deleted_in_parts_is_all_deleted(monkeypatch):
    monkeypatch.setattr(rounds, "_FILES_AT_ONCE", 2)
    table = new_table(Clock())
    fill(table, 12, overwrite=True)
    dry = expire_to(through(table), 2)
    assert dry.snapshots == tuple(range(1, 11))
    assert ids(table) == [11, 12]
    assert ids_of(table) == [12]
    assert stored_paths(table) == reached_paths(table)


def test_a_history_of_appends_expires_without_a_look_into_its_manifests():
    table = new_table(Clock())
    fill(table, 30)
    watched = through(table)
    expire_to(watched, 5)
    reads = [path for name, path in watched.context.storage.calls if name == "get"]
    assert not [path for path in reads if path.startswith("manifest/manifest-") and "list" not in path]


@pytest.mark.long
def test_memory_of_a_long_expiry():
    table = forged(10_000)
    watched = through(table)
    tracemalloc.start()
    expire_to(watched, 5_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120 << 20
