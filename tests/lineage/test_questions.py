"""What lineage answers of single histories, asked as users ask it."""

import json
import pickle

import pyarrow as pa
import pytest

import anabranch
from anabranch import InvalidInputError, NotFoundError
from anabranch.lineage.model import SourceInput, TableInput
from anabranch.streaming.offsets import BEGINNING, Position
from anabranch.table import Table
from tests.support.tables import SCHEMA, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path / "warehouse"))


@pytest.fixture
def chain(lake):
    """``raw`` has 4 snapshots; ``clean`` takes them one by one, and ``daily`` twice all there was in ``clean``."""
    raw, clean, daily = (lake.create_table(f"db.{name}", SCHEMA) for name in ("raw", "clean", "daily"))
    for number in range(1, 5):
        with lake.job("collect") as job:
            job.read_from("orders", kind="kafka", start=at(number - 1), end=at(number))
            raw.append(rows(number, 1))
        with lake.job("clean", code=f"v{number}"):
            clean.append(raw.changes(number - 1, number).to_arrow())
        if number % 2 == 0:
            with lake.job("daily"):
                daily.replace(clean.scan().to_arrow())
    return raw, clean, daily


def at(number):
    return {"orders": {"0": 10 * number}}


def found(trace):
    return {dataset.name: dataset.snapshots for dataset in trace.datasets}


class TestDirections:
    def test_downstream_of_a_commit(self, chain):
        raw, _, _ = chain
        trace = raw.lineage.downstream(3)
        assert found(trace) == {"db.raw": ((3, 3),), "db.clean": ((3, 3),), "db.daily": ((2, 2),)}
        assert trace.tables == ("db.raw", "db.clean", "db.daily")
        assert trace.jobs == ("clean", "daily")
        assert [dataset.depth for dataset in trace.datasets] == [0, 1, 2]
        assert trace.question == "downstream of db.raw, snapshot 3"
        assert trace.problems == ()

    def test_upstream_of_a_commit(self, chain):
        _, _, daily = chain
        trace = daily.lineage.upstream(1)
        assert found(trace) == {"orders": (), "db.raw": ((1, 2),), "db.clean": ((1, 2),), "db.daily": ((1, 1),)}
        assert trace.jobs == ("collect", "clean", "daily")
        assert [(flow.job, flow.commits) for flow in trace.flows] == [("collect", 2), ("clean", 2), ("daily", 1)]
        assert [dataset.depth for dataset in trace.datasets] == [3, 2, 1, 0]
        assert [dataset.kind for dataset in trace.datasets] == ["kafka", "table", "table", "table"]

    def test_impact_is_downstream_by_another_name(self, chain):
        raw, _, _ = chain
        trace = raw.lineage.impact("3..4")
        assert trace.question == "impact of db.raw, snapshots 3..4"
        assert found(trace) == {"db.raw": ((3, 4),), "db.clean": ((3, 4),), "db.daily": ((2, 2),)}

    def test_depth_limits_the_steps(self, chain):
        raw, _, daily = chain
        assert raw.lineage.downstream(1, depth=1).tables == ("db.raw", "db.clean")
        assert daily.lineage.upstream(1, depth=1).tables == ("db.clean", "db.daily")
        assert daily.lineage.upstream(1, depth=2).tables == ("db.raw", "db.clean", "db.daily")
        assert "orders" in found(daily.lineage.upstream(1, depth=3))
        with pytest.raises(InvalidInputError, match="depth is 0"):
            raw.lineage.downstream(depth=0)

    def test_nothing_was_derived(self, chain):
        _, _, daily = chain
        trace = daily.lineage.downstream()
        assert found(trace) == {"db.daily": ((1, 2),)}
        assert trace.flows == ()

    def test_a_commit_that_brought_no_rows(self, lake, chain):
        raw, _, _ = chain
        raw.compact(full=True)
        trace = raw.lineage.upstream(5)
        assert found(trace) == {"db.raw": ()}
        assert trace.problems == ("db.raw, snapshot 5: nothing there brought rows of its own",)

    def test_what_is_not_said_is_told(self, lake):
        plain, copy = lake.create_table("db.plain", SCHEMA), lake.create_table("db.copy", SCHEMA)
        plain.append(rows(0, 1))
        plain.append(rows(1, 1))
        with lake.job("copy") as job:
            job.problem("what it looked up elsewhere")
            copy.append(plain.scan().to_arrow())
        assert copy.lineage.upstream().problems == (
            "db.copy, snapshot 1: what it looked up elsewhere",
            "db.plain, snapshots 1..2 do not say where their rows come from",
        )


class TestNames:
    def test_ranges(self, chain):
        raw, _, _ = chain
        raw.create_tag("good", snapshot=2)
        raw.create_savepoint()
        for asked, snapshots in {
            2: (2, 2),
            "2": (2, 2),
            "snapshot.2": (2, 2),
            "good": (2, 2),
            "savepoint.1": (4, 4),
            "2..3": (2, 3),
            "2..": (2, 4),
            "..2": (1, 2),
            "good..": (2, 4),
            "good..savepoint.1": (2, 4),
            " 2 .. 99 ": (2, 4),
        }.items():
            assert raw.lineage.downstream(asked).snapshots("db.raw") == (snapshots,), asked

    @pytest.mark.parametrize(
        ("asked", "error", "message"),
        [
            ("..", InvalidInputError, "names no snapshots"),
            ("3..2", InvalidInputError, "begins at snapshot 3 and ends at 2"),
            ("5..", InvalidInputError, "begins at snapshot 5 and ends at 4"),
            ("bad", NotFoundError, "tag 'bad' does not exist"),
            ("bad..", NotFoundError, "tag 'bad' does not exist"),
            (9, NotFoundError, "knows no snapshot 9 of 'db.raw': the newest is 4"),
        ],
    )
    def test_what_is_no_range(self, chain, asked, error, message):
        with pytest.raises(error, match=message):
            chain[0].lineage.impact(asked)

    def test_commits_that_have_expired(self, chain):
        raw, _, _ = chain
        raw.expire_snapshots(retain_max=2, retain_min=1, older_than=2**53)
        assert next(iter(raw.context.snapshots.ids())) == 3
        assert found(raw.lineage.downstream(1)) == {
            "db.raw": ((1, 1),),
            "db.clean": ((1, 1),),
            "db.daily": ((1, 2),),
        }
        assert raw.lineage.producer(1).entry.job == "collect"

    def test_a_view_of_a_moment_is_what_it_contains(self, lake, chain):
        _, clean, daily = chain
        clean.rollback("snapshot.1")
        with lake.job("late"):
            clean.append(rows(9, 1))
        assert clean.lineage.downstream().snapshots("db.clean") == ((1, 4), (6, 6))
        now = clean.at(6).lineage
        assert now.upstream().snapshots("db.clean") == ((1, 1), (6, 6))
        assert now.upstream().snapshots("db.raw") == ((1, 1),)
        assert now.upstream().question == "upstream of db.clean as of snapshot.6"
        assert daily.at(2).lineage.upstream().snapshots("db.daily") == ((2, 2),)

    def test_two_mains_had_a_snapshot_of_that_number(self, lake):
        t, copy = lake.create_table("db.t", SCHEMA), lake.create_table("db.copy", SCHEMA)
        t.append(rows(0, 1))
        t.create_branch("fix", snapshot=1, tag="good")
        t.append(rows(1, 1))
        with lake.job("copy"):
            copy.append(t.scan().to_arrow())
        lake.table("db.t$branch_fix").append(rows(2, 1))
        t.replace_main_branch("fix", force=True)
        with lake.job("copy"):
            copy.append(t.changes(1, 2).to_arrow())
        with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT"):
            t.lineage.downstream(2)
        assert found(t.lineage.downstream("main@1.snapshot.2")) == {
            "db.t$branch_main@1": ((2, 2),),
            "db.copy": ((1, 1),),
        }
        assert found(t.lineage.downstream("main.snapshot.2")) == {"db.t": ((2, 2),), "db.copy": ((2, 2),)}
        # What both have was committed on the old main.
        assert found(t.lineage.downstream(1)) == {"db.t$branch_main@1": ((1, 1),), "db.copy": ((1, 1),)}


class TestReads:
    """What a commit took in, by how it read."""

    @pytest.fixture
    def tables(self, lake):
        return lake.create_table("db.a", SCHEMA), lake.create_table("db.b", SCHEMA)

    def took(self, tables, start, end):
        a, b = tables
        with Table(b.context, lineage=b._lineage_source)._lineage_source_job(a, start, end):
            pass

    def test_a_stream_that_begins_with_all_rows(self, lake, tables):
        a, b = tables
        for number in range(4):
            a.append(rows(number, 1))
        a.replace(rows(4, 1))
        a.append(rows(5, 1))
        stamps = {s.id: s.stamp for s in a.snapshots()}
        batches = [
            (Position(2, stamps[2], 0, full=True), Position(3, stamps[3])),
            (Position(5, stamps[5], 0, full=True), Position(5, stamps[5])),
            (Position(3, stamps[3]), Position(5, stamps[5], 1)),
            (Position(5, stamps[5], 1), Position(6, stamps[6])),
            (Position(5, stamps[5]), Position(6, stamps[6], 0)),
            (BEGINNING, Position(6, stamps[6])),
        ]
        for start, end in batches:
            with lake.job("stream") as job:
                job.register(TableInput(a.name, a.table_uuid, a.branch_uuid, start, end))
                b.append(rows(0, 1))
                job._reads.clear()
        upstream = [b.lineage.upstream(number).snapshots("db.a") for number in range(1, 7)]
        assert upstream == [((1, 3),), ((5, 5),), ((4, 5),), ((5, 6),), (), ((1, 6),)]
        downstream = {number: b_of(a.lineage.downstream(number)) for number in range(1, 7)}
        assert downstream == {
            1: {1, 6},
            2: {1, 6},
            3: {1, 6},
            4: {3, 6},
            5: {2, 3, 4, 6},
            6: {4, 6},
        }

    def test_a_rollback_brings_no_rows_of_its_own(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.append(rows(1, 1))
        a.rollback("snapshot.1")
        with lake.job("copy"):
            b.append(a.scan().to_arrow())
        assert b.lineage.upstream(1).snapshots("db.a") == ((1, 1),)
        assert b_of(a.lineage.downstream(1)) == {1}
        assert b_of(a.lineage.downstream(2)) == set()
        assert b_of(a.lineage.downstream(3)) == set()

    def test_changes_of_a_rollback_are_what_it_brought_back(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.append(rows(1, 1))
        a.replace(rows(2, 1))
        a.rollback("snapshot.2")
        with lake.job("copy"):
            b.append(a.changes(3, 4, on_overwrite="added").to_arrow())
        assert b.lineage.upstream(1).snapshots("db.a") == ((1, 2),)
        assert [b_of(a.lineage.downstream(number)) for number in (1, 2, 3)] == [{1}, {1}, set()]

    def test_rows_that_come_again_because_files_were_rewritten(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.append(rows(1, 1))
        a.compact(full=True)
        a.rollback("snapshot.2")
        with lake.job("copy"):
            again = a.changes(3, 4, on_overwrite="added").to_arrow()
            assert len(again) == 2
            b.append(again)
        assert b.lineage.upstream(1).snapshots("db.a") == ((1, 2),)
        assert b_of(a.lineage.downstream(1)) == {1}

    def test_a_branch_is_main_up_to_its_fork(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.append(rows(1, 1))
        a.create_branch("fix", snapshot=1, tag="good")
        fix = lake.table("db.a$branch_fix")
        fix.append(rows(2, 1))
        with lake.job("copy"):
            b.append(fix.scan().to_arrow())
        with lake.job("copy"):
            b.append(fix.at(1).scan().to_arrow())
        assert found(b.lineage.upstream(1)) == {
            "db.a": ((1, 1),),
            "db.a$branch_fix": ((2, 2),),
            "db.b": ((1, 1),),
        }
        assert found(b.lineage.upstream(2)) == {"db.a": ((1, 1),), "db.b": ((2, 2),)}
        assert b_of(a.lineage.downstream(1)) == b_of(fix.lineage.downstream(1)) == {1, 2}
        assert b_of(a.lineage.downstream(2)) == set()
        assert found(fix.lineage.downstream())["db.a"] == ((1, 1),)

    def test_a_merge_brings_what_the_branch_contained(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.create_branch("fix", snapshot=1, tag="good")
        fix = lake.table("db.a$branch_fix")
        fix.append(rows(1, 1))
        fix.rollback("snapshot.1")
        fix.append(rows(2, 1))
        a.merge_branch("fix")
        with lake.job("copy"):
            b.append(a.scan().to_arrow())
        trace = fix.lineage.downstream(4)
        assert found(trace) == {"db.a$branch_fix": ((4, 4),), "db.a": ((2, 2),), "db.b": ((1, 1),)}
        assert [(flow.job, flow.kind) for flow in trace.flows] == [("merge-branch fix", "merge"), ("copy", "job")]
        assert trace.jobs == ("copy",)
        assert fix.lineage.downstream(2).flows == ()
        assert b.lineage.upstream().snapshots("db.a$branch_fix") == ((4, 4),)

    def test_a_job_that_reads_what_it_writes(self, lake, tables):
        a, _ = tables
        a.append(rows(0, 1))
        for _ in range(30):
            with lake.job("again"):
                a.append(a.changes(a.snapshot.id - 1).to_arrow())
        trace = a.lineage.downstream(1)
        assert trace.snapshots("db.a") == ((1, 31),)
        assert [(flow.source == flow.sink, flow.commits) for flow in trace.flows] == [(True, 30)]
        assert trace.datasets[0].depth == 0
        assert a.lineage.downstream(20).snapshots("db.a") == ((20, 31),)
        assert a.lineage.upstream(20).snapshots("db.a") == ((1, 20),)
        assert a.lineage.upstream(20, depth=3).snapshots("db.a") == ((17, 20),)

    def test_a_commit_without_rows_derives_nothing(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        with lake.job("filter"):
            b.append(a.scan(filter="id > 5").to_arrow())
        if b.snapshot is not None:
            assert b_of(a.lineage.downstream()) == set()


def b_of(trace):
    return {i for first, last in trace.snapshots("db.b") for i in range(first, last + 1)}


class TestPositions:
    def test_where_a_job_goes_on(self, lake, chain):
        raw, clean, daily = chain
        clean.create_tag("good", snapshot=2)
        (answer,) = clean.lineage.positions(at="good")
        assert (answer.table, answer.snapshot, answer.job, answer.commit) == ("db.clean", 2, "clean", 2)
        assert answer.made_on == "db.clean"
        (source,) = answer.sources
        assert (source.kind, source.name) == ("table", "db.raw")
        assert source.position["snapshot"] == 2
        assert json.loads(source.options["scan.start-offset"]) == source.position
        with lake.job("clean-2"):
            rest = raw.with_options(source.options).tail(idle=0, start=None) if False else None
        assert rest is None
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

    def test_a_batch_names_only_what_was_new(self, lake, chain):
        raw, _, _ = chain
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
        assert [dataset.name for dataset in every.datasets] == ["db.alone", "orders", "db.raw", "db.clean", "db.daily"]
        assert all(dataset.snapshots == () for dataset in every.datasets)
        assert [(flow.job, flow.commits) for flow in every.flows] == [("collect", 4), ("clean", 4), ("daily", 2)]
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

    def test_a_table_travels_with_what_it_is_asked_by(self, chain):
        raw, _, _ = chain
        before = raw.lineage.downstream()
        assert pickle.loads(pickle.dumps(raw)).lineage.downstream() == before

    def test_a_table_by_its_path_knows_itself(self, chain):
        _, clean, daily = chain
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
