"""In which order a stream delivers files, and that no way of cutting it into steps changes what comes."""

import itertools
import random

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.errors import OptionError
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.format.schema.ddl import parse_columns
from anabranch.kernel.scan.partitions import in_order_of_values
from anabranch.storage.open import open_storage
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.offsets import BEGINNING, Position
from tests.streaming.history import History, names

_numbers = itertools.count()


@pytest.fixture
def history(tmp_path):
    return History.new(tmp_path)


def feed(history, **how):
    return Feed(history.context, history.schema, **how)


def at(snapshot):
    return Position(snapshot.id, snapshot.stamp)


def all_of(snapshot):
    return Position(snapshot.id, snapshot.stamp, files=0, full=True)


def delivered(source, start, end):
    return [name for split in names(source.splits(start, end)) for name in split]


def test_partitions_come_by_the_time_their_oldest_file_was_made(history):
    message = history.message
    history.write(
        message("c1", partition="c", created=300),
        message("a1", partition="a", created=200),
        message("b1", "b2", partition="b", created=100),
    )
    last = history.append("c2", partition="c", created=50)
    source = feed(history)
    # In what is added, an earlier snapshot's partitions come first; in the whole, the oldest.
    assert delivered(source, BEGINNING, at(last)) == ["b1", "b2", "a1", "c1", "c2"]
    assert delivered(source, all_of(last), at(last)) == ["c1", "c2", "b1", "b2", "a1"]


def test_files_of_engines_that_do_not_say_when_they_were_made_count_as_old(history):
    history.append("a1", partition="a", created=100)
    last = history.append("b1", partition="b")
    assert delivered(feed(history), all_of(last), at(last)) == ["b1", "a1"]


def test_partitions_come_by_value_if_asked_for(history):
    message = history.message
    history.write(message("c1", partition="c", created=1), message("a1", partition="a", created=2))
    history.write(message("n1", partition=None, created=3), message("B1", partition="B", created=4))
    last = history.write(message("a2", partition="a", created=5), message("c2", partition="c", created=6))
    source = feed(history, sort_partitions=True)
    in_order = ["n1", "B1", "a1", "a2", "c1", "c2"]
    assert delivered(source, BEGINNING, at(last)) == in_order
    assert delivered(source, all_of(last), at(last)) == in_order
    # A step that ends inside of a snapshot has the partitions that come first.
    middle = source.advance(all_of(last), Limits(files=3))
    assert delivered(source, all_of(last), middle) == ["n1", "B1", "a1"]
    assert delivered(source, middle, at(last)) == ["a2", "c1", "c2"]


@pytest.mark.parametrize("sort", [False, True])
def test_a_snapshot_that_an_earlier_release_began_is_finished_as_it_began(history, sort):
    # Its positions counted partitions in the order of the commit, and said nothing of that.
    message = history.message
    first = history.write(
        message("c1", partition="c", created=300),
        message("a1", partition="a", created=200),
        message("b1", "b2", partition="b", created=100),
    )
    last = history.write(message("b3", partition="b", created=9), message("a2", partition="a", created=8))
    source = feed(history, sort_partitions=sort)
    old = {"snapshot": 1, "stamp": first.stamp, "files": 2, "full": False}
    for full in (False, True):
        middle = Position.from_dict({**old, "full": full})
        assert delivered(source, middle, at(first)) == ["b1", "b2"]
        assert sorted(delivered(source, all_of(first) if full else BEGINNING, middle)) == ["a1", "c1"]
        third = source.advance(middle, Limits(files=1))
        assert delivered(source, middle, third) == ["b1"]
        assert delivered(source, third, source.advance(third, Limits(files=1))) == ["b2"]
        after = source.advance(middle, Limits(files=3))
        assert delivered(source, after, at(last)) == ["b3"]
        assert sorted(delivered(source, middle, after)) == ["a2", "b1", "b2"]


def test_the_end_of_a_step_is_not_taken_for_one_of_another_count(history):
    message = history.message
    history.write(message("c1", partition="c", created=1), message("a1", partition="a", created=2))
    middle = feed(history).advance(BEGINNING, Limits(files=1))
    assert delivered(feed(history), BEGINNING, middle) == ["c1"]
    with pytest.raises(OptionError, match="stands inside of snapshot 1") as caught:
        feed(history, sort_partitions=True).splits(BEGINNING, middle)
    assert "scan.plan-sort-partition" in caught.value.hint


def test_the_option_of_the_table_or_the_reader_decides(tmp_path):
    history = History.new(tmp_path, **{"scan.plan-sort-partition": "true"})
    context, schema = history.context, history.schema
    assert Feed.of(context, schema, {}).sort_partitions
    assert not Feed.of(context, schema, {"scan.plan-sort-partition": "false"}).sort_partitions


def test_values_are_compared_by_their_types(tmp_path):
    """As numbers, times and bytes of text, one field after the other, nulls first; whatever the fields are called."""
    fields = parse_columns("sort INT, `0` STRING, d DATE, v INT")
    catalog = FilesystemCatalog(open_storage(str(tmp_path)))
    schema = catalog.create_table(
        Identifier("db", "t"), fields, partition_by=["sort", "0", "d"]
    ).schemas.latest()
    ordered = [(None, "z", 5), (-5, None, None), (-5, "a", None), (-5, "a", -3), (-5, "a", 20), (2, "Z", 0)]
    ordered += [(2, "a", 0), (10, "", 0), (10, "é", 0), (10, "\U0001f600", 0)]
    rows = [with_arity(3, encode_row([f.type for f in fields[:3]], list(row))) for row in ordered]
    shuffled = random.Random(5).sample(rows, len(rows))
    assert in_order_of_values(pl.Series(shuffled, dtype=pl.Binary), schema).to_list() == rows


def written(seed):
    """Some history with all kinds of commits, in a queue of two buckets."""
    history = History.new(f"memory://cutting{next(_numbers)}", bucket=2, bucket_key="id")
    chance, count = random.Random(seed), 0

    def message():
        nonlocal count
        count += 1
        where = {"partition": chance.choice("abc"), "bucket": chance.randint(0, 1)}
        fresh = [f"f{count:03}{letter}" for letter in "xyz"[: chance.randint(1, 3)]]
        return history.message(*fresh, rows=chance.randint(1, 5), created=chance.randint(1, 99), **where)

    for number in range(chance.randint(3, 9)):
        kind = chance.random()
        if kind < 0.6:
            history.write(*(message() for _ in range(chance.randint(1, 4))))
        elif kind < 0.75 and history.context.snapshots.head() is not None:
            live = [f.file_name.removesuffix(".parquet") for f in history.live()]
            history.compact(*chance.sample(live, min(2, len(live))), into=f"big{number}")
        else:
            history.overwrite(f"over{number}", partition=chance.choice("abc"), bucket=chance.randint(0, 1))
    return history


def by_bucket(splits, delivered):
    """Adds what splits deliver to what came before, by partition and bucket."""
    for split in splits:
        found = [(f.file.path, f.removed, f.late_before) for f in split.files]
        delivered.setdefault((split.partition, split.bucket), []).extend(found)
    return delivered


limits = st.builds(
    Limits,
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 120),
    st.none() | st.integers(1, 12),
)


@pytest.mark.long
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    seed=st.integers(0, 10**6),
    full=st.booleans(),
    sort=st.booleans(),
    policy=st.sampled_from(["skip", "added", "changes"]),
    cuts=st.lists(limits, min_size=1, max_size=6),
)
def test_any_cutting_delivers_the_same_files_in_the_same_order(seed, full, sort, policy, cuts):
    history = written(seed)
    head = history.context.snapshots.head()
    start = all_of(history.context.snapshots.get(1 + seed % head.id)) if full else BEGINNING

    def source():
        return feed(history, on_overwrite=policy, sort_partitions=sort)

    expected = by_bucket(source().splits(start, at(head)), {})
    found, position, steps = {}, start, 0
    while True:
        following = source().advance(position, cuts[steps % len(cuts)])
        if following == position:
            break
        stored = Position.from_dict(following.to_dict())
        splits = source().splits(position, stored)
        assert splits == source().splits(position, stored)  # a replay is the same
        found = by_bucket(splits, found)
        position, steps = stored, steps + 1
    assert position == at(head)
    assert found == expected
