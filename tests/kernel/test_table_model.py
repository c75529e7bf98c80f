"""Everything that changes a table, by several writers at once, against a plain list of rows.

Appends, overwrites, compactions, sorting and schema changes race each other, fail and die. The model is the
list of rows in the order of the snapshots that are there, each row a value by field id. Queues must hold
the rows of each bucket in that order. A history is determined by its seed.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitError, CommitOutcomeUnknownError, SchemaError, StorageError
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitIdentity, CommitKind
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.lengths import first_short
from tests.support.writers import Died, Writer

PARTITIONS = ["a", "b", None]
SMALL_MANIFESTS = {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "8 kb"}
COMPACTING = {"compaction.min.file-num": "2", "compaction.max.file-num": "3"}
SETTINGS = [
    {**COMPACTING},
    {**COMPACTING, **SMALL_MANIFESTS, "target-file-size": "4 kb"},
    {**COMPACTING, "bucket": "1"},
    {**COMPACTING, **SMALL_MANIFESTS, "bucket": "2", "bucket-key": "id", "target-file-size": "4 kb"},
]
KINDS = {"INT": "BIGINT", "FLOAT": "DOUBLE", "STRING": None}


@dataclass(frozen=True)
class Row:
    partition: str | None
    values: tuple  # of (field id, value)

    def under(self, schema):
        known = dict(self.values)
        return tuple(known.get(f.id) for f in schema.fields)


@dataclass
class World:
    """A table, those who write to it, and what must be in it."""

    rng: random.Random
    trouble: float = 0.002
    crowd: float = 0.15
    depth: int = 0
    effects: dict = field(default_factory=dict)  # commit user -> function of the list of rows
    added: dict = field(default_factory=dict)  # commit user -> its rows
    acknowledged: set = field(default_factory=set)
    refused: set = field(default_factory=set)
    history: list = field(default_factory=lambda: [(None, None)])  # of (stamp, commit user) by snapshot id
    states: list = field(default_factory=lambda: [[]])
    kinds: Counter = field(default_factory=Counter)
    next_id: int = 0
    next_column: int = 0

    def __post_init__(self):
        storage = MemoryStorage()
        self.options = self.rng.choice(SETTINGS)
        self.is_queue = "bucket" in self.options
        self.table = Lake(storage).create_table(
            "db.t", "id BIGINT, p STRING, n INT, s STRING", partition_by=["p"], options=self.options
        )
        self.storage = storage.scoped("db.db/t")
        self.writers = [Writer(self, i) for i in range(3)]

    # What happens

    def step(self, writer=None):
        writer = writer or self.rng.choice(self.writers)
        acts = {self.append: 8, self.overwrite: 2, self.compact: 4, self.alter: 1}
        if not self.is_queue:
            acts[self.sort] = 2
        act = self.rng.choices([*acts], [*acts.values()])[0]
        try:
            act(writer)
        except StorageError:
            assert self.trouble
        except Died:
            assert writer.dead
            self.writers[writer.number] = Writer(self, writer.number)

    def meanwhile(self, interrupted):
        """Somebody else does something between two calls of one writer, perhaps several times."""
        if self.depth:
            return
        self.depth += 1
        for _ in range(self.rng.randint(1, 3)):
            self.step(self.rng.choice([w for w in self.writers if w is not interrupted]))
        self.depth -= 1

    def append(self, writer):
        writing = writer.table.writer()
        rows = self.rows(writing.table_schema)
        self.commit(writer, rows, lambda old: [*old, *rows], lambda: Append(_write(writing, rows)))

    def overwrite(self, writer):
        writing = writer.table.writer()
        rows = self.rows(writing.table_schema)
        gone, how = {row.partition for row in rows}, {}
        if self.rng.random() < 0.5:
            partition = self.rng.choice(PARTITIONS)
            rows = [row for row in rows if row.partition == partition]
            gone, how = {partition}, {"partition": {"p": partition}}

        def effect(old):
            return [*(row for row in old if row.partition not in gone), *rows]

        self.commit(writer, rows, effect, lambda: writer.table.overwriting(_write(writing, rows), **how))

    def compact(self, writer):
        partitions = None
        if self.rng.random() < 0.3:
            partitions = [{"p": self.rng.choice(PARTITIONS)}]
        self._maintain(lambda: writer.table.compact(full=self.rng.random() < 0.5, partitions=partitions))

    def sort(self, writer):
        by = self.rng.choice([["id"], ["n", "id"], ["id", "n", "s"]])
        by = [name for name in by if name in {f.name for f in writer.table.schema.fields}]
        strategy = self.rng.choice(["order", "zorder", "hilbert"])
        if by:
            self._maintain(lambda: writer.table.sort_compact(by=by, strategy=strategy))

    def alter(self, writer):
        change = writer.table.alter()
        columns = [f for f in writer.table.schema.fields if f.name not in ("id", "p")]
        kind = self.rng.choice(["add", "add", "drop", "rename", "widen", "move"])
        chosen = self.rng.choice(columns) if columns else None
        free = [name for name in "nsuvw" if name not in {f.name for f in columns}]
        wider = None if chosen is None else KINDS.get(str(chosen.type))
        if kind == "drop" and chosen is not None:
            change = change.drop_column(chosen.name)
        elif kind == "rename" and chosen is not None and free:
            change = change.rename_column(chosen.name, self.rng.choice(free))
        elif kind == "widen" and wider is not None:
            change = change.widen_column(chosen.name, wider)
        elif kind == "move" and chosen is not None:
            change = change.move_column(chosen.name, first=True)
        elif kind == "add" and free:
            change = change.add_column(self.rng.choice(free), self.rng.choice([*KINDS]))
        else:
            return
        self._maintain(change.apply)

    def rows(self, schema):
        """A few new rows of a schema."""
        count = self.rng.choice([0, 1, 1, 2, 5])
        return [self._row(schema) for _ in range(count)]

    def _row(self, schema):
        partition = self.rng.choice(PARTITIONS)
        number = self.next_id
        self.next_id += 1
        given = {"id": number, "p": partition}
        values = tuple((f.id, given[f.name] if f.name in given else self._value(f)) for f in schema.fields)
        return Row(partition, values)

    def _value(self, field):
        number = self.rng.randrange(-1000, 1000)
        if self.rng.random() < 0.2:
            return None
        return {"INT": number, "BIGINT": number, "FLOAT": number / 4, "DOUBLE": number / 4}.get(
            str(field.type), f"text {number}"
        )

    def commit(self, writer, rows, effect, action):
        user = f"once-{len(self.effects)}"
        self.effects[user], self.added[user] = effect, rows
        try:
            writer.table.commit(action(), identity=CommitIdentity(user, BATCH_COMMIT_IDENTIFIER))
        except CommitOutcomeUnknownError:
            return
        except (StorageError, CommitError):
            self.refused.add(user)
            return
        self.acknowledged.add(user)

    def _maintain(self, work):
        try:
            work()
        except (StorageError, CommitError, SchemaError):
            return

    # What must hold

    def observe(self):
        """Take in the snapshots made since, and what they mean."""
        fresh = []
        for snapshot in self.table.snapshots():
            if snapshot.id < len(self.history):
                assert self.history[snapshot.id][0] == snapshot.stamp, "history never changes"
                break
            fresh.append(snapshot)
        for snapshot in reversed(fresh):
            assert snapshot.id == len(self.history), "no gaps"
            user, state = snapshot.commit_user, self.states[-1]
            self.kinds[snapshot.commit_kind] += 1
            if snapshot.commit_kind == CommitKind.COMPACT:
                assert snapshot.delta_record_count == 0
                self.states.append(state)
            else:
                assert user not in [u for _, u in self.history], f"{user} was committed twice"
                self.states.append(self.effects[user](state))
            self.history.append((snapshot.stamp, user))
            assert snapshot.total_record_count == len(self.states[-1])

    def check(self):
        self.observe()
        made = {user for _, user in self.history}
        assert self.acknowledged <= made
        assert not self.refused & made
        self.table = anabranch.Table(replace(self.table.context, cache=MetadataCache()))
        head = len(self.history) - 1
        for number in {head, *self.rng.sample(range(1, head + 1), min(2, head))} - {0}:
            self.check_rows(self.table.at(number), self.states[number])
            self.check_delta(number)
        # Under today's columns, too, whatever the files were written with.
        self.check_rows(self.table, self.states[head])

    def check_rows(self, view, expected):
        schema = view.schema
        scan = view.scan()
        assert Counter(_tuples(scan.to_arrow())) == Counter(row.under(schema) for row in expected)
        if self.is_queue:
            self.check_order(scan, scan.plan().splits, expected, schema)
        for p in PARTITIONS:
            found = view.scan("p IS NULL" if p is None else f"p = '{p}'").to_arrow()
            wanted = Counter(row.under(schema) for row in expected if row.partition == p)
            assert Counter(_tuples(found)) == wanted
        for row in expected[:: max(1, len(expected) // 3)]:
            found = view.scan(f"id = {dict(row.values)[schema.field('id').id]}").to_arrow()
            assert _tuples(found) == [row.under(schema)]

    def check_delta(self, number):
        """What a stream is given of one snapshot."""
        snapshot = self.table.context.snapshots.get(number)
        if snapshot.commit_kind != CommitKind.APPEND:
            return
        scan, schema = self.table.scan(), self.table.schema
        splits = self.table.plan_delta(snapshot).splits
        rows = self.added[snapshot.commit_user]
        assert Counter(_tuples(scan.reader.read_table(splits))) == Counter(row.under(schema) for row in rows)
        if self.is_queue:
            self.check_order(scan, splits, rows, schema)

    def check_order(self, scan, splits, expected, schema):
        """Rows of one bucket stand in the order in which they were committed."""
        place = {row.under(schema): i for i, row in enumerate(expected)}
        buckets = {}
        for split in splits:
            places = [place[row] for row in _tuples(scan.reader.read_table([split]))]
            buckets.setdefault((split.partition, split.bucket), []).extend(places)
        for places in buckets.values():
            assert places == sorted(places)


def _tuples(table):
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _write(writing, rows):
    columns = [*zip(*(row.under(writing.table_schema) for row in rows), strict=True)]
    columns = columns or [()] * len(writing.schema)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, writing.schema, strict=True)]
    return writing.write([pa.RecordBatch.from_arrays(arrays, schema=writing.schema)])


def _live_through(seed, steps):
    rng = random.Random(seed)
    trouble = rng.choice([0.0, 0.001, 0.002, 0.01])
    world = World(random.Random(seed), trouble=trouble, crowd=rng.choice([0.0, 0.1, 0.3]))
    for number in range(steps):
        world.step()
        if number % 10 == 9:
            world.observe()
    world.trouble = world.crowd = 0
    world.check()
    return world


@pytest.mark.parametrize("seed", first_short(range(3)))
def test_random_histories(seed):
    _live_through(seed, 50)


@pytest.mark.long
def test_histories_hold_what_they_are_about():
    kinds = Counter()
    for seed in (100, 101):
        kinds += _live_through(seed, 50).kinds
    assert min(kinds[kind] for kind in (CommitKind.APPEND, CommitKind.OVERWRITE, CommitKind.COMPACT)) > 2


MANY = int(os.environ.get("ANABRANCH_MODEL_STEPS", "10000"))
"""Steps of the long form in all."""
PER_HISTORY = 100


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_random_histories():
    for seed in range(1000, 1000 + MANY // PER_HISTORY):
        try:
            _live_through(seed, PER_HISTORY)
        except Exception as error:
            raise AssertionError(f"the history of seed {seed} went wrong") from error
