"""What lineage answers of single histories, asked as users ask it."""

import pytest

import anabranch
from anabranch import InvalidInputError, NotFoundError
from anabranch.lineage.model import TableInput
from anabranch.streaming.offsets import BEGINNING, Position
from tests.lineage.chains import found, make_chain
from tests.support.tables import SCHEMA, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(f"memory://{tmp_path.name}")


@pytest.fixture
def chain(lake):
    return make_chain(lake)


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
        assert found(trace) == {
            "orders": (),
            "db.raw": ((1, 2),),
            "db.clean": ((1, 2),),
            "db.daily": ((1, 1),),
        }
        assert trace.jobs == ("collect", "clean", "daily")
        assert [(flow.job, flow.commits) for flow in trace.flows] == [
            ("collect", 2),
            ("clean", 2),
            ("daily", 1),
        ]
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
            "db.plain, snapshots 1..2: not said where the rows come from",
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
        assert clean.lineage.downstream().snapshots("db.clean") == ((1, 6),)  # 5 has no rows of its own
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

    def test_changes_of_a_rollback_that_brought_nothing_back(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        a.append(rows(1, 1))
        a.rollback("snapshot.1")
        with lake.job("poll"):
            assert len(a.changes(2, 3, on_overwrite="added").to_arrow()) == 0
            b.append(rows(0, 1))
        assert found(b.lineage.upstream(1)) == {"db.b": ((1, 1),)}
        assert b_of(a.lineage.downstream()) == set()

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
        assert [(flow.job, flow.kind) for flow in trace.flows] == [
            ("merge-branch fix", "merge"),
            ("copy", "job"),
        ]
        assert trace.jobs == ("copy",)
        assert fix.lineage.downstream(2).flows == ()
        assert b.lineage.upstream().snapshots("db.a$branch_fix") == ((4, 4),)

    def test_a_job_that_reads_what_it_writes(self, lake, tables):
        a, _ = tables
        a.append(rows(0, 1))
        for _ in range(12):
            with lake.job("again"):
                a.append(a.changes(a.snapshot.id - 1).to_arrow())
        trace = a.lineage.downstream(1)
        assert trace.snapshots("db.a") == ((1, 13),)
        assert [(flow.source == flow.sink, flow.commits) for flow in trace.flows] == [(True, 12)]
        assert trace.datasets[0].depth == 0
        assert a.lineage.downstream(8).snapshots("db.a") == ((8, 13),)
        assert a.lineage.upstream(8).snapshots("db.a") == ((1, 8),)
        assert a.lineage.upstream(8, depth=3).snapshots("db.a") == ((5, 8),)
        assert a.lineage.downstream(8, depth=3).snapshots("db.a") == ((8, 11),)

    def test_a_commit_without_rows_derives_nothing(self, lake, tables):
        a, b = tables
        a.append(rows(0, 1))
        with lake.job("filter"):
            b.append(a.scan(filter="id > 5").to_arrow())
        assert b.snapshot is None or b_of(a.lineage.downstream()) == set()
        a.compact(full=True)
        with lake.job("poll"):
            b.append(a.changes(1).to_arrow() if len(a.changes(1).to_arrow()) else rows(0, 1))
        assert found(b.lineage.upstream()).keys() == {"db.b"}


def b_of(trace):
    return {i for first, last in trace.snapshots("db.b") for i in range(first, last + 1)}
