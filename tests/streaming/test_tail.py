"""Following a table without Spark, and reading what was appended between two snapshots."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import consumer_lags, find_consumer, forget_consumer, record_consumer
from anabranch.runtime import Runtime
from tests.support.tables import make_table, rows

_names = itertools.count()


@pytest.fixture
def table():
    return make_table(f"memory://tail{next(_names)}")


def ids(batches):
    return sorted(i for batch in batches for i in batch["id"].to_pylist())


def test_changes_are_the_rows_appended_in_between(table):
    for start in (0, 10, 20):
        table.append(rows(start, 2))
    table.compact(full=True)
    assert ids(table.changes(1).to_batches()) == [10, 11, 20, 21]
    assert table.changes(0, 2, columns=["id"]).to_arrow()["id"].to_pylist() == [0, 1, 10, 11]
    assert table.changes(0, filter="id > 10").to_polars()["id"].to_list() == [11, 20, 21]
    assert table.changes(4).to_arrow().num_rows == 0
    for start, end in ((5, None), (2, 1), (-1, None), (0, 9)):
        with pytest.raises(InvalidInputError, match="snapshots go up to 4"):
            table.changes(start, end)


def test_changes_over_an_overwrite_say_so(table):
    table.append(rows(0, 2))
    table.overwrite(rows(10, 1))
    with pytest.raises(OptionError, match="scan.on-overwrite"):
        table.changes(1).to_arrow()
    assert ids(table.changes(0, on_overwrite="added").to_batches()) == [0, 1, 10]
    assert ids(table.changes(0, on_overwrite="skip").to_batches()) == [0, 1]


def test_a_tail_gives_what_there_is_and_then_what_comes(table):
    table.append(rows(0, 2))
    tail = iter(table.tail())
    assert next(tail)["id"].to_pylist() == [0, 1]
    table.append(rows(2, 1))
    table.append(rows(3, 1))
    assert [next(tail)["id"].to_pylist() for _ in range(2)] == [[2], [3]]


def test_a_tail_waits_longer_and_longer_and_ends_when_told_to(table):
    pauses = []

    class Time:
        now = 0.0

        def sleep(self, seconds):
            pauses.append(seconds)
            self.now += seconds

        def monotonic(self):
            return self.now

        def now_millis(self):
            return int(self.now * 1000)

    time = Time()
    quiet = anabranch.Table(replace(table.context, runtime=Runtime(clock=time, sleeper=time)))
    assert list(quiet.tail(idle=10)) == []
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
    assert sum(pauses) == pytest.approx(10)
    assert max(pauses) <= 2


def test_a_consumer_goes_on_after_what_was_worked_through(table):
    table.append(rows(0, 1))
    tail = iter(table.tail("job", idle=0))
    assert ids([next(tail)]) == [0]
    assert ids(table.tail("job", idle=0)) == [0]  # the first reader died before it came back
    table.append(rows(1, 1))
    table.append(rows(2, 1))
    assert ids(table.tail("job", idle=0)) == [1, 2]
    assert ids(table.tail("job", idle=0)) == []
    assert find_consumer(table.context, "job").next_snapshot == 4
    assert ids(table.tail("other", start="latest", idle=0)) == []


def test_a_consumer_that_another_engine_moved_is_taken_at_its_word(table):
    for i in range(3):
        table.append(rows(i, 1))
    assert ids(table.tail("job", idle=0)) == [0, 1, 2]
    record_consumer(table.context, "job", Consumer(2))
    assert ids(table.tail("job", idle=0)) == [1, 2]


def test_a_consumer_keeps_what_it_has_not_read_from_expiring(table):
    table.append(rows(0, 1))
    assert ids(table.tail("job", idle=0)) == [0]
    for i in range(1, 6):
        table.append(rows(i, 1))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert [s.id for s in table.snapshots()][-1] <= 2
    assert ids(table.tail("job", idle=0)) == [1, 2, 3, 4, 5]
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert [s.id for s in table.snapshots()] == [6, 5]


def test_lag_in_snapshots_rows_and_time(table):
    table.append(rows(0, 2))
    list(table.tail("job", idle=0))
    assert [(lag.name, lag.snapshots, lag.rows, lag.millis) for lag in consumer_lags(table.context)] == [
        ("job", 0, 0, 0)
    ]
    table.append(rows(2, 3))
    table.append(rows(5, 1))
    table.compact(full=True)
    (lag,) = consumer_lags(table.context)
    assert (lag.snapshots, lag.rows) == (3, 4)
    forget_consumer(table.context, "job")
    with pytest.raises(NotFoundError, match="'job'"):
        forget_consumer(table.context, "job")


def test_a_consumer_of_a_table_made_anew_is_refused(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    list(table.tail("job", idle=0))
    stored = table.context.storage.get(table.context.layout.consumer_path("job"))
    lake = anabranch.connect(str(tmp_path))
    lake.drop_table("db.t")
    again = make_table(tmp_path)
    again.append(rows(5, 1))
    again.context.storage.put(again.context.layout.consumer_path("job"), stored)
    with pytest.raises(InvalidInputError, match="belongs to table"):
        list(again.tail("job", idle=0))


def test_a_tail_begins_at_a_moment_or_by_a_mode(table):
    for number in range(4):
        table.append(rows(number, 1))
    table.create_tag("good", snapshot=2)
    table.create_savepoint()
    table.append(rows(4, 1))
    everything_after = {
        "latest": [],
        "latest-full": [0, 1, 2, 3, 4],
        "snapshot.3": [2, 3, 4],
        "good": [1, 2, 3, 4],
        "savepoint.1": [3, 4],
        5: [4],
        6: [],
    }
    for start, expected in everything_after.items():
        assert ids(table.tail(start=start, idle=0)) == expected, start
    asked = anabranch.Table(table.context, options={"scan.snapshot-id": "2"})
    assert ids(asked.tail(start="from-snapshot", idle=0)) == [1, 2, 3, 4]
    assert ids(asked.tail(start="from-snapshot-full", idle=0)) == [0, 1, 2, 3, 4]
    assert ids(asked.tail(start="snapshot.5", idle=0)) == [4]
    assert ids(table.at("good").tail(idle=0)) == [0, 1, 2, 3, 4]
    for moment, view in (("snapshot.3", 3), ("savepoint.1", "savepoint.1"), ("good", "good")):
        pinned = table.at(view)
        assert ids(pinned.tail(idle=0)) == [0, 1, 2, 3, 4], moment
        assert ids(pinned.tail(start="from-snapshot", idle=0)) == everything_after[moment]
        assert ids(pinned.tail(start="latest", idle=0)) == []
        assert ids(pinned.tail(start=5, idle=0)) == [4]
    since = table.with_options({"scan.timestamp-millis": str(table.at(3).snapshot.time_millis)})
    assert set(ids(since.tail(start="from-timestamp", idle=0))) >= {2, 3, 4}
    with pytest.raises(NotFoundError, match="'lates'"):
        list(table.tail(start="lates", idle=0))


def test_a_tail_that_begins_at_a_tag_goes_on_although_its_snapshot_has_expired(table):
    for number in range(3):
        table.append(rows(2 * number, 1))
        table.append(rows(2 * number + 1, 1))
        if number == 0:
            table.create_tag("good")
    asked = anabranch.Table(table.context, options={"scan.tag-name": "good"})
    tail = asked.tail("job", start="from-snapshot-full", max_files=1, idle=0)
    assert ids([next(iter(tail))]) == [0]
    list(itertools.islice(tail, 2))  # the first file is acknowledged, the second is not
    table.context.storage.delete(table.context.layout.snapshot_path(1))
    table.context.storage.delete(table.context.layout.snapshot_path(2))
    assert ids(table.tail("job", idle=0)) == [1, 2, 3, 4, 5]


def test_a_step_is_no_larger_than_asked_for(table):
    for number in range(6):
        table.append(rows(number, 2))

    def positions(**limits):
        tail = table.tail("job", idle=0, start=1, **limits)
        seen = [find_consumer(table.context, "job").next_snapshot for _ in tail]
        forget_consumer(table.context, "job")
        return seen

    assert positions(max_files=2) == positions(max_rows=5) == [1, 1, 3, 3, 5, 5]
    assert positions(max_bytes=1) == [1, 2, 3, 4, 5, 6]
    assert positions() == [1] * 6
    with pytest.raises(OptionError, match="maxRowsPerTrigger"):
        table.tail(max_rows=0)
    table.alter().set_option("read.stream.maxFilesPerTrigger", "2").apply()
    assert positions() == [1, 1, 3, 3, 5, 5]
    assert positions(max_files=3) == [1, 1, 1, 4, 4, 4]


def test_a_tail_iterated_over_again_goes_on_with_what_was_not_worked_through(table):
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    tail = table.tail(start=1, max_files=1, idle=0)
    assert ids(itertools.islice(tail, 2)) == [0, 1]
    assert ids(tail) == [1]
    assert ids(tail) == []


def test_a_tail_of_changes_keeps_the_rows_that_may_be_taken_away(table):
    table.append(rows(0, 2))
    assert len(list(table.tail("job", idle=0, on_overwrite="changes"))) == 1
    (lag,) = consumer_lags(table.context)
    assert (lag.snapshots, lag.next_snapshot) == (0, 2)
    table.overwrite(rows(5, 1))
    for i in range(6, 9):
        table.append(rows(i, 1))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    found = [(i, c) for b in table.tail("job", idle=0, on_overwrite="changes")
             for i, c in zip(b["id"].to_pylist(), b["_change"].to_pylist(), strict=True)]  # fmt: skip
    assert found[:3] == [(0, "delete"), (1, "delete"), (5, "insert")]
    assert sorted(found[3:]) == [(6, "insert"), (7, "insert"), (8, "insert")]
    (lag,) = consumer_lags(table.context)
    assert lag.snapshots == 0
    record_consumer(table.context, "job", Consumer(5))  # another engine's word counts as before
    assert len(list(table.tail("job", idle=0, on_overwrite="changes"))) == 1


def test_a_bounded_tail_ends_by_itself():
    table = make_table(
        f"memory://tail{next(_names)}", schema="id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts"
    )
    for second in (10, 20, 30):
        moment = pa.array([second * 10**6], pa.int64()).cast(pa.timestamp("us"))
        table.append(pa.table({"id": pa.array([second], pa.int64()), "ts": moment}))
    bounded = anabranch.Table(table.context, options={"scan.bounded.watermark": "20000"})
    assert ids(bounded.tail()) == [10, 20]
    assert ids(bounded.tail(start=2)) == [20]
    assert ids(bounded.tail(start="latest")) == []
    table.alter().set_option("scan.bounded.watermark", "20000").apply()
    assert ids(anabranch.Table(table.context).tail()) == [10, 20]
