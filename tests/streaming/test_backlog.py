"""A stream that has fallen behind asks side by side, plans many snapshots as one, and gives what it gave before."""

import itertools

import pyarrow as pa
import pytest

from anabranch.errors import CorruptTableError
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import UNLIMITED, Limits
from anabranch.streaming.offsets import BEGINNING, Position
from tests.kernel.expiring import fill, new_table, through
from tests.support.clock import Clock
from tests.support.depth import cost_of
from tests.support.forged import forge_history
from tests.support.lengths import first_short


def feed_of(table, **options):
    context = table.context
    return Feed.of(context, context.schemas.latest(), options)


def steps(feed, limits=UNLIMITED, start=BEGINNING):
    position = start
    while (end := feed.advance(position, limits)) != position:
        yield feed.splits(position, end)
        position = end


def long_table(count):
    table = new_table(Clock())
    fill(table, 1)
    forge_history(table, count)
    return table


@pytest.mark.parametrize("limits", first_short([UNLIMITED, Limits(files=40)]), ids=["unlimited", "limited"])
def test_a_backlog_is_asked_for_side_by_side(limits):
    files = []

    def follow(table):
        for splits in steps(feed_of(table), limits):
            files.extend(file for split in splits for file in split.files)

    calls, depth = cost_of(long_table(300), follow)
    assert len(files) == 301
    assert calls <= 4 * 301
    assert depth < calls / 3


def test_what_a_limited_step_planned_is_not_planned_again():
    watched = through(long_table(100))
    feed = feed_of(watched)
    end = feed.advance(BEGINNING, Limits(files=30))
    storage = watched.context.storage
    storage.forget_calls()
    splits = feed.splits(BEGINNING, end)
    assert sum(len(split.files) for split in splits) == 30
    assert not [path for name, path in storage.calls if path.startswith("manifest/")]


def test_a_stream_that_is_up_to_date_asks_for_no_more_than_what_is_new():
    table = long_table(20)
    watched = through(table)
    feed = feed_of(watched)
    (_,) = steps(feed)
    storage = watched.context.storage
    position = Position.after(watched.snapshot)
    storage.forget_calls()
    assert feed.advance(position) == position
    assert storage.counts()["get"] <= 6
    fill(table, 1)
    storage.forget_calls()
    end = feed.advance(position)
    assert len(feed.splits(position, end)) == 1
    assert end.snapshot == position.snapshot + 1
    assert storage.counts()["get"] <= 12


def busy_table(**options):
    """Partitions in changing order, several files at a time, rows taken away, files rewritten."""
    table = new_table(Clock(), **options)
    letters = itertools.cycle("cabdbca")
    for number in range(24):
        rows = [{"id": 10 * number + i, "p": next(letters) if i % 2 else None} for i in range(1 + number % 4)]
        data = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))
        (table.overwrite if number % 5 == 4 else table.append)(data)
        if number % 7 == 6:
            table.compact()
    return table


@pytest.mark.parametrize(
    "asked", first_short([{}, {"scan.plan-sort-partition": "true"}]), ids=["plain", "sorted"]
)
@pytest.mark.parametrize(
    "options", first_short([{}, {"bucket": "3", "bucket-key": "id"}, {"bucket": "1"}]), ids=str
)
@pytest.mark.parametrize("policy", ["added", "changes", "skip"])
def test_many_snapshots_planned_together_have_the_files_of_each_alone(options, asked, policy):
    table = busy_table(**options)
    feed = feed_of(table, **asked, **{"scan.on-overwrite": policy})
    portions = [*feed._portions(BEGINNING, None)]
    assert len(portions) >= 24
    together = feed._listing.files_of(portions)
    assert together == [feed._listing.files(portion) for portion in portions]
    assert sum(map(len, together)) > 30


def test_a_damaged_snapshot_ahead_stops_the_stream_where_it_lies():
    table = long_table(40)
    storage, layout = table.context.storage, table.context.layout
    storage.put(layout.snapshot_path(30), b"nonsense")
    feed = feed_of(through(table))
    taken = []

    def follow():
        for splits in steps(feed, Limits(files=3)):
            taken.extend(file for split in splits for file in split.files)

    with pytest.raises(CorruptTableError, match="snapshot-30"):
        follow()
    assert len(taken) == 27
