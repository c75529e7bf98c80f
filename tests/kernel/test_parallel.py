"""Requests side by side: how many threads they take, within each other too."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from anabranch.kernel.log.parallel import each
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, run


def test_requests_within_requests_take_a_bounded_number_of_threads():
    """Containers allow a process some thousand threads."""
    far = FaultyStorage(MemoryStorage(), is_far=True)
    before, most = threading.active_count(), 0

    def ask(depth):
        nonlocal most
        if depth:
            each(ask, [depth - 1] * 20, at=far)
        most = max(most, threading.active_count())
        time.sleep(0.001)

    each(ask, [2] * 64, at=far)
    assert most - before <= 64 + 64 * 4 + 64 * 4 * 1


def test_many_requests_are_made_at_once():
    far = FaultyStorage(MemoryStorage(), is_far=True)
    together = threading.Barrier(64, timeout=30)
    assert len(each(lambda _: together.wait(), range(64), at=far)) == 64


def test_threads_that_look_for_the_newest_schema_at_once_find_it():
    lake = Lake(MemoryStorage())
    lake.create_table("db.t", "id BIGINT")

    def slowly(path):
        time.sleep(0.02)

    storage = FaultyStorage(lake.table("db.t").context.storage, [run("after", "exists", slowly, times=1_000)])
    for number in range(5):
        table = lake.table("db.t")
        schemas = replace(table.context, storage=storage).schemas
        schemas.latest()
        table.alter().add_column(f"c{number}", "INT").apply()
        with ThreadPoolExecutor(4) as pool:
            found = [*pool.map(lambda _, log=schemas: log.latest().id, range(4))]
        assert found == [number + 1] * 4
