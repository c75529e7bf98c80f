"""The cache of metadata books what it holds."""

import gc
import tracemalloc
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.log.cache import ENTRY_BYTES, MetadataCache
from tests.kernel.expiring import fill, new_table
from tests.support.clock import Clock


def with_cache(table):
    """The table as a process finds it that has read nothing of it, and its cache."""
    cache = MetadataCache(entry=ENTRY_BYTES)
    return anabranch.Table(replace(table.context, cache=cache)).context, cache


def held_by(work):
    """Bytes of Python objects that stay after some work."""
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held


@pytest.fixture(scope="module")
def table():
    table = new_table(Clock(), **{"manifest.merge-min-count": "1000"})
    fill(table, 60)
    return table


@pytest.mark.long
def test_manifest_lists_are_booked_as_what_they_take(table):
    context, cache = with_cache(table)
    snapshots = [*table.snapshots()]
    held = held_by(lambda: [context.manifests.of_snapshot(s) for s in snapshots] and None)
    assert len(cache) == 2 * len(snapshots)
    assert held <= cache.used <= 2.5 * held, (held, cache.used)


def test_small_manifests_are_kept_as_they_are_stored(table):
    context, cache = with_cache(table)
    metas = context.manifests.of_snapshot(table.snapshot)
    before, entries = cache.used, len(cache)
    context.manifests.entries(metas)
    assert len(cache) == entries + len(metas)
    stored = sum(meta.file_size for meta in metas)
    assert stored + 200 * len(metas) <= cache.used - before <= stored + 1_000 * len(metas)


@pytest.mark.long
def test_a_large_manifest_is_kept_in_one_form_only():
    table = new_table(Clock(), **{"manifest.merge-min-count": "2"})
    rows = pa.table({"id": [*range(1_200)], "p": [f"p{i}" for i in range(1_200)]})
    table.append(rows)
    context, cache = with_cache(table)
    (meta,) = context.manifests.of_snapshot(table.snapshot)
    lists, used = len(cache), cache.used
    names = context.manifests.entries([meta], only=("kind", "file_name")).df
    assert len(cache) == lists + 1
    small = cache.used - used
    every = context.manifests.entries([meta]).df
    assert len(cache) == lists + 1
    assert cache.used - used > small
    assert cache.used - used >= every.estimated_size()
    again = context.manifests.entries([meta], only=("file_name", "kind")).df
    assert again.equals(names.select("file_name", "kind"))
    assert len(cache) == lists + 1


def test_who_goes_through_a_history_keeps_nothing(table):
    context, cache = with_cache(table)
    head = table.snapshot
    metas = context.manifests.read_list(head.base_manifest_list, keep=False)
    context.manifests.entries(metas, keep=False)
    assert len(cache) == 0
