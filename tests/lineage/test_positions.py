"""From where jobs go on, what made a snapshot, and what there is in a warehouse."""

import json
import pickle

import pytest

import anabranch
from anabranch import CorruptTableError, NotFoundError
from anabranch.kernel.actions.append import Append
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput, TableInput
from anabranch.streaming.offsets import BEGINNING, Position
from anabranch.table import Table
from tests.lineage.chains import at, found, make_chain
from tests.support.tables import SCHEMA, rows, written


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(f"memory://{tmp_path.name}")


@pytest.fixture
def chain(lake):
    return make_chain(lake)


def commit_of(table, job, query, read):
    """One batch of a streaming query."""
    entry = LineageEntry(job, "run", None, Engine("spark", query=query, batch=0), (read,))
    table.commit(Append(written(table, 0, 1)), properties={LINEAGE_PROPERTY: entry.to_json()})


def make_unreadable(lake, table):
    """Leave a branch of which nobody can read what it is, once lineage knows of it, and commit once more."""
    table.create_branch("broken", snapshot=1)
    lake.lineage.catch_up()
    layout = table.branch("broken").context.layout
    table.context.storage.put(layout.branch_file_path("FORK"), b"{")
    with lake.job("clean"):
        table.append(rows(99, 1))


class TestATableThatCannotBeRead:
    def test_positions_may_be_old(self, lake, chain):
        _, clean, daily = chain
        make_unreadable(lake, clean)
        (answer,) = clean.lineage.positions()
        assert answer.commit == 4
        (unread,) = answer.unread
        assert unread.startswith("db.clean: branch/branch-broken/FORK: ")
        assert answer.problems[-1] == unread
        (other,) = daily.lineage.positions()
        assert (other.problems, other.unread) == ((unread,), ())

    def test_of_which_nothing_is_known_is_an_error(self, lake, chain):
        _, clean, _ = chain
        make_unreadable(lake, clean)
        lake.lineage.rebuild()
        with pytest.raises(
            CorruptTableError, match=r"does not know who wrote to 'db.clean': db.clean: .*FORK"
        ):
            clean.lineage.positions()

    def test_what_is_not_found_may_be_there(self, lake, chain):
        _, clean, daily = chain
        make_unreadable(lake, clean)
        with pytest.raises(
            NotFoundError, match=r"no snapshot 5 of 'db.clean': the newest is 4; db.clean: .*FORK"
        ):
            clean.lineage.producer(5)
        with pytest.raises(
            NotFoundError, match=r"no snapshot 5 of 'db.clean': the newest is 4; db.clean: .*FORK"
        ):
            clean.lineage.downstream(5)
        assert "FORK" in daily.lineage.producer(1).problems[-1]

    def test_jobs_may_have_done_more(self, lake, chain):
        assert {job.problems for job in lake.lineage.jobs()} == {()}
        make_unreadable(lake, chain[1])
        assert all("FORK" in problem for job in lake.lineage.jobs() for problem in job.problems)
        assert all(job.problems for job in lake.lineage.jobs())


class TestPositions:
    def test_where_a_job_goes_on(self, lake, chain):
        _, clean, daily = chain
        clean.create_tag("good", snapshot=2)
        (answer,) = clean.lineage.positions(at="good")
        assert (answer.table, answer.snapshot, answer.job, answer.commit) == ("db.clean", 2, "clean", 2)
        assert answer.made_on == "db.clean"
        (source,) = answer.sources
        assert (source.kind, source.name) == ("table", "db.raw")
        assert source.position["snapshot"] == 2
        assert json.loads(source.options["scan.start-offset"]) == source.position
        assert clean.at("good").lineage.positions() == clean.lineage.positions("good")
        (answer,) = clean.lineage.positions()
        assert answer.sources[0].position["snapshot"] == 4
        (answer,) = daily.lineage.positions()
        assert (answer.job, answer.commit, answer.sources[0].position["snapshot"]) == ("daily", 2, 4)

    def test_of_kafka(self, chain):
        raw, _, _ = chain
        (answer,) = raw.lineage.positions(3)
        (source,) = answer.sources
        assert (source.kind, source.name, source.position) == ("kafka", "orders", at(3))
        assert source.options == {"startingOffsets": '{"orders":{"0":30}}'}
        assert answer.problems == ()

    def test_a_batch_names_only_what_was_new(self, lake):
        sink = lake.create_table("db.sink", SCHEMA)
        reads = [
            SourceInput("kafka", "source 0", at(0), at(1)),
            SourceInput("files", "source 1", None, {"logOffset": 0}, "/inbox"),
            SourceInput("kafka", "source 0", at(1), at(2)),
        ]
        for read in reads:
            with lake.job("stream") as job:
                job.register(read)
                sink.append(rows(0, 1))
        (answer,) = sink.lineage.positions()
        assert [(source.name, source.position) for source in answer.sources] == [
            ("orders", at(2)),
            ("/inbox", {"logOffset": 0}),
        ]
        assert answer.problems == ("/inbox: no option of a reader says this position exactly",)
        assert found(sink.lineage.upstream(2)) == {"/inbox": (), "db.sink": ((2, 2),)}

    def test_rows_that_were_rolled_back_do_not_count(self, chain):
        _, clean, _ = chain
        clean.rollback("snapshot.2")
        (answer,) = clean.lineage.positions()
        assert (answer.snapshot, answer.commit, answer.sources[0].position["snapshot"]) == (5, 2, 2)

    def test_rows_that_came_by_a_merge_count(self, lake, chain):
        raw, clean, _ = chain
        clean.create_branch("fix", snapshot=2, tag="good")
        clean.rollback("snapshot.2")
        fix = lake.table("db.clean$branch_fix")
        with lake.job("clean"):
            fix.append(raw.changes(2, 3).to_arrow())
        clean.merge_branch("fix", allow_source_overlap=True)
        (answer,) = clean.lineage.positions()
        assert (answer.commit, answer.made_on) == (3, "db.clean$branch_fix")
        assert answer.sources[0].position["snapshot"] == 3

    def test_a_query_that_was_started_anew_begins_anew(self, lake):
        """The places of its sources say nothing of those that the earlier one of its name had."""
        sink = lake.create_table("db.sink", SCHEMA)
        commit_of(sink, "stream", "q1", SourceInput("kafka", "source 0", at(0), at(5)))
        commit_of(sink, "stream", "q1", SourceInput("kafka", "source 1", at(0), {"visits": {"0": 7}}))
        commit_of(sink, "stream", "q2", SourceInput("kafka", "source 0", at(0), at(2)))
        (answer,) = sink.lineage.positions()
        assert [source.position for source in answer.sources] == [at(2)]
        (answer,) = sink.lineage.positions(2)
        assert [source.position for source in answer.sources] == [at(5), {"visits": {"0": 7}}]

    def test_who_goes_on_without_a_query_counts_too(self, lake, chain):
        raw, _, _ = chain
        sink = lake.create_table("db.sink", SCHEMA)
        commit_of(sink, "stream", "q1", SourceInput("kafka", "source 0", at(0), at(5)))
        commit_of(sink, "stream", None, SourceInput("kafka", "source 0", at(5), at(9)))
        with lake.job("stream"):  # rows of a table as it was: the stream is where it was
            sink.append(raw.scan().to_arrow())
        (answer,) = sink.lineage.positions()
        assert (answer.commit, answer.sources[0].position) == (2, at(9))

    def test_inside_of_a_snapshot(self, lake, chain):
        raw, _, _ = chain
        sink = lake.create_table("db.sink", SCHEMA)
        stamp = raw.snapshot.stamp
        inside = Position(4, stamp, 1, listing="values", watermark=7)
        commit_of(
            sink, "stream", "q", TableInput(raw.name, raw.table_uuid, raw.branch_uuid, BEGINNING, inside)
        )
        (answer,) = sink.lineage.positions()
        offset = json.loads(answer.sources[0].options["scan.start-offset"])
        assert Position.from_dict(offset) == inside
        assert (offset["files"], offset["listing"]) == (1, "values")

    def test_a_state_was_read_to_its_end(self, chain):
        _, _, daily = chain
        (answer,) = daily.lineage.positions()
        offset = json.loads(answer.sources[0].options["scan.start-offset"])
        assert (offset["snapshot"], offset["files"], offset["full"]) == (4, None, False)

    def test_main_is_one_source_whichever_branch_was_main(self, lake, chain):
        raw, _, _ = chain
        sink = lake.create_table("db.sink", SCHEMA)
        old = TableInput(
            raw.name, raw.table_uuid, raw.branch_uuid, BEGINNING, Position(4, raw.snapshot.stamp)
        )
        commit_of(sink, "stream", "q", old)
        raw.create_branch("fix", snapshot=2, tag="good")
        fix = lake.table("db.raw$branch_fix")
        fix.append(rows(9, 1))
        raw.replace_main_branch("fix", force=True)
        new = TableInput(
            raw.name, raw.table_uuid, fix.branch_uuid, BEGINNING, Position(3, fix.snapshot.stamp)
        )
        commit_of(sink, "stream", "q", new)
        (answer,) = sink.lineage.positions()
        assert [(source.name, source.position["snapshot"]) for source in answer.sources] == [("db.raw", 3)]
        (answer,) = sink.lineage.positions(1)
        assert [source.name for source in answer.sources] == ["db.raw$branch_main@1"]

    def test_what_came_by_a_merge_may_be_behind_main(self, lake):
        """Of two commits that name a source, the one that had come further counts, not the one that came in later."""
        sink = lake.create_table("db.sink", SCHEMA)
        sink.append(rows(0, 1))
        sink.create_branch("fix", snapshot=1, tag="good")
        fix = lake.table("db.sink$branch_fix")
        commit_of(fix, "stream", "q", SourceInput("kafka", "source 0", at(0), at(3)))
        commit_of(sink, "stream", "q", SourceInput("kafka", "source 0", at(3), at(5)))
        sink.merge_branch("fix", allow_source_overlap=True)
        (answer,) = sink.lineage.positions()
        assert (answer.commit, answer.made_on) == (2, "db.sink$branch_fix")
        assert [source.position for source in answer.sources] == [at(5)]

    def test_nothing_was_written(self, lake):
        assert lake.create_table("db.t", SCHEMA).lineage.positions() == ()
        with pytest.raises(NotFoundError, match="nothing has made one"):
            lake.table("db.t").lineage.producer()


class TestProducer:
    def test_of_a_snapshot(self, chain):
        _, clean, _ = chain
        made = clean.lineage.producer(3)
        assert (made.table, made.snapshot, made.kind) == ("db.clean", 3, "APPEND")
        assert (made.entry.job, made.entry.code) == ("clean", "v3")
        assert clean.lineage.producer().snapshot == 4
        assert clean.at(2).lineage.producer().entry.code == "v2"
        assert made.to_dict()["entry"]["job"] == "clean"
        with pytest.raises(NotFoundError, match="knows no snapshot 7"):
            clean.lineage.producer(7)


class TestLake:
    def test_topology_and_jobs(self, lake, chain):
        lake.create_table("db.alone", SCHEMA)
        every = lake.lineage.topology()
        assert [dataset.name for dataset in every.datasets] == [
            "db.alone",
            "orders",
            "db.raw",
            "db.clean",
            "db.daily",
        ]
        assert all(dataset.snapshots == () for dataset in every.datasets)
        assert [(flow.job, flow.commits) for flow in every.flows] == [
            ("collect", 4),
            ("clean", 4),
            ("daily", 2),
        ]
        jobs = {job.name: job for job in lake.lineage.jobs()}
        assert list(jobs) == ["clean", "collect", "daily"]
        assert jobs["clean"].sources == ("db.raw",)
        assert jobs["clean"].sinks == ("db.clean",)
        assert (jobs["clean"].commits, jobs["clean"].code, jobs["clean"].engine) == (4, "v4", "anabranch")
        assert jobs["collect"].sources == ("orders",)

    def test_the_index_may_be_made_anew(self, lake, chain):
        raw, _, _ = chain
        before = raw.lineage.downstream()
        assert lake.lineage.catch_up().commits == 0
        assert lake.lineage.rebuild().commits == 10
        assert raw.lineage.downstream() == before

    def test_a_table_travels_with_what_it_is_asked_by(self, tmp_path):
        raw, _, _ = make_chain(anabranch.connect(str(tmp_path)))
        before = raw.lineage.downstream()
        assert pickle.loads(pickle.dumps(raw)).lineage.downstream() == before

    def test_a_table_by_its_path_knows_itself(self, chain):
        _, clean, _ = chain
        alone = Table(clean.context)
        assert found(alone.lineage.downstream()) == {"db.clean": ((1, 4),)}
        trace = alone.lineage.upstream(2)
        assert trace.snapshots("db.clean") == ((2, 2),)
        assert [flow.job for flow in trace.flows] == ["clean"]
        assert alone.branch("main").lineage.producer(2) == clean.lineage.producer(2)

    def test_a_table_that_cannot_be_read_is_told(self, lake, chain):
        raw, _, _ = chain
        broken = lake.create_table("db.broken", SCHEMA)
        broken.append(rows(0, 1))
        broken.context.storage.put("snapshot/snapshot-1", b"{")
        problems = raw.lineage.downstream().problems
        assert len(problems) == 1
        assert "db.broken" in problems[0]
