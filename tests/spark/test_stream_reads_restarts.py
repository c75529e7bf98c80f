"""A query that dies anywhere and starts again reads every row once, whatever happens to its table meanwhile.

Spark's part is played here: a log of offsets, written before a batch, a log of commits, written after it, and a sink
that takes a batch of one number once. Every call to the reader is one that Spark makes, in Spark's order.
"""

import json
import pickle
import random

import pytest

from anabranch.options import CONSUMER_ID
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types.columns import arrow_schema
from tests.support.lengths import first_short
from tests.support.tables import make_table

pytestmark = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")

SEEDS = 15
MANY = 400


class Died(Exception):
    pass


class Query:
    """One checkpoint and its sink; `run` is one life of the driver."""

    def __init__(self, table, random, options):
        self.table, self.random, self.options = table, random, options
        self.offsets, self.committed, self.sink = [], -1, {}

    def run(self, *, triggers, death_rate):
        """Some triggers; the driver may die at any step."""
        self.death_rate = death_rate
        schema = arrow_schema(self.table.schema.fields)
        self.reader = stream_reader(self.table, schema, self.options)
        try:
            batch = len(self.offsets) - 1 if self.committed < len(self.offsets) - 1 else None
            for _ in range(triggers):
                batch = self._constructed() if batch is None else batch
                if batch is not None:
                    self._execute(batch)
                batch = None
        except Died:
            return False
        return True

    def finish(self):
        """Triggers until there is nothing new; nobody dies any more."""
        while True:
            before = len(self.offsets), self.committed
            self.run(triggers=2, death_rate=0)
            if before == (len(self.offsets), self.committed):
                return

    def _constructed(self):
        start = self._start(len(self.offsets))
        self._may_die()
        end = self._stored(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        self._may_die()
        if self.offsets and end == start:
            return None
        self.offsets.append(end)
        if len(self.offsets) > 1:
            self._may_die()
            self.reader.commit(self.offsets[-2])
        return len(self.offsets) - 1

    def _execute(self, batch):
        self._may_die()
        start, end = self._start(batch), self.offsets[batch]
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        found = [row for p in partitions for b in self.reader.read(p) for row in b.to_pylist()]
        self._may_die()
        self.sink.setdefault(batch, found)
        self._may_die()
        self.committed = batch

    def _start(self, batch):
        return self.offsets[batch - 1] if batch else self._stored(self.reader.initialOffset())

    def _may_die(self):
        if self.random.random() < self.death_rate:
            raise Died

    @staticmethod
    def _stored(offset):
        """As it comes back from the log."""
        return json.loads(json.dumps(offset))


class Story:
    """A queue of two buckets that is written, compacted and, if there is a consumer, expired in between."""

    def __init__(self, url, seed):
        self.random = random.Random(seed)
        options = {"bucket": "2", "bucket-key": "k", "compaction.min.file-num": "2"}
        self.table = make_table(url, schema="k INT NOT NULL, n BIGINT NOT NULL", options=options)
        self.has_consumer = self.random.random() < 0.7
        self.written = 0
        for _ in range(self.random.randint(1, 5)):
            self.write()

    def write(self):
        count = self.random.randint(1, 6)
        self.table.append([{"k": n % 5, "n": n} for n in range(self.written, self.written + count)])
        self.written += count

    def begin(self):
        """Options of a start, and the rows that the stream does not deliver because of it."""
        ids = [s.id for s in self.table.snapshots()]
        sums = {s.id: s.total_record_count for s in self.table.snapshots()}
        chosen = self.random.choice(ids)
        match self.random.choice(["all", "from", "whole", "tag", "savepoint", "latest"]):
            case "all":
                return {}, 0
            case "latest":
                return {"scan.mode": "latest"}, self.written
            case "from":
                skipped = sums.get(chosen - 1, 0)
                return {"scan.mode": "from-snapshot", "scan.snapshot-id": str(chosen)}, skipped
            case "whole":
                return {"scan.mode": "from-snapshot-full", "scan.snapshot-id": str(chosen)}, 0
            case "tag":
                self.table.create_tag("begin", max(ids))
                self.leave_behind()
                return {"scan.mode": "from-snapshot-full", "scan.tag-name": "begin"}, 0
            case _:
                made = self.table.create_savepoint()
                self.leave_behind()
                skipped = sums.get(made.saved_snapshot_id - 1, 0)
                return {"scan.savepoint-id": str(made.id)}, skipped

    def leave_behind(self):
        """Make the newest snapshot expire; the one after it does not."""
        head = self.table.snapshot.id
        self.write()
        self.write()
        self.table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
        assert self.table.context.snapshots.earliest_id() == head + 1

    def expire(self):
        if self.has_consumer:
            self.table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")

    def go_on(self):
        for _ in range(self.random.randint(0, 4)):
            self.random.choice([self.write, self.write, self.compact, self.expire])()

    def compact(self):
        self.table.compact(full=self.random.random() < 0.5)


def check(seed):
    story = Story(f"memory://restarts-{seed}", seed)
    begin, skipped = story.begin()
    rows = str(story.random.randint(1, 12))
    limits = ({}, {"read.stream.maxRowsPerTrigger": rows}, {"read.stream.maxFilesPerTrigger": "1"})
    limit = story.random.choice(limits)
    consumer = {CONSUMER_ID.key: "etl"} if story.has_consumer else {}
    query = Query(story.table, story.random, {**consumer, **begin, **limit})
    while not query.offsets:  # what a stream begins with is fixed once its first batch is logged
        query.run(triggers=1, death_rate=0.4)
    for _ in range(story.random.randint(1, 8)):
        story.go_on()
        query.run(triggers=story.random.randint(1, 3), death_rate=0.15)
    story.go_on()
    query.finish()

    delivered = [row for batch in sorted(query.sink) for row in query.sink[batch]]
    numbers = sorted(row["n"] for row in delivered)
    assert numbers == list(range(skipped, story.written)), f"seed {seed}: {begin} {limit}"
    for k in range(5):  # all rows of a key are in one bucket
        in_order = [row["n"] for row in delivered if row["k"] == k]
        assert in_order == sorted(in_order), f"seed {seed}: key {k}"


@pytest.mark.parametrize("seed", first_short(range(SEEDS), 2))
def test_every_row_is_read_once_and_in_order(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS, MANY))
def test_every_row_is_read_once_and_in_order_in_many_stories(seed):
    check(seed)
