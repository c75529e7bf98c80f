"""Appends to a store that is far away, where rows are written while the store is asked: others come in between anywhere."""

import threading

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, CommitOutcomeUnknownError, SchemaError
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import Clock
from tests.support.faults import FaultyStorage, run

OURS = pa.table({"id": [100]})
CALLS = [
    *(("get", nth) for nth in (1, 2, 3, 4)),
    *(("exists", nth) for nth in (1, 2)),
    *((name, 1) for name in ("open_output", "put_many", "put_if_absent", "put")),
]
"""Calls of an append to an open table, by their numbers."""


class Interrupted:
    """A table in a far store that has been appended to, and one beside it whose owner comes in between."""

    def __init__(self, call, nth, other):
        clock = Clock()
        runtime = Runtime(clock=clock)
        self.inner = MemoryStorage(runtime=runtime)
        self.near = Lake(self.inner, runtime=runtime).create_table("db.t", "id BIGINT")
        self.near.append(pa.table({"id": [1]}))
        self.near.create_tag("base")
        self.near.create_branch("fix", tag="base")
        self.clock, self._due = clock, 0

        def come_between(_):
            if self._due:
                self._due -= 1
                if not self._due:
                    other(self)

        faults = [run("before", call, come_between, times=10**9)]
        self.table = Lake(FaultyStorage(self.inner, faults, is_far=True), runtime=runtime).table("db.t")
        self.table.append(pa.table({"id": [2]}))
        self.table.append(pa.table({"id": [3]}))
        self._due = nth

    def append(self):
        made = self.table.append(OURS)
        for thread in threading.enumerate():
            if thread.name == "afterwards":
                thread.join()
        return made

    @property
    def came(self):
        return not self._due

    def main(self):
        return Lake(self.inner).table("db.t")

    def rows(self):
        return sorted(self.main().scan().to_arrow()["id"].to_pylist())

    def files(self):
        return {info.path for info in self.inner.list("db.db/t/bucket-0")}


def append_more(state):
    state.near.append(pa.table({"id": [50]}))


def add_column(state):
    state.near.alter().add_column("more", "STRING").apply()


def roll_back(state):
    state.main().rollback(2, force=True, destructive=True)
    state.main().append(pa.table({"id": [60]}))


def replace_main(state):
    state.near.branch("fix").append(pa.table({"id": [70]}))
    state.near.replace_main_branch("fix", force=True)


def wait(state):
    state.clock.now += 3_600_000


@pytest.mark.parametrize(("call", "nth"), CALLS, ids=str)
@pytest.mark.parametrize("other", [append_more, add_column, wait], ids=lambda o: o.__name__)
def test_an_append_is_there_once_whatever_comes_between(call, nth, other):
    state = Interrupted(call, nth, other)
    state.append()
    assert state.rows() == sorted([1, 2, 3, 100] + [50] * (state.came and other is append_more))
    state.append()
    assert state.rows().count(100) == 2
    assert len(state.files()) == len(state.rows())


@pytest.mark.parametrize(("call", "nth"), CALLS, ids=str)
@pytest.mark.parametrize("other", [roll_back, replace_main], ids=lambda o: o.__name__)
def test_an_append_goes_to_the_history_that_is_main_or_is_told_apart(call, nth, other):
    state = Interrupted(call, nth, other)
    try:
        made = state.append()
    except CommitOutcomeUnknownError:  # it was rolled back between its put and the look whether it is there
        assert (other, call, nth) == (roll_back, "get", 4)
        assert state.rows() == [1, 2, 60]
        return
    rows = state.rows()
    if not state.came:
        assert rows == [1, 2, 3, 100]
        return
    there = {1, 60, 2} if other is roll_back else {1, 70}
    if 100 in rows:
        assert rows.count(100) == 1
        assert set(rows) - {100} == there
    else:  # it was committed to what main was before, and went with that
        assert set(rows) == there
        assert made.id == 4
        assert (call, nth) in [("get", 4), ("put", 1), ("exists", 2)]


@pytest.mark.parametrize(("call", "nth"), CALLS, ids=str)
def test_nothing_comes_to_a_table_that_was_made_again(call, nth):
    def make_again(state):
        lake = Lake(state.inner)
        lake.drop_table("db.t")
        lake.create_table("db.t", "id BIGINT").append(pa.table({"id": [9]}))

    state = Interrupted(call, nth, make_again)
    try:
        state.append()
    except AnabranchError:
        assert state.came
    assert state.rows() == ([9] if state.came else [1, 2, 3, 100])


def test_rows_are_checked_against_the_columns_there_are_now():
    state = Interrupted("put", 10**6, add_column)
    more = pa.table({"id": [100], "more": ["x"]})
    before = state.files()
    with pytest.raises(SchemaError, match="more"):
        state.table.append(more)
    assert state.files() == before
    add_column(state)
    state.table.append(more)
    assert state.main().scan().to_arrow().filter(pa.compute.field("id") == 100)["more"].to_pylist() == ["x"]


def test_a_stream_of_rows_is_read_once():
    state = Interrupted("exists", 1, add_column)
    batches = iter([{"id": 100}, {"id": 101}])
    state.table.append(batches)
    assert state.rows() == [1, 2, 3, 100, 101]
