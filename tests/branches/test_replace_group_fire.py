"""Replacing the mains of two tables at once while others write, read, replace and take back: seeded, one call at a time."""

from collections import Counter
from random import Random

import pytest

from anabranch.errors import AnabranchError, CommitConflictError
from anabranch.format.records.main_pointer import MAIN_PREFIX
from anabranch.kernel.log.main_pointer import numbers, replacements
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from tests.branches.grouping import again, parted_lake, storage_of
from tests.branches.replace_fire import DECIDING, Killed, Stage
from tests.branches.replacing import Ids
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, rows

TABLES = ("db.a", "db.b")
MATTER = ("/branch/", "/snapshot/", "groups/")


class LakeStage(Stage):
    """As for one table; each actor has the warehouse as a process of its own has it."""

    def __init__(self, lake, seed):
        super().__init__(None, seed)
        self.lake = lake

    def _view(self, actor):
        def pause(path):
            actor.calls += 1
            if actor.dies_at is not None and actor.calls > actor.dies_at:
                raise Killed
            if any(part in path for part in MATTER):
                self._back.release()
                actor.turn.acquire()

        class Sleeper:
            def sleep(_, seconds):
                self.time.sleep(seconds)
                self._back.release()
                actor.turn.acquire()

        hooks = [run("before", call, pause, times=10**9) for call in DECIDING]
        storage = FaultyStorage(storage_of(self.lake), hooks)
        return Lake(storage, runtime=Runtime(self.time, Ids(self.random.random()), Sleeper()))


def replacer(branch):
    def work(lake):
        try:
            lake.replace_group(dict.fromkeys(TABLES, branch))
        except CommitConflictError as error:
            assert {c.kind for c in error.conflicts} <= {"NOT_DESCENDED", "CORRECTION_DROPPED"}, error

    return work


def undoer(lake):
    try:
        lake.undo_group()
    except AnabranchError as error:
        assert any(text in str(error) for text in ("ever replaced", "does not count", "the last one")), error


def _fire(seed):
    random = Random(f"group fire {seed}")
    lake = parted_lake(*TABLES)
    for name in TABLES:
        lake.table(name).create_branch("next", "good")
    acknowledged, perhaps, seen = [], set(), set()

    def writer(name, first, count):
        def work(lake):
            table = lake.table(name)
            for number in range(first, first + count):
                perhaps.add(number)
                table.append(rows(number, 1))
                acknowledged.append((name, number))

        return work

    def reader(lake):
        for _ in range(4):
            pinned = [table.context.branch for table in lake.together(*TABLES)]
            assert pinned[0] == pinned[1], pinned
            seen.add(pinned[0])

    stage = LakeStage(lake, seed)
    stage.add("writer a", writer("db.a", 2_000, random.randint(1, 3)))
    stage.add("writer b", writer("db.b", 3_000, random.randint(1, 3)))
    stage.add("reader", reader)
    stage.add("replacer", replacer("fix"), dies_at=random.choice((None, None, random.randint(1, 200))))
    if random.random() < 0.6:
        stage.add("other", replacer("next"), dies_at=random.choice((None, random.randint(1, 200))))
    if random.random() < 0.4:
        stage.add("undo", undoer, dies_at=random.choice((None, random.randint(1, 150))))
    stage.play()

    late = again(lake)
    mains = set()
    for name in TABLES:
        table = late.table(name)
        table.append(rows(9_000, 1))  # nobody is held up
        mains.add(table.context.branch)
        views = [table, *(table.branch(f"main@{p.generation}") for p in replacements(table.context))]
        views += [table.branch(branch) for branch in table.branches()]
        found = [Counter(ids_of(view)) for view in views]
        assert all(set(counted.values()) == {1} for counted in found), "a row is there twice"
        everywhere = set().union(*found)
        assert {number for of, number in acknowledged if of == name} <= everywhere, (
            "an acknowledged row is lost"
        )
        assert everywhere <= {0, 1, 2, 100, 1000, 9_000, *perhaps}
        decided = numbers(table.context, MAIN_PREFIX)
        assert decided == list(range(1, len(decided) + 1))
    assert len(mains) == 1, mains
    return seen


@pytest.mark.parametrize(
    "block",
    [range(8), *(pytest.param(range(n, n + 100), marks=pytest.mark.long) for n in range(8, 508, 100))],
    ids=str,
)
def test_random_runs(block):
    seen = set()
    for seed in block:
        try:
            seen |= _fire(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
    assert {None, "fix"} <= seen
