"""The faulty store itself: tests of everything else lean on it."""

import pickle
import signal
import subprocess
import sys

import pytest

from anabranch.errors import StorageError
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, fail, kill, lose_answer, lose_request, no_space, parse, run


def names_in(storage):
    return sorted(info.path for info in storage.list(recursive=True))


def test_without_faults_it_only_counts():
    storage = FaultyStorage(MemoryStorage())
    view = storage.scoped("t")
    assert view.put_if_absent("s/1", b"x")
    view.put_many({"m/b": b"x", "m/a": b"x"})
    with view.open_output("d/1") as sink:
        sink.write(b"x")
        sink.write(b"y")
    assert view.get("d/1") == b"xy"
    assert [tuple(call) for call in storage.calls] == [
        ("put_if_absent", "t/s/1"),
        ("put_many", "t/m/a"),
        ("open_output", "t/d/1"),
        ("write", "t/d/1"),
        ("write", "t/d/1"),
        ("get", "t/d/1"),
    ]
    assert storage.counts() == {"put_if_absent": 1, "put_many": 1, "open_output": 1, "write": 2, "get": 1}
    view.forget_calls()
    assert storage.calls == []


def test_calls_fail_before_or_after_they_happen():
    storage = FaultyStorage(
        MemoryStorage(),
        [
            fail("put", nth=2),
            lose_answer("put_if_absent", where="*/s/2"),
            lose_request("put_if_absent", where="*/s/3"),
        ],
    ).scoped("t")
    storage.put("a", b"1")
    with pytest.raises(StorageError) as failed:
        storage.put("a", b"2")
    assert not failed.value.outcome_unknown
    storage.put("b", b"3")
    assert storage.put_if_absent("s/1", b"x")
    for name in ("s/2", "s/3"):
        with pytest.raises(StorageError) as failed:
            storage.put_if_absent(name, b"x")
        assert failed.value.outcome_unknown
    assert storage.inner.get("a") == b"1"
    assert names_in(storage) == ["a", "b", "s/1", "s/2"]
    assert storage.put_if_absent("s/3", b"x")


def test_a_fault_in_a_sink_leaves_nothing(tmp_path):
    storage = FaultyStorage(LocalStorage(tmp_path), [no_space("write", nth=3)])
    with pytest.raises(StorageError, match="No space left"), storage.open_output("d") as sink:  # noqa: PT012
        for _ in range(5):
            sink.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_put_many_can_stop_halfway():
    storage = FaultyStorage(MemoryStorage(), [fail("put_object", nth=3)])
    with pytest.raises(StorageError):
        storage.put_many(dict.fromkeys("abcde", b"x"))
    assert names_in(storage) == ["a", "b"]


def test_something_can_come_in_between():
    inner = MemoryStorage()
    storage = FaultyStorage(
        inner, [run("before", "put_if_absent", lambda path: inner.put(path, b"theirs"), times=2)]
    )
    assert not storage.put_if_absent("s/1", b"ours")
    assert not storage.put_if_absent("s/2", b"ours")
    assert storage.put_if_absent("s/3", b"ours")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_ends_where_it_is_told(tmp_path, when):
    code = """
import pickle, sys
storage = pickle.loads(sys.stdin.buffer.read())
for number in range(5):
    storage.put_if_absent(f"s/{number}", b"x")
"""
    storage = FaultyStorage(LocalStorage(tmp_path), [kill(when, "put_if_absent", nth=3)])
    ended = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(storage), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert names_in(storage) == [f"s/{number}" for number in range(2 if when == "before" else 3)]


def test_faults_are_given_as_text_too():
    assert parse("kill before put_if_absent 2; no_space write 1 */data-*;fail get") == [
        kill("before", "put_if_absent", nth=2),
        no_space("write", where="*/data-*"),
        fail("get"),
    ]
    assert parse("") == []
    with pytest.raises(AssertionError, match="no_such_call"):
        parse("fail no_such_call")
