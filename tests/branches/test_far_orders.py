"""What must come first also does where a store is far away and works are done side by side."""

import time

import pytest

from anabranch.errors import AnabranchError, CommitConflictError
from anabranch.kernel.merge import plan
from anabranch.kernel.provenance.coverage import Covered
from anabranch.kernel.replacement.replace import replace_main
from anabranch.kernel.replacement.request import Replacement
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, fail, run
from tests.support.tables import rows

everywhere = pytest.mark.parametrize("is_far", [False, True], ids=["near", "far"])
ROOT = "db.db/t"


def branched(count=1, **options):
    """A store with a table, and its branch `fix` from a tag, with a row on it and `count` on main since."""
    inner = MemoryStorage()
    table = Lake(inner).create_table("db.t", "id BIGINT NOT NULL, v STRING", options=options)
    table.append(rows(0, 1))
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    table.branch("fix").append(rows(1_000, 1))
    for number in range(count):
        table.append(rows(1 + number, 1))
    return inner


@everywhere
def test_an_error_after_the_seal_keeps_nobody_waiting(is_far):
    """The branch was waited for, for most of the seal's time, though the replacement could not succeed any more."""
    inner = branched(**{"branch.seal.timeout": "20 s"})
    store = FaultyStorage(inner, is_far=is_far)
    sealed = []

    def harm(_path):
        sealed.append(time.monotonic())
        store._record.faults = (fail("get", where="*/tag/tag-base", times=10**6, retryable=False),)

    store._record.faults = (run("after", "put_if_absent", harm, where=f"*{ROOT}/snapshot/snapshot-3"),)

    def coverage(*_):
        return Covered(resume=None, behind=1 if sealed else 0)

    wishes = Replacement("fix", wait_millis=3_000, coverage=coverage)
    with pytest.raises(AnabranchError):
        replace_main(Lake(store).table("db.t").context, wishes)
    assert time.monotonic() - sealed[0] < 6


@everywhere
def test_a_merge_is_ended_whatever_becomes_of_its_notes(is_far, monkeypatch):
    inner = branched(70)

    def no_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr(plan, "made_notes", no_memory)
    with pytest.raises(MemoryError):
        Lake(FaultyStorage(inner, is_far=is_far)).table("db.t").merge_branch("fix")
    assert inner.exists(f"{ROOT}/branch/branch-fix/MERGE-1.done")


@everywhere
def test_the_hint_at_the_earliest_names_nothing_that_was_rolled_back(is_far):
    inner = branched(7)

    def roll_back(_path):
        """As another engine does, while the first snapshots go."""
        for number in range(3, 9):
            inner.delete(f"{ROOT}/snapshot/snapshot-{number}")
        inner.put(f"{ROOT}/snapshot/LATEST", b"2")

    faults = [run("before", "delete_many", roll_back, where="*snapshot-*")]
    table = Lake(FaultyStorage(inner, faults, is_far=is_far)).table("db.t")
    with pytest.raises(CommitConflictError):
        table.expire_snapshots(retain_max=3, retain_min=1)
    assert not inner.exists(f"{ROOT}/snapshot/EARLIEST")
