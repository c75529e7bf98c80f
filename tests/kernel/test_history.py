"""Random histories: several writers, races, failing stores, lost answers, deaths and expiry, against a model.

The model knows what each commit means and applies it in the order of the snapshots that are there. A commit
that was acknowledged must be among them, one that was refused must not, and none may be there twice. Each
history is determined by its seed.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitOutcomeUnknownError
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitIdentity, SnapshotRef
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.ledger import hand_over
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.lengths import first_short
from tests.support.writers import Died, Writer

PARTITIONS = ["a", "b", None]
SETTINGS = [
    {},
    {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "8 kb"},
    {"manifest.merge-min-count": "3", "manifest.target-file-size": "3 kb"},
    {"bucket": "2", "bucket-key": "id", "manifest.merge-min-count": "4"},
]


@dataclass
class Job:
    """A streaming query: it repeats a batch until it knows that it is there."""

    name: str
    batch: int = 0
    floors: list = field(default_factory=list)


@dataclass
class World:
    """A table, those who write to it, and what must be in it."""

    rng: random.Random
    trouble: float = 0.004
    crowd: float = 0.15
    depth: int = 0
    effects: dict = field(default_factory=dict)  # (user, identifier) -> function of rows
    acknowledged: set = field(default_factory=set)
    refused: set = field(default_factory=set)
    stamps: dict = field(default_factory=dict)  # snapshot id -> (stamp, identity)
    states: dict = field(default_factory=lambda: {0: Counter()})
    next_row: int = 0
    columns: int = 0

    def __post_init__(self):
        self.storage = MemoryStorage()
        lake = Lake(self.storage)
        self.options = self.rng.choice(SETTINGS)
        made = lake.create_table("db.t", "id BIGINT, p STRING", partition_by=["p"], options=self.options)
        self.storage = self.storage.scoped("db.db/t")
        self.table = made
        self.jobs = [Job(f"job-{i}") for i in range(2)]
        for job in self.jobs:
            job.floors.append(SnapshotRef(made.branch_uuid, 0, ""))
        self.writers = [Writer(self, i) for i in range(3)]

    # What happens

    def step(self, writer=None):
        writer = writer or self.rng.choice(self.writers)
        act = self.rng.choices(
            [self.append, self.stream, self.overwrite, self.alter, self.expire], [6, 6, 3, 1, 1]
        )[0]
        try:
            act(writer)
        except Died:
            assert writer.dead
            self.writers[writer.number] = Writer(self, writer.number)

    def meanwhile(self, interrupted):
        """Somebody else does something between two calls of one writer, perhaps several times."""
        if self.depth:
            return
        self.depth += 1
        for _ in range(self.rng.randint(1, 4)):
            others = [w for w in self.writers if w is not interrupted]
            self.step(self.rng.choice(others))
        if self.rng.random() < 0.5:
            self.expire(None)
        self.depth -= 1

    def rows(self):
        """A few new rows, and how the model sees them."""
        count = self.rng.choice([0, 1, 1, 2, 5])
        ids = range(self.next_row, self.next_row + count)
        self.next_row += count
        pairs = [(i, self.rng.choice(PARTITIONS)) for i in ids]
        data = pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p for _, p in pairs], pa.string())})
        return data, pairs

    def append(self, writer):
        data, pairs = self.rows()
        identity = CommitIdentity(f"once-{len(self.effects)}", BATCH_COMMIT_IDENTIFIER)
        self.commit(writer, identity, lambda old: old + Counter(pairs), lambda: Append(_write(writer, data)))

    def overwrite(self, writer):
        data, pairs = self.rows()
        identity = CommitIdentity(f"once-{len(self.effects)}", BATCH_COMMIT_IDENTIFIER)
        if self.rng.random() < 0.5:
            partition = self.rng.choice(PARTITIONS)
            pairs = [(i, partition) for i, _ in pairs]
            data = pa.table({"id": data["id"], "p": pa.array([partition] * len(pairs), pa.string())})
            gone, how = {partition}, {"partition": {"p": partition}}
        else:
            gone, how = {p for _, p in pairs}, {}

        def effect(old):
            kept = Counter({row: count for row, count in old.items() if row[1] not in gone})
            return kept + Counter(pairs)

        self.commit(writer, identity, effect, lambda: writer.table.overwriting(_write(writer, data), **how))

    def stream(self, writer, job=None):
        job = job or self.rng.choice(self.jobs)
        identity = CommitIdentity(job.name, job.batch)
        key = (job.name, job.batch)
        if key not in self.effects:
            job.data, job.pairs = self.rows()
        data, pairs = job.data, job.pairs
        floor = self.rng.choice(job.floors)
        made = self.commit(
            writer,
            identity,
            lambda old: old + Counter(pairs),
            lambda: Append(_write(writer, data)),
            floor=floor,
        )
        if made is not None and job.batch == identity.identifier:
            if made.snapshot is not None:
                job.floors.append(SnapshotRef(self.table.branch_uuid, made.snapshot.id, made.snapshot.stamp))
            job.batch += 1

    def commit(self, writer, identity, effect, action, **how):
        key = (identity.user, identity.identifier)
        self.effects[key] = effect
        try:
            made = writer.table.commit(action(), identity=identity, **how)
        except CommitOutcomeUnknownError:
            return None
        except AnabranchError:
            if identity.is_batch:
                self.refused.add(key)
            return None
        self.acknowledged.add(key)
        return made

    def alter(self, writer):
        try:
            writer.table.alter().add_column(f"c{self.columns}", "INT").apply()
        except AnabranchError:
            return
        finally:
            self.columns += 1

    def expire(self, writer):
        """Remove the oldest snapshots but two, as an expiry does: the ledger first, then upwards."""
        self.observe()
        chain = [*self.table.snapshots()][::-1]
        most = max(len(chain) - 2, 0)
        gone = chain[: self.rng.choice([most, self.rng.randint(0, most)])]
        hand_over(self.table.context, gone)
        for snapshot in gone:
            self.storage.delete(self.table.context.layout.snapshot_path(snapshot.id))

    # What must hold

    def observe(self):
        """Take in the snapshots made since, and what they mean."""
        fresh = []
        for snapshot in self.table.snapshots():
            if snapshot.id in self.stamps:
                assert self.stamps[snapshot.id][0] == snapshot.stamp, "history never changes"
                break
            fresh.append(snapshot)
        for snapshot in reversed(fresh):
            assert snapshot.id == len(self.stamps) + 1, "no gaps"
            key = (snapshot.commit_user, snapshot.commit_identifier)
            assert key not in [k for _, k in self.stamps.values()], f"{key} was committed twice"
            self.stamps[snapshot.id] = (snapshot.stamp, key)
            self.states[snapshot.id] = self.effects[key](self.states[snapshot.id - 1])
            assert snapshot.total_record_count == self.states[snapshot.id].total()

    def settle(self):
        """Once nothing goes wrong any more, every job finds out about its batch and goes on."""
        self.trouble = self.crowd = 0
        for job in self.jobs:
            for _ in range(2):
                batch = job.batch
                self.stream(Writer(self, 0), job)
                assert job.batch == batch + 1

    def check(self):
        self.observe()
        made = {key for _, key in self.stamps.values()}
        assert self.acknowledged <= made
        assert not self.refused & made
        self.table = anabranch.Table(replace(self.table.context, cache=MetadataCache()))
        kept = [s.id for s in self.table.snapshots()]
        for number in self.rng.sample(kept, min(3, len(kept))):
            self.check_rows(self.table.at(number), self.states[number])
        if kept:
            self.check_rows(self.table, self.states[kept[0]])

    def check_rows(self, view, expected):
        for p in [*PARTITIONS, ...]:
            filter = None if p is ... else "p IS NULL" if p is None else f"p = '{p}'"
            found = view.scan(filter, columns=["id", "p"]).to_arrow()
            rows = Counter(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True))
            assert rows == Counter({row: n for row, n in expected.items() if p in (..., row[1])})


def _write(writer, data):
    writing = writer.table.writer()
    missing = [f for f in writing.schema if f.name not in data.column_names]
    for f in missing:
        data = data.append_column(f, pa.nulls(len(data), f.type))
    return writing.write(data.cast(writing.schema).to_batches())


def _live_through(seed, steps, **how):
    world = World(random.Random(seed), **how)
    for number in range(steps):
        world.step()
        if number % 10 == 9:
            world.observe()
    world.settle()
    world.check()
    return world


@pytest.mark.parametrize("seed", first_short(range(7), 2))
def test_random_histories(seed):
    _live_through(seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("seed", first_short(range(3)))
def test_random_histories_without_any_trouble_lose_no_commit(seed):
    world = _live_through(100 + seed, 40, trouble=0.0)
    assert not world.refused
    assert len(world.acknowledged) == len(world.stamps) > 30


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_long_random_histories(seed):
    rng = random.Random(seed)
    _live_through(seed, 150, trouble=rng.choice([0.001, 0.004, 0.02]), crowd=rng.choice([0.05, 0.15, 0.5]))
