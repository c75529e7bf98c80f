import random

import pytest

from anabranch.errors import NotFoundError, OptionError
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.offsets import BEGINNING, Position
from tests.streaming.history import ROW_BYTES, History, names
from tests.support.lengths import first_short


@pytest.fixture
def history(tmp_path):
    return History.new(tmp_path)


def feed(history, **how):
    return Feed(history.context, history.schema, **how)


def at(snapshot):
    return Position(snapshot.id, snapshot.stamp)


def files_between(feed_, start, end):
    return [name for split in names(feed_.splits(start, end)) for name in split]


def test_an_empty_table_has_nothing_yet(history):
    assert feed(history).advance(BEGINNING) == BEGINNING
    assert feed(history).splits(BEGINNING, BEGINNING) == []


def test_appends_are_delivered_once_and_compactions_never(history):
    history.append("f1")
    history.append("f2", "f3")
    history.compact("f1", "f2", into="big")
    last = history.append("f4")
    source = feed(history)
    end = source.advance(BEGINNING)
    assert end == at(last)
    assert files_between(source, BEGINNING, end) == ["f1", "f2", "f3", "f4"]
    assert source.advance(end) == end
    assert source.splits(end, end) == []


def test_a_compaction_alone_moves_the_position_without_rows(history):
    start = at(history.append("f1"))
    compacted = history.compact("f1", into="big")
    end = feed(history).advance(start)
    assert end == at(compacted)
    assert feed(history).splits(start, end) == []


def test_a_whole_snapshot_is_what_lives_in_it(history):
    history.append("f1", "f2")
    head = history.compact("f1", "f2", into="big")
    later = history.append("f3")
    source = feed(history)
    start = Position(head.id, head.stamp, files=0, full=True)
    assert files_between(source, start, source.advance(start)) == ["big", "f3"]
    assert source.advance(start) == at(later)
    assert files_between(source, start, at(head)) == ["big"]


def test_limits_cut_inside_of_a_snapshot_and_count_rows_and_bytes(history):
    head = history.append("f1", "f2", "f3", rows=4)
    source = feed(history)
    for limits in (Limits(files=2), Limits(rows=8), Limits(bytes=8 * ROW_BYTES), Limits(files=3, rows=11)):
        middle = source.advance(BEGINNING, limits)
        assert middle == Position(head.id, head.stamp, files=2, listing="by-creation")
        assert files_between(source, BEGINNING, middle) == ["f1", "f2"]
        assert files_between(source, middle, source.advance(middle, limits)) == ["f3"]
    # A file larger than the limit is taken all the same, alone.
    assert source.advance(BEGINNING, Limits(rows=1)).files == 1


@pytest.mark.parametrize("seed", first_short(range(4), 2))
def test_any_steps_deliver_every_file_once_in_order(history, seed):
    chance = random.Random(seed)
    written = 0
    for _ in range(8):
        fresh = [f"f{written + i:03}" for i in range(chance.randint(1, 4))]
        written += len(fresh)
        if chance.random() < 0.3:
            history.append(*fresh, partition="b", rows=chance.randint(1, 5))
        else:
            history.append(*fresh, rows=chance.randint(1, 5))
            if chance.random() < 0.3:
                history.compact(fresh[0], into=f"big{written}")
    head = history.context.snapshots.head()
    source = feed(history)
    full = chance.random() < 0.5
    start = Position(head.id, head.stamp, 0, full=True) if full else BEGINNING
    expected = files_between(source, start, at(head))
    assert len(expected) == (len(set(expected)))
    delivered, position = [], start
    while True:
        limits = chance.choice(
            [Limits(files=chance.randint(1, 5)), Limits(rows=7), Limits(bytes=60, files=3)]
        )
        following = feed(history).advance(position, limits)
        if following == position:
            break
        found = files_between(feed(history), position, following)
        assert found == files_between(feed(history), position, following)  # a replay is the same
        delivered += found
        position = following
    assert position == at(head)
    assert sorted(delivered) == sorted(expected)
    if not full:
        assert delivered == sorted(delivered)


def test_a_step_ends_at_the_snapshot_it_may_take(history):
    first = history.append("f1")
    second = history.append("f2")
    history.append("f3")
    source = feed(history)
    assert source.advance(BEGINNING, until=second.id) == at(second)
    assert source.advance(at(second), until=second.id) == at(second)
    assert source.advance(at(second), until=first.id) == at(second)
    assert source.advance(BEGINNING, until=0) == BEGINNING


def test_an_overwrite_stops_the_stream_after_what_came_before_it(history):
    appended = history.append("f1")
    history.overwrite("f2")
    history.append("f3")
    source = feed(history)
    end = source.advance(BEGINNING)
    assert end == at(appended)
    with pytest.raises(OptionError, match=r"snapshot 2 of 'db.t' \(OVERWRITE\)") as caught:
        source.advance(end)
    assert "scan.on-overwrite=skip" in caught.value.hint


@pytest.mark.parametrize(("policy", "delivered"), [("skip", ["f1", "f3"]), ("added", ["f1", "f2", "f3"])])
def test_an_overwrite_can_be_skipped_or_delivered(history, policy, delivered):
    history.append("f1")
    history.overwrite("f2")
    last = history.append("f3")
    source = feed(history, on_overwrite=policy)
    assert source.advance(BEGINNING) == at(last)
    assert files_between(source, BEGINNING, at(last)) == delivered


def test_an_overwrite_that_replaced_nothing_is_an_append(history):
    history.append("f1")
    last = history.overwrite("f2", partition="b")
    source = feed(history)
    assert source.advance(BEGINNING) == at(last)
    assert files_between(source, BEGINNING, at(last)) == ["f1", "f2"]


def test_a_rewritten_history_is_an_error_with_a_way_out(history):
    history.append("f1")
    read = at(history.append("f2"))
    history.remove(2)
    with pytest.raises(NotFoundError, match=r"HISTORY_REWRITTEN.*the newest snapshot is 1"):
        feed(history).advance(read)
    history.append("other")
    with pytest.raises(NotFoundError, match=r"HISTORY_REWRITTEN.*snapshot 2 is another one now") as caught:
        feed(history).advance(read)
    assert "scan.mode=from-snapshot" in caught.value.hint
    with pytest.raises(NotFoundError, match="HISTORY_REWRITTEN"):
        feed(history).splits(at(history.context.snapshots.get(1)), read)


def test_a_rewritten_history_is_seen_although_the_position_has_expired(history):
    history.append("f1")
    read = at(history.append("f2"))
    history.remove(2)
    history.append("other")
    history.append("f3")
    history.remove(1, 2)
    with pytest.raises(NotFoundError, match="snapshot 3 was built on another one"):
        feed(history).advance(read)


def test_an_expired_position_goes_on_if_nothing_after_it_is_missing(history):
    read = at(history.append("f1"))
    last = history.append("f2")
    history.remove(1)
    source = feed(history)
    assert source.advance(read) == at(last)
    assert files_between(source, read, at(last)) == ["f2"]


def test_expired_snapshots_that_were_not_read_are_an_error(history):
    read = at(history.append("f1"))
    for name in ("f2", "f3", "f4"):
        last = history.append(name)
    history.remove(1, 2, 3)
    source = feed(history)
    for ask in (lambda: source.advance(read), lambda: source.splits(read, at(last))):
        with pytest.raises(
            NotFoundError, match=r"needs snapshot 2 of 'db.t', which has expired; the earliest is 4"
        ):
            ask()
    half = Position(3, "s", files=1)
    with pytest.raises(NotFoundError, match="needs snapshot 3"):
        source.advance(half)


def test_the_end_of_a_step_must_be_there(history):
    history.append("f1")
    with pytest.raises(NotFoundError, match="needs snapshot 4"):
        feed(history).splits(BEGINNING, Position(4, "s"))


def test_queues_have_one_split_a_bucket_in_the_order_of_commits(tmp_path):
    history = History.new(tmp_path, bucket=2, bucket_key="id")
    history.append("a1", bucket=0)
    history.append("b1", bucket=1)
    history.append("a2", bucket=0)
    history.append("p1", bucket=0, partition="b")
    last = history.append("a3", "a4", bucket=0)
    splits = feed(history).splits(BEGINNING, at(last))
    assert names(splits) == [["a1", "a2", "a3", "a4"], ["b1"], ["p1"]]
    assert [split.bucket for split in splits] == [0, 1, 0]


def test_scalable_tables_pack_small_files_of_several_commits(tmp_path):
    history = History.new(
        tmp_path, **{"source.split.open-file-cost": "1 b", "source.split.target-size": "40 b"}
    )
    for i in range(5):
        last = history.append(f"f{i}", rows=2)
    assert names(feed(history).splits(BEGINNING, at(last))) == [["f0", "f1"], ["f2", "f3"], ["f4"]]


def test_a_predicate_prunes_files_but_does_not_move_positions(history):
    history.append("a1", "a2")
    history.append("b1", "b2", partition="b")
    last = history.append("a3")
    wanted = feed(history, predicate=bind(parse("dt = 'b'"), history.schema.fields))
    assert files_between(wanted, BEGINNING, at(last)) == ["b1", "b2"]
    # Limits count only what is read.
    middle = wanted.advance(BEGINNING, Limits(files=1))
    assert (middle.snapshot, middle.files) == (2, 1)
    assert files_between(feed(history), middle, at(last)) == ["b2", "a3"]
