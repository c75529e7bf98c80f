"""Replacing main while others work: no commit that was acknowledged is lost, none is there twice, nobody is stuck.

Each actor is a thread with a view of the table of its own; of all of them one runs at a time, and who is next is decided
at every storage call that matters by a seeded scheduler. So a run is the same each time.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitConflictError, SealedBranchError
from anabranch.format.records.main_pointer import MAIN_PREFIX, SEAL_PREFIX
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log import parallel
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_pointer import numbers, replacements
from tests.branches.replace_fire import DECIDING, Stage
from tests.branches.replacing import BEFORE, again, parted, timed
from tests.simulation.pools import Inline
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, rows, written


@pytest.fixture(autouse=True)
def _one_thread_an_actor(monkeypatch):
    """Calls are made by the thread of their actor, which is what the scheduler stops."""
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Inline)


@dataclass
class Fire:
    """A table under fire, and what was acknowledged to whom."""

    seed: int
    table: object = field(default_factory=parted)
    acknowledged: list = field(default_factory=list)
    """Ids of rows whose append returned."""
    perhaps: set = field(default_factory=set)
    """Ids of rows whose append died, or did not say."""
    fenced: list = field(default_factory=list)
    streamed: dict = field(default_factory=dict)

    def batch_writer(self, first, count):
        def work(table):
            for number in range(first, first + count):
                self.perhaps.add(number)
                table.append(rows(number, 1))
                self.acknowledged.append(number)

        return work

    def stream_writer(self, name, first, count, branch=None):
        """A job that repeats each batch once, as after a crash; fenced, it stops."""

        def work(table):
            table = table if branch is None else table.branch(branch)
            user = f"{name}@{table.branch_uuid}"
            head = table.snapshot
            for number in range(first, first + count):
                self.perhaps.add(number)
                for repeated in range(2):
                    try:
                        table.commit(Append(written(table, number, 1)), identity=CommitIdentity(user, number))
                    except SealedBranchError:
                        if not repeated:
                            self.fenced.append((name, number))
                        return
                    if not repeated:
                        self.acknowledged.append(number)
            assert head is not None

        return work

    def replacer(self, branch):
        def work(table):
            try:
                table.replace_main_branch(branch)
            except CommitConflictError as error:
                assert {c.kind for c in error.conflicts} <= {
                    "NOT_DESCENDED",
                    "TAG_CLASH",
                    "CORRECTION_DROPPED",
                }, error

        return work

    def undoer(self, table):
        try:
            table.undo_replace()
        except AnabranchError as error:
            assert "not replaced" in str(error) or "taken back" in str(error), error

    def tagger(self, table):
        table.create_tag("under-fire", 2)

    def check(self):
        """Everything acknowledged is once in a main that is or was, or on the branch that it was written to."""
        table = timed(self.table)
        table.append(rows(9_000, 1))  # nobody is held up
        views = [table, *(table.branch(f"main@{p.generation}") for p in replacements(table.context))]
        views += [table.branch(name) for name in table.branches()]
        found = [Counter(ids_of(view)) for view in views]
        for counted in found:
            assert set(counted.values()) == {1}, "a row is there twice"
        everywhere = set().union(*found)
        assert set(self.acknowledged) <= everywhere, "an acknowledged row is lost"
        assert everywhere <= {*BEFORE, 100, 1000, 9_000, *self.acknowledged, *self.perhaps}
        assert 9_000 in found[0]
        for pointer in replacements(table.context):
            assert pointer.replaced.fork.id == 2
        decided, announced = numbers(table.context, MAIN_PREFIX), numbers(table.context, SEAL_PREFIX)
        assert decided == list(range(1, len(decided) + 1))
        assert set(announced) <= {*decided, len(decided) + 1}
        assert [s.id for s in table.snapshots()][-2:] == [2, 1], "main has its past"
        return table


def _fire(seed):
    fire = Fire(seed)
    random = Random(f"fire {seed}")
    fire.table.create_branch("next", "good")
    stage = Stage(fire.table, seed)
    stage.add("batch", fire.batch_writer(2_000, random.randint(1, 4)))
    stage.add("old job", fire.stream_writer("job", 3_000, random.randint(1, 5)))
    stage.add("new job", fire.stream_writer("job", 50, random.randint(1, 5), branch="fix"))
    stage.add("replacer", fire.replacer("fix"), dies_at=random.choice((None, None, random.randint(1, 120))))
    if random.random() < 0.5:
        stage.add("other", fire.replacer("next"), dies_at=random.choice((None, random.randint(1, 120))))
    if random.random() < 0.4:
        stage.add("undo", fire.undoer, dies_at=random.choice((None, random.randint(1, 80))))
    if random.random() < 0.4:
        stage.add("tag", fire.tagger)
    stage.play()
    table = fire.check()
    if any(actor.name == "tag" for actor in stage.actors):
        assert "under-fire" in table.tags(), "a tag did not reach main"
    for name, number in fire.fenced:
        assert number not in set(ids_of(table)) | set(fire.acknowledged), f"{name} was fenced"


FOUND = (786, 3259)
"""Runs that failed once."""


@pytest.mark.parametrize(
    "block",
    [
        range(10),
        FOUND,
        pytest.param(range(10, 25), marks=pytest.mark.long),
        *(pytest.param(range(n, n + 250), marks=pytest.mark.long) for n in range(25, 4_025, 250)),
    ],
    ids=str,
)
def test_random_runs(block):
    for seed in block:
        try:
            _fire(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def test_a_run_is_the_same_each_time():
    def paths(seed):
        fire = Fire(seed)
        stage = Stage(fire.table, seed)
        stage.add("batch", fire.batch_writer(2_000, 2))
        stage.add("replacer", fire.replacer("fix"))
        stage.play()
        return [actor.calls for actor in stage.actors], fire.acknowledged

    assert paths(7) == paths(7)


@pytest.mark.long
def test_two_replacements_at_every_call_of_each_other():
    """One is made as a whole in between the calls of another, at each of them."""
    calls = len([c for c in _calls_of_a_replacement() if c.name in DECIDING])
    for nth in range(1, calls + 1, 6):
        table = parted()
        table.create_branch("next", "good")
        count = [0]

        def other(path, table=table, count=count, nth=nth):
            count[0] += 1
            if count[0] == nth:
                timed(table).replace_main_branch("next")

        hooks = [run("before", call, other, times=10**9) for call in DECIDING]
        storage = FaultyStorage(table.context.storage, hooks)
        try:
            anabranch.Table(
                replace(table.context, storage=storage, cache=MetadataCache())
            ).replace_main_branch("fix")
        except CommitConflictError as error:
            assert {c.kind for c in error.conflicts} == {"CORRECTION_DROPPED"}, error
        made = [pointer.main.name for pointer in replacements(table.context)]
        assert made in (["next"], ["fix"]), (nth, made)
        late = again(table)
        late.append(rows(7, 1))
        expected = [*BEFORE, 7] if made[-1] == "next" else [*BEFORE, 7, 100]
        assert ids_of(table) == expected


def _calls_of_a_replacement():
    table = parted()
    storage = FaultyStorage(table.context.storage)
    anabranch.Table(replace(table.context, storage=storage)).replace_main_branch("fix")
    return storage.calls
