"""Stores that break their word, and what the probe says of them."""

import threading

import pytest

from anabranch.errors import StorageError, UnsupportedFeatureError
from anabranch.storage import probe_put_if_absent
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, fail


class LastWriterWins(MemoryStorage):
    def put_if_absent(self, path, data):
        self.put(path, data)
        return True


class LooksThenWrites(MemoryStorage):
    """Right as long as nobody comes in between."""

    def __init__(self):
        super().__init__()
        self.meeting = threading.Barrier(4)

    def put_if_absent(self, path, data):
        if self.exists(path):
            return False
        if threading.current_thread() is not threading.main_thread():
            self.meeting.wait()
        self.put(path, data)
        return True


class NobodyWins(MemoryStorage):
    def put_if_absent(self, path, data):
        super().put_if_absent(path, data)
        return False


@pytest.mark.parametrize(
    ("liar", "told"),
    [
        (LastWriterWins, "let 2 of 2 writers"),
        (LooksThenWrites, "let 4 of 4 writers"),
        (NobodyWins, "let 0 of 2 writers"),
    ],
)
def test_a_store_that_breaks_its_word_is_found_out(liar, told):
    storage = liar()
    with pytest.raises(UnsupportedFeatureError, match=told) as found_out:
        probe_put_if_absent(storage)
    assert found_out.value.feature == "atomic-create"
    assert list(storage.list(recursive=True, include_temporary=True)) == []


def test_a_store_that_fails_is_no_liar():
    with pytest.raises(StorageError):
        probe_put_if_absent(FaultyStorage(MemoryStorage(), [fail("put_if_absent")]))
