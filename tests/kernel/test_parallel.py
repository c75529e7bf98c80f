"""Requests side by side: how many threads they take, within each other too."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from anabranch.kernel.log.parallel import each, together
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, run


@pytest.mark.long
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
    all_of_them = threading.Barrier(64, timeout=30)
    assert len(each(lambda _: all_of_them.wait(), range(64), at=far)) == 64


def test_works_are_done_side_by_side_on_a_far_store_and_have_ended_when_one_failed():
    far = FaultyStorage(MemoryStorage(), is_far=True)
    both, done = threading.Barrier(2, timeout=30), []

    def fail():
        both.wait()
        raise RuntimeError("first")

    def go_on():
        both.wait()
        time.sleep(0.05)
        done.append("written")
        raise RuntimeError("second")

    with pytest.raises(RuntimeError, match="first"):
        together(fail, go_on, at=far)
    assert done == ["written"]


def test_works_on_a_near_store_are_done_in_order_until_one_fails():
    done = []

    def fail():
        raise RuntimeError("second")

    with pytest.raises(RuntimeError, match="second"):
        together(lambda: done.append(1), fail, lambda: done.append(3), at=MemoryStorage())
    assert done == [1]


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


def test_ctrl_c_ends_the_first_of_works_side_by_side_and_waits_for_the_others():
    """A copy of a long history would go on to its end, or beside whoever had been told that it was over."""
    far = FaultyStorage(MemoryStorage(), is_far=True)
    done, main = [], threading.get_ident()

    def first():
        assert threading.get_ident() == main, "who gets the signal"
        time.sleep(0.05)
        raise KeyboardInterrupt

    def other():
        time.sleep(0.2)
        done.append("other")

    with pytest.raises(KeyboardInterrupt):
        together(first, other, at=far)
    assert done == ["other"]
