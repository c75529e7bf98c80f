"""Streams that begin at a time, a tag, a savepoint, a watermark: what they deliver, and where they cannot begin."""

import pytest

from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.streaming.feed import Feed
from anabranch.streaming.history import held_snapshot
from anabranch.streaming.offsets import BEGINNING, Position
from anabranch.streaming.scan_modes import first_position, scan_mode
from tests.support.moments import COMMITS, copied_history, forget, rewrite, set_times
from tests.support.tables import rows


@pytest.fixture
def table():
    """Snapshot n is of time 1000 n and adds the row n - 1."""
    return copied_history()


def dotted(options):
    return {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}


def start(table, **options):
    return first_position(table.context, dotted(options))


def numbers(table, position):
    """Snapshots whose added rows a stream from this position delivers, by the row that each added."""
    feed = Feed(table.context, table.schema)
    splits = feed.splits(position, feed.advance(position))
    return sorted(row["id"] + 1 for split in splits for row in read(table, split))


def read(table, split):
    reader = table.scan().reader
    return [row for batch in reader.read(getattr(split, "split", split)) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "delivered"),
    [
        ({"scan__savepoint_id": 1}, [3, 4, 5, 6]),
        ({"scan__mode": "from-snapshot", "scan__savepoint_id": 1}, [3, 4, 5, 6]),
        ({"scan__mode": "from-snapshot-full", "scan__savepoint_id": 1}, [1, 2, 3, 4, 5, 6]),
        ({"scan__tag_name": "good"}, [4, 5, 6]),
        ({"scan__mode": "from-snapshot-full", "scan__tag_name": "good"}, [1, 2, 3, 4, 5, 6]),
        ({"scan__version": "good"}, [4, 5, 6]),
        ({"scan__version": "savepoint.1"}, [3, 4, 5, 6]),
        ({"scan__version": "snapshot.5"}, [5, 6]),
        ({"scan__version": "5"}, [5, 6]),
        ({"scan__version": "snapshot.7"}, []),
        ({"scan__mode": "from-snapshot-full", "scan__version": "5"}, [1, 2, 3, 4, 5, 6]),
        ({"scan__mode": "from-snapshot-full", "scan__snapshot_id": 2}, [1, 2, 3, 4, 5, 6]),
        ({"scan__timestamp_millis": 4000}, [4, 5, 6]),
        ({"scan__timestamp_millis": 4001}, [5, 6]),
        ({"scan__timestamp_millis": 0}, [1, 2, 3, 4, 5, 6]),
        ({"scan__timestamp": "1970-01-01 00:00:04"}, [4, 5, 6]),
        ({"scan__mode": "from-timestamp", "scan__timestamp": "1970-01-01 00:00:03.5"}, [4, 5, 6]),
        ({"scan__timestamp_millis": 100_000}, []),
        ({"scan__mode": "full"}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_stream_begins_where_it_is_told_to(table, options, delivered):
    table.create_savepoint("snapshot.3")
    table.create_tag("good", 4)
    assert numbers(table, start(table, **options)) == delivered


def test_full_delivers_the_snapshot_as_a_whole_and_then_what_came_after(table):
    position = start(table, scan__mode="from-snapshot-full", scan__snapshot_id=4)
    assert position == Position(4, table.context.snapshots.get(4).stamp, files=0, full=True)
    table.compact(full=True)
    assert numbers(table, position) == [1, 2, 3, 4, 5, 6]
    feed = Feed(table.context, table.schema)
    whole = feed.advance(position, until=4)
    assert whole == Position(4, position.stamp)


def test_a_watermark_is_the_first_snapshot_that_has_come_so_far(table):
    for number in range(1, COMMITS + 1):
        rewrite(table, number, watermark=100 * number)
    assert numbers(table, start(table, scan__watermark=250)) == [3, 4, 5, 6]
    assert numbers(table, start(table, scan__version="watermark-300")) == [3, 4, 5, 6]
    with pytest.raises(NotFoundError, match="no watermark of 601"):
        start(table, scan__watermark=601)
    forget(table, 1, 2)
    assert numbers(table, start(table, scan__watermark=350)) == [4, 5, 6]
    with pytest.raises(NotFoundError, match="earliest is 3") as caught:
        start(table, scan__watermark=300)  # an expired one may have been the first
    assert "scan.snapshot-id=3" in caught.value.hint


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("by", ["tag", "savepoint"])
def test_what_a_tag_or_savepoint_holds_is_delivered_although_its_snapshot_has_expired(table, by, full):
    if by == "tag":
        table.create_tag("good", 4)
    else:
        table.create_savepoint("snapshot.4")
    forget(table, 1, 2, 3, 4)
    which = {"scan__tag_name": "good"} if by == "tag" else {"scan__savepoint_id": 1}
    position = start(table, scan__mode="from-snapshot-full" if full else "from-snapshot", **which)
    assert position.snapshot == 4
    assert held_snapshot(table.context, position).id == 4
    assert numbers(table, position) == ([1, 2, 3, 4, 5, 6] if full else [4, 5, 6])


def test_a_tag_before_a_gap_is_no_place_to_begin(table):
    table.create_tag("good", 2)
    table.create_savepoint("snapshot.2")
    forget(table, 1, 2, 3)
    for which in ({"scan__tag_name": "good"}, {"scan__savepoint_id": 1}):
        for mode in ("from-snapshot", "from-snapshot-full"):
            with pytest.raises(
                NotFoundError, match=r"from snapshot 3 on, has expired; the earliest is 4"
            ) as caught:
                start(table, scan__mode=mode, **which)
            assert "scan.snapshot-id=4" in caught.value.hint
            assert "scan.mode=from-snapshot-full" in caught.value.hint


def test_an_expired_snapshot_is_no_place_to_begin(table):
    forget(table, 1, 2, 3)
    for mode in ("from-snapshot", "from-snapshot-full"):
        for name in ({"scan__snapshot_id": 3}, {"scan__version": "snapshot.3"}):
            with pytest.raises(NotFoundError, match=r"has expired; the earliest is 4") as caught:
                start(table, scan__mode=mode, **name)
            assert "scan.snapshot-id=4" in caught.value.hint
    assert numbers(table, start(table, scan__snapshot_id=4)) == [4, 5, 6]
    with pytest.raises(NotFoundError, match="the newest is 6"):
        start(table, scan__mode="from-snapshot-full", scan__snapshot_id=7)
    with pytest.raises(NotFoundError, match="snapshot 0 does not exist"):
        start(table, scan__version="snapshot.0")


def test_a_time_in_an_expired_gap_is_no_place_to_begin(table):
    forget(table, 1, 2, 3)
    for time in (0, 3500, 4000):  # up to 4000 an expired snapshot may have been committed at that time
        with pytest.raises(NotFoundError, match=r"has expired; the earliest is 4") as caught:
            start(table, scan__timestamp_millis=time)
        assert "scan.snapshot-id=4" in caught.value.hint
    assert numbers(table, start(table, scan__timestamp_millis=4001)) == [5, 6]


def test_a_savepoint_may_prove_that_nothing_expired_in_between(table):
    table.create_savepoint("snapshot.3")
    forget(table, 1, 2, 3)
    assert numbers(table, start(table, scan__timestamp_millis=3500)) == [4, 5, 6]
    with pytest.raises(NotFoundError, match="the earliest is 4"):
        start(table, scan__timestamp_millis=3000)


def test_several_snapshots_of_one_moment_are_all_delivered(table):
    set_times(table, {3: 3000, 4: 3000, 5: 3000})
    assert numbers(table, start(table, scan__timestamp_millis=3000)) == [3, 4, 5, 6]


def test_a_time_that_is_still_to_come_is_refused(table):
    later = table.context.runtime.clock.now_millis() + 3_600_000
    with pytest.raises(OptionError, match="still to come"):
        start(table, scan__timestamp_millis=later)


def test_an_empty_table_has_no_past_to_begin_in():
    from tests.support.tables import make_table

    table = make_table("memory://empty-starts")
    assert start(table, scan__timestamp_millis=5) == BEGINNING
    assert start(table, scan__snapshot_id=1) == BEGINNING
    with pytest.raises(NotFoundError, match="tag 'good' does not exist"):
        start(table, scan__tag_name="good")


def test_a_compaction_that_only_a_tag_holds_added_nothing(table):
    table.compact(full=True)
    table.create_tag("compacted", 7)
    table.append(rows(7, 1))
    forget(table, *range(1, 8))
    position = start(table, scan__tag_name="compacted")
    assert numbers(table, position) == [8]
    whole = start(table, scan__mode="from-snapshot-full", scan__tag_name="compacted")
    assert numbers(table, whole) == [1, 2, 3, 4, 5, 6, 8]


def test_a_tag_of_what_was_rolled_back_is_no_place_to_begin(table):
    table.create_tag("bad", 5)
    forget(table, 5, 6)
    table.append(rows(10, 1))
    with pytest.raises(NotFoundError, match="rolled back"):
        start(table, scan__tag_name="bad")
    table.create_tag("newest", 5)
    table.append(rows(11, 1))
    forget(table, 1, 2, 3, 4, 5)
    position = start(table, scan__mode="from-snapshot-full", scan__tag_name="newest")
    assert numbers(table, position) == [1, 2, 3, 4, 11, 12]
    with pytest.raises(NotFoundError, match="rolled back|was not built on it"):
        start(table, scan__mode="from-snapshot-full", scan__tag_name="bad")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan__snapshot_id": 1, "scan__tag_name": "good"}, "begins at one point"),
        ({"scan__timestamp": "2026-01-01", "scan__timestamp_millis": 5}, "begins at one point"),
        (
            {"scan__mode": "latest", "scan__timestamp_millis": 5},
            "takes none, but scan.timestamp-millis is set",
        ),
        ({"scan__mode": "latest-full", "scan__tag_name": "good"}, "takes none"),
        (
            {"scan__mode": "from-snapshot", "scan__timestamp_millis": 5},
            "takes scan.snapshot-id, .* or scan.wat",
        ),
        (
            {"scan__mode": "from-timestamp", "scan__snapshot_id": 5},
            "takes scan.timestamp or scan.timestamp-millis",
        ),
        ({"scan__mode": "from-timestamp"}, "scan.timestamp is not set"),
        ({"scan__mode": "from-snapshot-full"}, "scan.snapshot-id is not set"),
    ],
)
def test_contradictions_are_refused_with_a_way_out(table, options, message):
    with pytest.raises(OptionError, match=message) as caught:
        start(table, **options)
    assert caught.value.hint


def test_the_default_is_the_mode_of_the_option_that_is_there():
    def mode(**options):
        return scan_mode(dotted(options))

    assert mode() == mode(scan__mode="full") == "latest-full"
    assert mode(scan__timestamp="2026-01-01") == mode(scan__timestamp_millis=1) == "from-timestamp"
    for name in ("snapshot_id", "savepoint_id", "watermark"):
        assert mode(**{f"scan__{name}": 1}) == "from-snapshot"
    assert mode(scan__tag_name="x") == mode(scan__version="x") == "from-snapshot"


def test_a_name_of_two_things_is_not_guessed(table):
    from tests.support.moments import foreign_tag

    foreign_tag(table, "3", 5)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        start(table, scan__version="3")
    assert numbers(table, start(table, scan__tag_name="3")) == [5, 6]
    assert numbers(table, start(table, scan__snapshot_id=3)) == [3, 4, 5, 6]


def test_a_position_in_what_a_tag_held_is_found_again_until_the_tag_goes(table):
    table.create_tag("good", 3)
    forget(table, 1, 2, 3)
    position = start(table, scan__mode="from-snapshot-full", scan__tag_name="good")
    assert numbers(table, position) == [1, 2, 3, 4, 5, 6]
    other = Position(3, "another stamp", files=0, full=True)
    assert held_snapshot(table.context, other) is None
    table.context.storage.delete(table.context.layout.tag_path("good"))
    assert held_snapshot(table.context, position) is None
    with pytest.raises(NotFoundError, match="has expired"):
        numbers(table, position)
