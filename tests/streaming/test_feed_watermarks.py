"""Watermarks on their way through a stream: which rows are late, how far event time has come, where a stream ends."""

import pytest

from anabranch.errors import NotFoundError, OptionError
from anabranch.format.records.snapshot import Snapshot
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.offsets import BEGINNING, Position
from anabranch.streaming.pace import Pace
from anabranch.streaming.scan_modes import first_position
from tests.streaming.history import History, names


@pytest.fixture
def history(tmp_path):
    return History.new(tmp_path)


def feed(history, **how):
    return Feed(history.context, history.schema, **how)


def at(snapshot: Snapshot):
    return Position(snapshot.id, snapshot.stamp)


def all_of(snapshot: Snapshot):
    return Position(snapshot.id, snapshot.stamp, files=0, full=True)


def marks(source, start, end):
    """Of each file its name, before what its rows are late, and the watermark it carries."""
    splits = source.splits(start, end)
    return [
        (name, f.late_before, f.watermark)
        for split, found in zip(splits, names(splits), strict=True)
        for f, name in zip(split.files, found, strict=True)
    ]


def test_rows_are_late_by_the_watermark_before_their_snapshot(history):
    history.append("f1")
    history.append("f2", watermark=100)
    history.append("f3", watermark=300)
    history.compact("f1", "f2", into="big")
    last = history.append("f4", watermark=200)
    assert last.watermark == 300
    assert [found[:2] for found in marks(feed(history), BEGINNING, at(last))] == [
        ("f1", None),
        ("f2", None),
        ("f3", 100),
        ("f4", 300),
    ]


def test_the_same_rows_are_late_whatever_the_steps(history):
    for number in range(1, 7):
        last = history.append(f"f{number}x", f"f{number}y", watermark=number * 10)
    source = feed(history)
    expected = [found[:2] for found in marks(source, BEGINNING, at(last))]
    position, delivered = BEGINNING, []
    while (end := source.advance(position, Limits(files=3))) != position:
        delivered += [found[:2] for found in marks(source, position, end)]
        position = end
    assert delivered == expected
    assert delivered[2:4] == [("f2x", 10), ("f2y", 10)]


def test_a_position_knows_the_watermark_after_its_snapshot_has_expired(history):
    history.append("f1", watermark=10)
    read = feed(history).advance(BEGINNING)
    last = history.append("f2", "f3", watermark=20)
    middle = feed(history).advance(read, Limits(files=1))
    history.remove(1)
    for start in (read, Position.from_dict(read.to_dict())):
        assert marks(feed(history), start, at(last)) == [("f2", 10, 20), ("f3", 10, 20)]
    assert marks(feed(history), middle, at(last)) == [("f3", 10, 20)]
    # Who begins there does not know it.
    assert marks(feed(history), Position(1, None), at(last))[0] == ("f2", None, 20)


def test_rows_that_were_there_are_never_late(history):
    history.append("f1", watermark=10)
    head = history.append("f2", watermark=20)
    last = history.append("f3", watermark=30)
    assert marks(feed(history), all_of(head), at(last)) == [
        ("f1", None, 30),
        ("f2", None, 30),
        ("f3", 20, 30),
    ]


def test_rows_taken_away_are_never_late(history):
    history.append("f1", watermark=10)
    last = history.overwrite("f2", watermark=20)
    source = feed(history, on_overwrite="changes")
    start = at(history.context.snapshots.get(1))
    assert [found[:2] for found in marks(source, start, at(last))] == [("f1", None), ("f2", 10)]


def test_a_step_carries_the_watermark_of_what_it_delivers_whole(history):
    first = history.append("f1", watermark=10)
    last = history.append("f2", "f3", watermark=20)
    source = feed(history)
    middle = source.advance(BEGINNING, Limits(files=2))
    assert {found[2] for found in marks(source, BEGINNING, middle)} == {10}
    assert marks(source, middle, at(last)) == [("f3", 10, 20)]
    # Of the whole table nothing is known before all of it is there.
    start = all_of(last)
    middle = source.advance(start, Limits(files=2))
    assert {found[2] for found in marks(source, start, middle)} == {None}
    assert marks(source, middle, at(last)) == [("f3", None, 20)]
    assert marks(source, BEGINNING, at(first)) == [("f1", None, 10)]


def test_late_rows_need_a_definition_of_the_watermark(history):
    for choice in ("drop", "only"):
        with pytest.raises(OptionError, match=f"scan.late-rows={choice} asks for late rows") as caught:
            Feed.of(history.context, history.schema, {"scan.late-rows": choice})
        assert "WATERMARK FOR" in caught.value.hint


def test_a_bounded_stream_ends_before_the_first_snapshot_beyond(history):
    history.append("f1")
    history.append("f2", watermark=100)
    last = history.append("f3", watermark=100)
    source = feed(history, bounded_watermark=100)
    assert source.advance(BEGINNING) == at(last)
    assert not source.is_ended(at(last))  # more of the same may come
    history.append("f4", watermark=101)
    history.append("f5")
    assert source.advance(BEGINNING) == at(last)
    assert source.advance(at(last)) == at(last)
    assert [found[0] for found in marks(source, BEGINNING, at(last))] == ["f1", "f2", "f3"]
    assert source.is_ended(at(last))
    assert not source.is_ended(BEGINNING)
    assert not feed(history).is_ended(at(last))
    assert feed(history, bounded_watermark=101).advance(BEGINNING).snapshot == 5


def test_an_overwrite_beyond_the_bound_is_nothing_to_stop_at(history):
    last = history.append("f1", watermark=100)
    history.overwrite("f2", watermark=200)
    source = feed(history, bounded_watermark=100)
    assert source.advance(at(last)) == at(last)
    assert source.is_ended(at(last))


def test_a_compaction_comes_before_the_end_or_is_the_end(history):
    history.append("f1", watermark=100)
    within = history.compact("f1", into="big")
    history.append("f2", watermark=200)
    source = feed(history, bounded_watermark=100)
    assert not source.is_ended(at(history.context.snapshots.get(1)))
    assert source.advance(BEGINNING) == at(within)
    assert source.is_ended(at(within))


def test_a_stream_that_begins_beyond_its_bound_is_ended(history):
    first = history.append("f1", "f2", watermark=100)
    history.append("f3", watermark=200)
    source = feed(history, bounded_watermark=50)
    assert source.advance(BEGINNING) == BEGINNING
    for start in (BEGINNING, at(first), Position(first.id, first.stamp, files=1)):
        assert source.advance(start) == start
        assert source.splits(start, start) == []
        assert source.is_ended(start)


def test_all_rows_of_a_bounded_stream_are_those_within_the_bound(history):
    for number in range(1, 10):
        head = history.append(f"f{number}", watermark=number * 10)
    source = feed(history, bounded_watermark=45)
    start = first_position(history.context, {"scan.bounded.watermark": "45"})
    assert start.full
    assert start.snapshot == 4 < head.id
    end = source.advance(start)
    assert end == at(history.context.snapshots.get(4))
    assert [found[0] for found in marks(source, start, end)] == ["f1", "f2", "f3", "f4"]
    assert source.is_ended(end)
    assert not source.is_ended(start)
    middle = source.advance(start, Limits(files=3))
    assert middle == Position(4, end.stamp, files=3, full=True, listing="by-creation")
    assert [found[0] for found in marks(source, start, middle)] == ["f1", "f2", "f3"]
    assert source.advance(middle) == end


def test_where_no_snapshot_lies_within_the_bound_nothing_is_delivered(history):
    history.append("f1", watermark=100)
    history.append("f2", watermark=200)
    source = feed(history, bounded_watermark=50)
    start = first_position(history.context, {"scan.bounded.watermark": "50"})
    assert start == BEGINNING
    assert source.advance(start) == start
    assert source.is_ended(start)


def test_a_bound_before_what_is_retained_is_an_error_with_a_way_out(history):
    for number in range(1, 5):
        history.append(f"f{number}", watermark=number * 10)
    history.remove(1, 2)
    with pytest.raises(
        NotFoundError, match="snapshot 3, the earliest that is left, has watermark 30"
    ) as caught:
        first_position(history.context, {"scan.bounded.watermark": "15"})
    assert "scan.bounded.watermark to 30 or more" in caught.value.hint


def test_what_was_planned_is_delivered_whatever_the_bound_is_then(history):
    for number in range(1, 6):
        history.append(f"f{number}", watermark=number * 10)
    start = first_position(history.context, {"scan.bounded.watermark": "35"})
    end = feed(history, bounded_watermark=35).advance(start)
    assert end.snapshot == 3
    for bound in (5, 25, 45, None):  # the query was restarted with another one
        source = feed(history, bounded_watermark=bound)
        assert [found[0] for found in marks(source, start, end)] == ["f1", "f2", "f3"]
        assert [found[0] for found in marks(source, BEGINNING, end)] == ["f1", "f2", "f3"]


def test_the_end_of_a_bounded_stream_does_not_wait_for_more_rows(history):
    history.append("f1", watermark=10)
    source = feed(history, bounded_watermark=15)
    pace = Pace(source, rows=100, delay_millis=3_600_000)
    pace.went()
    assert not pace.is_due(BEGINNING)
    history.append("f2", watermark=20)  # nothing more will ever come
    assert pace.is_due(BEGINNING)
    assert pace.is_due(source.advance(BEGINNING))
