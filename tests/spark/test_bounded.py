"""Streams that end at a watermark."""

import json
import logging
import threading
import time
from types import SimpleNamespace

import pytest

import anabranch
import anabranch.spark
from anabranch.spark.context.notices import BoundReached, leave, make_folder, take
from anabranch.spark.source.data_source import AnabranchSource
from anabranch.spark.streams.bounded import Ends
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.tasks import stream_compaction as compaction
from anabranch.spark.types.columns import arrow_schema
from tests.spark.events import EVENTS, add, at, from_first


@pytest.fixture
def table(lake):
    made = lake.create_table("db.t", EVENTS)
    for minutes in ((1, 2, 12), (5, 8, 13), (31,), (40, 22)):
        add(made, *minutes)
    return made


def reader_of(table, notices=None, **options):
    asked = from_first(**{key.replace("_", "-").replace("--", "."): v for key, v in options.items()})
    return stream_reader(table, arrow_schema(table.schema.fields), asked, notices=notices)


def latest(reader, start):
    if HAS_READ_LIMITS:
        return reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, start)  # how Spark 4.1 tells where a query stands
    return reader.latestOffset()


class TestOffsets:
    """What a source says of its end."""

    def test_the_last_batch_is_marked(self, table):
        reader = reader_of(table, scan__bounded__watermark=at(26))
        end = latest(reader, reader.initialOffset())
        assert (end["snapshot"], end["ended"]) == (3, 1)
        assert latest(reader, end) == end

    def test_an_end_that_is_seen_later_is_marked_as_well(self, table):
        reader = reader_of(table, scan__bounded__watermark=at(35))
        last = latest(reader, reader.initialOffset())
        assert (last["snapshot"], "ended" in last) == (4, False)
        add(table, 41)
        end = latest(reader, last)
        assert end == {**last, "ended": 1}
        assert reader.partitions(last, end) == []

    def test_a_stream_of_a_branch_says_what_that_began_with(self, table):
        table.create_branch("fix", "begun", snapshot=2)
        reader = reader_of(table.branch("fix"), scan__snapshot_id="2")
        first = reader.initialOffset()
        assert first["begun"] == [[table.context.branch_uuid, 2]]
        add(table.branch("fix"), 41)
        end = latest(reader, first)
        assert (end["snapshot"], end["begun"]) == (3, first["begun"])
        assert latest(reader, json.loads(json.dumps(end))) == end
        assert "begun" not in reader_of(table).initialOffset()

    def test_a_stream_may_have_nothing_to_deliver(self, table):
        reader = reader_of(table, scan__bounded__watermark=at(6))
        start = reader.initialOffset()
        end = latest(reader, start)
        assert (end["snapshot"], end["ended"]) == (0, 1)
        assert reader.partitions(start, end) == []
        assert reader_of(table).partitions(start, json.loads(json.dumps(end))) == []

    def test_each_run_marks_the_end_once(self, table):
        options = {"scan__bounded__watermark": at(26)}
        first = reader_of(table, **options)
        end = latest(first, first.initialOffset())
        again = reader_of(table, **options)
        second = latest(again, end)
        assert second == {**end, "ended": 2}
        assert latest(again, second) == second

    def test_a_run_with_a_later_bound_takes_the_mark_away(self, table):
        first = reader_of(table, scan__bounded__watermark=at(26))
        end = latest(first, first.initialOffset())
        later = reader_of(table, scan__bounded__watermark=at(500))
        more = latest(later, end)
        assert (more["snapshot"], "ended" in more) == (4, False)
        marked = {**more, "ended": 1}
        assert latest(later, marked) == more

    def test_word_is_left_where_the_session_looks(self, table):
        folder = make_folder()
        reader = reader_of(table, notices=folder, scan__bounded__watermark=at(26))
        latest(reader, reader.initialOffset())
        context = table.context
        assert take(folder) == [BoundReached(context.table_uuid, context.branch_uuid)]
        folder.rmdir()


def offset(ended=0):
    return json.dumps({"source": "anabranch", "version": 1, "ended": ended})


class Query:
    """A query whose progress is as told; it takes what is available when asked."""

    def __init__(self, *ends, then=None):
        self.id, self.runId, self.name = "id", "run", "windows"
        self.isActive = True
        self._then = then
        self._show(ends)

    def _show(self, ends):
        self.lastProgress = SimpleNamespace(sources=[SimpleNamespace(endOffset=end) for end in ends])

    def processAllAvailable(self):
        if self._then is not None:
            self._show(self._then)

    def awaitTermination(self, timeout):
        return not self.isActive

    def stop(self):
        self.isActive = False


def looked(query, times=1, ends=None):
    if ends is None:
        ends = Ends()
        ends.expect()
    for _ in range(times):
        ends.look({("id", "run"): query})
        for thread in threading.enumerate():
            if thread.name == "anabranch-bounded":
                thread.join(10)
    return ends


class TestEnds:
    """Which queries are ended."""

    def test_one_whose_sources_have_all_ended(self, caplog):
        caplog.set_level(logging.INFO)
        query = Query(offset(1), offset(3))
        looked(query)
        assert not query.isActive
        assert caplog.messages == ["query 'windows' has come to its scan.bounded.watermark and is ended"]

    def test_one_of_a_session_that_gave_no_answer_once(self):
        query, ends = Query(offset(1)), Ends()
        ends.expect()
        ends.look({})
        looked(query, ends=ends)
        assert not query.isActive

    @pytest.mark.parametrize("other", [offset(), '{"o": 1}', "7", None, "not json"])
    def test_one_with_another_source_goes_on_and_that_is_said_once(self, caplog, other):
        query = Query(offset(1), other)
        looked(query, times=3)
        assert query.isActive
        assert caplog.messages == [
            "query 'windows' goes on: 1 of its 2 sources have come to their scan.bounded.watermark"
        ]

    def test_one_that_repeated_the_last_batch_of_an_earlier_run_goes_on(self):
        query = Query(offset(1), then=[offset()])
        looked(query)
        assert query.isActive
        assert not anabranch.spark.await_bounded(query, timeout=0)

    def test_one_without_a_batch_goes_on(self):
        query = Query()
        query.lastProgress = None
        looked(query)
        assert query.isActive

    def test_nothing_is_looked_for_when_no_query_is_left(self):
        ends = looked(Query(offset()))
        for _ in range(9):
            ends.look({})
        assert ends
        ends.look({})
        assert not ends


def test_a_notice_may_be_of_either_kind(tmp_path):
    leave(BoundReached("t", "b"), tmp_path)
    leave(BoundReached("t", "b"), tmp_path)
    assert take(tmp_path) == [BoundReached("t", "b")]


def started(frame, name, checkpoint):
    sink = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
    return sink.start()


def windows(frame):
    from pyspark.sql import functions as F

    return frame.groupBy(F.window("at", "10 minutes")).count()


@pytest.mark.long
@pytest.mark.spark
def test_the_session_ends_a_query_at_its_bound(spark, warehouse, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="anabranch")
    lake = anabranch.connect(warehouse, spark=spark)
    table = lake.create_table("db.t", EVENTS)
    add(table, 1, 2, 12)
    bounded = lake.read_stream("db.t", **from_first(scan__bounded__watermark=at(26)))
    query = started(windows(bounded), "bounded", tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        add(table, 5, 8, 13)
        add(table, 31)  # watermark 26: the last that is delivered
        assert not query.awaitTermination(1)
        add(table, 32, 14)  # watermark 27
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sorted(row["count"] for row in spark.table("bounded").collect()) == [2, 4]
    assert sum(p.numInputRows for p in query.recentProgress) == 7
    assert "query 'bounded' has come to its scan.bounded.watermark and is ended" in caplog.text


@pytest.fixture
def elsewhere(spark):
    """The source in a session whose process does not look for the end of streams."""

    class Elsewhere(AnabranchSource):
        @classmethod
        def name(cls):
            return "anabranch-elsewhere"

    spark.dataSource.register(type("Elsewhere", (Elsewhere,), {}))
    for watcher in compaction._WATCHERS:  # it may still look for the end that a test before was about
        watcher._ends = Ends()
    return "anabranch-elsewhere"


@pytest.mark.long
@pytest.mark.spark
def test_without_the_session_a_helper_waits_for_the_end(spark, warehouse, table, tmp_path, elsewhere):
    reader = spark.readStream.format(elsewhere).options(warehouse=warehouse)
    stream = reader.options(**from_first(scan__bounded__watermark=at(26))).load("db.t")
    query = started(stream, "waited", tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        time.sleep(1.5)
        assert query.isActive
        assert anabranch.spark.await_bounded(query, timeout=120)
        assert not query.isActive
    finally:
        query.stop()
    assert sorted(row["id"] for row in spark.table("waited").collect()) == [10, 20, 50, 80, 120, 130, 310]
    assert anabranch.spark.await_bounded(query)
