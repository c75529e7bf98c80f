"""Streams from tags and savepoints whose followers have expired: exactly what was added, each row once, or an error."""

import itertools
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from anabranch.errors import NotFoundError, OptionError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.scan_modes import first_position
from tests.support.moments import rewrite
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
SCHEMA = "id BIGINT NOT NULL, dt STRING, v STRING"


def new(**how):
    return make_table(f"memory://gaps{next(_names)}", **how)


def expire(table, keep=2):
    table.expire_snapshots(retain_max=keep, retain_min=1, older_than="9999-01-01")


def ids(tail):
    return [row["id"] for batch in tail for row in batch.to_pylist()]


def spread(count=6, tag=2, **how):
    """A table of appends of two rows each, tagged after some of them, all that expire gone."""
    table = new(**how)
    for number in range(count):
        table.append(rows(2 * number, 2))
        if number + 1 == tag:
            table.create_tag("good")
            table.create_savepoint()
    expire(table)
    assert table.context.snapshots.find(tag + 1) is None
    return table


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ({"start": "good"}, 2),
        ({"start": "savepoint.1"}, 2),
        ({"start": "good", "options": {"scan.mode": "from-snapshot-full"}}, 0),
    ],
)
@pytest.mark.parametrize("options", [{}, {"bucket": "2", "bucket-key": "id"}])
def test_a_stream_goes_on_by_the_difference_of_files(how, first, options):
    table = spread(options=options)
    more = how.get("options", {})
    view = table.with_options({**more, "scan.tag-name": "good"}) if more else table
    tail = view.tail(idle=0) if more else view.tail(start=how["start"], idle=0)
    assert sorted(ids(tail)) == [*range(first, 12)]
    table.append(rows(100, 1))
    assert ids(tail) == [100]


def test_a_consumer_begins_there_too_and_keeps_the_rest():
    table = spread()
    assert sorted(ids(table.tail("c", start="good", idle=0))) == [*range(2, 12)]
    table.append(rows(100, 1))
    assert ids(table.tail("c", idle=0)) == [100]


def test_a_stream_that_waits_at_a_tag_goes_on_as_well():
    """It had read up to the tag; what followed expired while it was away."""
    table = new()
    table.append(rows(0, 2))
    table.create_tag("good")
    feed = Feed(table.context, table.schema)
    position = feed.advance(first_position(table.context, {}))
    for number in range(1, 5):
        table.append(rows(2 * number, 2))
    expire(table)
    assert delivered(table, position)[0] == [*range(2, 10)]


def test_compaction_of_what_came_later_only_changes_nothing():
    partitioned = new(schema=SCHEMA, partition_by=["dt"])
    partitioned.append([{"id": 1, "dt": "a", "v": ""}])
    partitioned.create_tag("good")
    for i in range(2, 8):
        partitioned.append([{"id": i, "dt": "b", "v": ""}])
    partitioned.compact(full=True)
    partitioned.append([{"id": 8, "dt": "a", "v": ""}])
    partitioned.append([{"id": 9, "dt": "a", "v": ""}])
    expire(partitioned)
    assert sorted(ids(partitioned.tail(start="good", idle=0))) == [*range(1, 10)]


def test_old_files_that_were_compacted_among_themselves_are_left_out():
    table = new()
    for i in range(6):
        table.append(rows(i, 1))
    table.create_tag("good")
    table.compact(full=True)
    table.append(rows(6, 1))
    table.append(rows(7, 1))
    expire(table)
    assert ids(table.tail(start="good", idle=0)) == [5, 6, 7]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda t: t.compact(full=True), "compaction has put earlier and later rows into the same files"),
        (lambda t: t.overwrite(rows(50, 1)), r"snapshot 4 \(OVERWRITE\) may have taken rows away"),
        (lambda t: t.rollback("good"), r"snapshot 4 \(OVERWRITE\) may have taken rows away"),
    ],
)
def test_the_true_reason_is_told(spoil, reason):
    table = new()
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    table.create_tag("good")
    table.append(rows(4, 2))
    spoil(table)
    for i in range(3):
        table.append(rows(100 + i, 1))
    expire(table)
    with pytest.raises(NotFoundError, match=reason):
        ids(table.tail(start="good", idle=0))


def test_snapshots_that_nobody_archived_are_not_trusted():
    table = new()
    for i in range(6):
        table.append(rows(i, 1))
        if i == 1:
            table.create_tag("good")
    for number in (3, 4):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    with pytest.raises(NotFoundError, match="nothing is known of snapshot 4"):
        ids(table.tail(start="good", idle=0))


def test_appends_of_other_engines_are_not_trusted():
    table = new()
    for i in range(6):
        table.append(rows(i, 1))
        if i == 1:
            table.create_tag("good")
    for number in range(3, 7):
        rewrite(table, number, properties={})
    table = type(table)(replace(table.context, cache=MetadataCache()))
    expire(table)
    with pytest.raises(NotFoundError, match="written by another engine"):
        ids(table.tail(start="good", idle=0))


def delivered(table, position, limits=None):
    """Rows from a position on, by bucket, and where the stream stands then; one step if limits are given."""
    feed = Feed(table.context, table.schema)
    end = feed.advance(position) if limits is None else feed.advance(position, limits)
    found, by_bucket = [], {}
    for split in feed.splits(position, end):
        read = [r["id"] for batch in table.scan().reader.read(split.split) for r in batch.to_pylist()]
        found += read
        by_bucket.setdefault((split.partition, split.bucket), []).extend(read)
    return sorted(found), end, by_bucket


class Story:
    """A table, and what was done to it: of each commit the rows that it added, and whether it took any away."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        queue = self.chance.random() < 0.4
        options = {"bucket": "2", "bucket-key": "id"} if queue else {}
        self.is_queue = queue
        self.table = new(schema=SCHEMA, partition_by=["dt"], options=options)
        self.log, self.tags, self.next, self.live = {}, {}, 0, set()
        self.gaps = 0

    def rows(self, count):
        first, self.next = self.next, self.next + count
        return [{"id": i, "dt": self.chance.choice("abc"), "v": "x"} for i in range(first, self.next)]

    def note(self, before, added):
        """What the commit did that came, if there was one: rows that it added, and whether it took others away."""
        head, now = self.table.snapshot, set(ids_of(self.table))
        if head is not None and head.id != before:
            self.log[head.id] = [row["id"] for row in added], bool(self.live - now)
        self.live = now

    def go(self, steps):
        for _ in range(steps):
            table, head = self.table, self.table.snapshot
            before = 0 if head is None else head.id
            match self.chance.choices(
                ["append", "compact", "overwrite", "tag", "savepoint", "expire", "rollback"],
                [10, 1.5, 0.3, 2, 1, 2, 0.15],
            )[0]:
                case "append":
                    added = self.rows(self.chance.randint(1, 3))
                    table.append(added)
                    self.note(before, added)
                case "compact" if before:
                    table.compact(full=self.chance.random() < 0.6)
                    self.note(before, [])
                case "overwrite" if before:
                    added = self.rows(1)
                    table.overwrite(added, {"dt": added[0]["dt"]})
                    self.note(before, added)
                case "tag" if before and not self.tags:
                    self.tag(head.id)
                case "tag" | "savepoint" if before:
                    self.tag(head.id)
                case "expire" if before:
                    expire(table, self.chance.randint(2, 4))
                case "rollback" if before and self.tags:
                    table.rollback(self.chance.choice([*self.tags]))
                    self.note(before, [])

    def tag(self, number):
        name = f"t{len(self.tags)}"
        self.tags[name] = number
        self.table.create_tag(name)

    def expected(self, first):
        """Ids from what a snapshot added on; None if something was taken away by it or since."""
        since = [self.log[i] for i in sorted(self.log) if i >= first]
        return None if any(took for _, took in since) else sorted(i for added, _ in since for i in added)

    def check(self, name):
        """Whether the stream from a tag could go on; what it delivers is right then."""
        table, first = self.table, self.tags[name]
        expected = self.expected(first)
        has_gap = table.context.snapshots.find(first + 1) is None and first < table.snapshot.id
        found, order = [], {}
        try:
            position = first_position(table.context, {"scan.tag-name": name})
            while True:
                limits = Limits(files=self.chance.randint(1, 3)) if self.chance.random() < 0.7 else None
                here = type(table)(replace(table.context, cache=MetadataCache()))
                step, end, by_bucket = delivered(here, position, limits)
                found += step
                for bucket, read in by_bucket.items():
                    order.setdefault(bucket, []).extend(read)
                if end == position:
                    break
                position = end
        except (NotFoundError, OptionError) as error:
            if expected is not None:
                assert has_gap, (name, error)
                assert re.search(r"same files|\(OVERWRITE\) may have", error.message), error
            return False
        assert expected is not None, "what was taken away was passed over without a word"
        assert Counter(found) == Counter(expected)
        if self.is_queue:
            assert all(read == sorted(read) for read in order.values())
        self.gaps += has_gap
        return True


def play(seeds):
    gaps = told = 0
    for seed in seeds:
        story = Story(seed)
        story.go(25)
        told += sum(story.check(name) for name in story.tags)
        gaps += story.gaps
    return gaps, told


@pytest.mark.long
def test_random_histories():
    gaps, told = play(range(2))
    assert gaps >= 2, "streams went over gaps"
    assert told > gaps


@pytest.mark.long
def test_many_random_histories():
    gaps, _ = play(range(1_000, 1_250))
    assert gaps > 50
