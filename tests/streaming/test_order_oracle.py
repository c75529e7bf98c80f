"""What a stream delivers of each bucket is what was written to it, in the order in which it was written.

Writers commit beside each other while compaction rewrites files and expiry removes snapshots; a reader with a
consumer takes steps of any size, dies at any call of its store and is started again. What was written is known from
the writers alone: the order of commits is that of their snapshots, the order within one that of its rows.
"""

import itertools
import random
import threading
import time
from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitError
from anabranch.format.rows.bucket import assign_buckets
from anabranch.format.types.data_types import BigIntType
from anabranch.kernel.log.cache import MetadataCache
from anabranch.scan.feed import FeedReader
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.tail import Follower
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.tables import make_table
from tests.support.writers import READS, WRITES, Died

BUCKETS = 8
CONSUMER = "oracle"
_names = itertools.count()


class Written:
    """Rows by snapshot, as the writers know them."""

    def __init__(self):
        self.commits = {}
        self._ids = itertools.count()

    def append(self, table, count):
        ids = [next(self._ids) for _ in range(count)]
        snapshot = table.append(pa.table({"id": pa.array(ids, pa.int64())}))
        self.commits[snapshot.id] = ids

    def by_bucket(self):
        buckets = defaultdict(list)
        for _, ids in sorted(self.commits.items()):
            places = assign_buckets([pa.array(ids, pa.int64())], [BigIntType()], BUCKETS)
            for i, bucket in zip(ids, places.tolist(), strict=True):
                buckets[bucket].append(i)
        return dict(buckets)


class Reader:
    """Reads until it has all there will ever be, however often it dies."""

    def __init__(self, table, seed, *, mean_calls):
        self.table = table
        self.chance = random.Random(seed)
        self.mean_calls = mean_calls
        """Calls of the store between two deaths, on average."""
        self.lives = []
        """For each life the rows it was given by bucket, and how many of each bucket were known to be done before."""
        self.done = defaultdict(int)

    def follow(self, is_over):
        while not self._live(is_over):
            pass

    def _live(self, is_over):
        given = defaultdict(list)
        self.lives.append((given, dict(self.done)))
        left = int(self.chance.expovariate(1 / self.mean_calls)) + 5

        def maybe_die(path):
            nonlocal left
            left -= 1
            if left <= 0:
                raise Died

        hooks = [
            run(when, call, maybe_die, times=10**9) for call in READS + WRITES for when in ("before", "after")
        ]
        context = self.table.context
        seen = replace(context, storage=FaultyStorage(context.storage, hooks), cache=MetadataCache())
        try:
            return self._steps(seen, given, is_over)
        except Died:
            return False

    def _steps(self, context, given, is_over):
        feed = Feed.of(context, self.table.schema, {})
        reader = FeedReader.of(feed)
        follower = Follower(feed, {"scan.mode": "latest-full"}, CONSUMER)
        while True:
            was_over = is_over()
            follower.limits = Limits(rows=int(10 ** self.chance.uniform(0, 4)))
            splits = follower.step()
            if splits is None:
                if was_over:
                    return True
                time.sleep(0.002)
                continue
            for split in splits:
                for batch in reader.read(split):
                    given[split.bucket] += batch["id"].to_pylist()
            follower.acknowledge()
            before = self.lives[-1][1]
            for bucket, ids in given.items():
                # A life that began after a lost answer begins later than was known.
                self.done[bucket] = max(self.done[bucket], before.get(bucket, 0) + len(ids))


def write_compact_and_read(seed, *, writers, commits, most_rows, mean_calls, before=0):
    """The reader, and what was written by bucket."""
    options = {
        "bucket": str(BUCKETS),
        "bucket-key": "id",
        "write-only": "true",
        "compaction.min.file-num": "3",
        "compaction.max.file-num": "4",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "2",
        "snapshot.time-retained": "1 ms",
    }
    url = f"memory://order{next(_names)}"
    table = make_table(url, schema="id BIGINT", options=options)
    written = Written()
    for _ in range(before):
        written.append(table, 20)
    if before:
        table.compact()  # of the older ones: in the manifests their rows come after those of the newer ones now
    reader = Reader(table, seed, mean_calls=mean_calls)
    # Before anything can expire: this is where the first life begins as well.
    _ = Follower(Feed.of(table.context, table.schema, {}), {}, CONSUMER).position

    def write(number):
        chance = random.Random(f"{seed} {number}")
        mine = anabranch.connect(url).table("db.t")
        for _ in range(commits):
            written.append(mine, chance.randint(1, most_rows))

    def tend():
        mine = anabranch.connect(url).table("db.t")
        is_compacted = False
        while any(thread.is_alive() for thread in writing) or not is_compacted:
            try:
                is_compacted |= mine.compact().snapshot is not None
                mine.expire_snapshots()
            except CommitError:  # the writers were faster too often
                continue

    failures = []

    def guarded(work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    writing = [threading.Thread(target=guarded, args=(write, number)) for number in range(writers)]
    tending = threading.Thread(target=guarded, args=(tend,))
    for thread in (*writing, tending):
        thread.start()
    try:
        reader.follow(lambda: not any(thread.is_alive() for thread in writing))
    finally:
        for thread in (*writing, tending):
            thread.join()
    assert not failures
    return reader, written.by_bucket()


def check(reader, written):
    """Every life goes on where the one before had got to, or with what that one had not acknowledged."""
    covered = defaultdict(int)
    for given, known in reader.lives:
        for bucket, ids in given.items():
            start = written[bucket].index(ids[0])
            assert ids == written[bucket][start : start + len(ids)]
            assert known.get(bucket, 0) <= start <= covered[bucket]
            covered[bucket] = max(covered[bucket], start + len(ids))
    assert covered == {bucket: len(ids) for bucket, ids in written.items()}


@pytest.mark.parametrize("before", first_short([0, 6]))
def test_each_bucket_is_delivered_as_it_was_written(before):
    reader, written = write_compact_and_read(
        7 + before, writers=3, commits=8, most_rows=60, mean_calls=60, before=before
    )
    check(reader, written)
    assert len(reader.lives) > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_each_bucket_is_delivered_as_it_was_written_at_length(seed):
    reader, written = write_compact_and_read(
        seed, writers=6, commits=60, most_rows=2_000, mean_calls=400, before=(0, 12)[seed % 2]
    )
    check(reader, written)
    assert len(reader.lives) > 10
