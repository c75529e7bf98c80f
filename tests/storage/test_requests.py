"""Accounts of what is asked of a store."""

import time

import pytest

import anabranch
from anabranch.errors import NotFoundError
from anabranch.kernel.log.parallel import each
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.requests import request, requests


def counted(work):
    with requests() as asked:
        work()
    return dict(asked.counts)


def test_each_request_is_counted_once_by_its_kind(storage):
    assert counted(lambda: storage.put("a/x", b"12345")) == {"write": 1}
    assert counted(lambda: storage.put_many({"a/y": b"1", "a/z": b"22", "b/z": b"3"})) == {"write": 3}
    assert counted(lambda: storage.put_if_absent("a/once", b"7")) == {"decide": 1}
    assert counted(lambda: storage.get("a/x")) == {"read": 1}
    assert counted(lambda: storage.get_range("a/x", 1, 2)) == {"read": 1}
    assert counted(lambda: storage.exists("a/x")) == {"look": 1}
    assert counted(lambda: storage.exists("a/none")) == {"look": 1}
    assert counted(lambda: storage.info("a/x")) == {"look": 1}
    assert counted(lambda: [*storage.list("a")]) == {"list": 1}
    assert counted(lambda: [*storage.list_folders("")]) == {"list": 1}
    assert counted(lambda: storage.delete("a/y")) == {"remove": 1}
    assert counted(lambda: storage.delete_many(["a/z", "b/z"])) == {"remove": 1}


def test_bytes_are_those_that_came_and_went(storage):
    with requests() as asked:
        storage.put("x", b"12345")
        storage.put_many({"y": b"123", "z": b"12"})
        storage.put_if_absent("w", b"1")
        with storage.open_output("v") as sink:
            sink.write(b"12")
            sink.write(b"345")
        assert storage.get("x") == b"12345"
        assert storage.get_range("x", 1, 2) == b"23"
    assert (asked.bytes_written, asked.bytes_read) == (16, 7)
    assert asked.counts == {"write": 4, "decide": 1, "read": 2}
    assert asked.total == 7


def test_a_request_that_fails_is_counted(storage):
    with requests() as asked, pytest.raises(NotFoundError):
        storage.get("none")
    assert asked.counts == {"read": 1}
    assert asked.bytes_read == 0


def test_nothing_is_counted_outside_of_the_block_and_in_all_blocks_inside():
    storage = MemoryStorage()
    with requests() as outer:
        storage.put("x", b"1")
        with requests() as inner:
            storage.get("x")
    storage.get("x")
    assert (outer.total, inner.total) == (2, 1)


class Slow:
    is_far = True

    @request("read")
    def get(self, _):
        time.sleep(0.03)
        return b"1234"


def test_depth_is_how_many_waited_for_each_other():
    with requests() as asked:
        each(Slow().get, range(8), at=Slow())
    assert asked.total == 8
    assert asked.depth <= 3  # one, and what a busy machine adds
    assert asked.bytes_read == 32
    assert asked.seconds >= 8 * 0.03
    with requests() as asked:
        for number in range(4):
            Slow().get(number)
    assert asked.depth == 4


def test_an_account_says_what_work_on_a_table_costs():
    table = anabranch.connect("memory://accounted").create_table("db.t", "id BIGINT")
    with anabranch.requests() as asked:
        table.append([{"id": 1}])
    assert asked.counts["decide"] == 1
    assert asked.bytes_written > 1000
    assert asked.peak_memory is None or asked.peak_memory > 10_000_000
    assert str(asked).startswith(f"{asked.total} requests (")
    assert asked.to_dict()["by_kind"] == asked.counts
