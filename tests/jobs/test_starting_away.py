"""`run` that starts while the store is away waits for it, as its jobs do once they run."""

import pytest

from anabranch.errors import StorageError
from anabranch.jobs.command import _patiently
from anabranch.jobs.state.mirror import StateMirror
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.jobs.supervising import Time


class Away:
    def __init__(self, times, *, retryable=True):
        self.left, self.error = times, StorageError("it is away", retryable=retryable)

    def __call__(self):
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "here"


def look(away, schedule=None):
    time, said = Time(), []
    runtime = Runtime(clock=time, ids=time, sleeper=time)
    return _patiently(away, schedule or Schedule(), said.append, runtime), time.now, said


def test_it_is_told_once_and_tried_again():
    found, seconds, said = look(Away(5))
    assert (found, said) == ("here", ["it is away; tried again until the store answers"])
    assert 5 < seconds < 60


def test_what_does_not_pass_is_an_error_at_once():
    with pytest.raises(StorageError):
        look(Away(1, retryable=False))


def test_who_waits_for_what_is_there_now_gets_the_error():
    with pytest.raises(StorageError):
        look(Away(1), Schedule(AVAILABLE_NOW))


def test_a_checkpoint_without_its_metadata_is_not_copied_and_says_so(caplog):
    """Somebody removed it while the job ran: the copy is of no use, and the job goes on."""
    checkpoint, copies = MemoryStorage("checkpoint-lost"), MemoryStorage("copies-lost")
    checkpoint.put("offsets/0", b"v1\n{}\n{}")
    checkpoint.put("commits/0", b"v1\n{}")
    StateMirror(checkpoint, copies, "j", has_state=False).look(now=True)
    assert "there is no metadata in the checkpoint" in caplog.text
    assert list(copies.list(recursive=True)) == []
