"""Compaction against everything that may be committed while it works: one test for each row of `kernel.conflicts`."""

import itertools
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.arrow.rewrite import rewrite
from anabranch.engine import LocalEngine
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.snapshot import CommitKind
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.format.types.data_types import DecimalType
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.compact import Compact
from anabranch.kernel.commit.base import Change
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.kernel.compaction.planning import plan_full
from anabranch.kernel.compaction.selection import live_files
from anabranch.maintenance.rewrites import commit_rewrites, write_context
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table

_names = itertools.count()
SMALL = {"compaction.min.file-num": "2", "compaction.max.file-num": "2"}


def by_day(**how):
    return make_table(
        f"memory://cells{next(_names)}", schema="id BIGINT, dt STRING", partition_by=["dt"], **how
    )


def day(dt, *ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids), pa.string())})


def meanwhile(table, action):
    """The table as a process sees it in which, right before its first commit, `action` happens elsewhere."""
    fault = run("before", "put_if_absent", lambda path: action(), where="snapshot/*")
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


def kinds(table):
    return [str(s.commit_kind) for s in table.snapshots()][::-1]


def rewritten(table, **chosen):
    """Rewrites of all tasks of a full compaction, written and not committed."""
    live, schema = live_files(table.context, table.snapshot), table.schema
    context = write_context(table.context, {}, LocalEngine())
    tasks = plan_full(live, schema, schema.options)
    return [rewrite(task, context, table.context.schemas.get) for task in tasks]


def two_files(table, dt="a", first=0):
    table.append(day(dt, first, first + 1))
    table.append(day(dt, first + 2))


@pytest.fixture(params=[{}, {"bucket": "1"}], ids=["scalable", "queue"])
def table(request):
    return by_day(options=request.param)


def test_what_was_appended_meanwhile_stays(table):
    two_files(table)
    done = meanwhile(table, lambda: table.append(day("a", 3))).compact(full=True)
    assert kinds(table) == ["APPEND", "APPEND", "APPEND", "COMPACT", "COMPACT"], (
        "and is compacted with the rest"
    )
    assert (done.files_before, done.files_after, done.given_up) == (2 + 2, 1 + 1, 0)
    found = table.scan().to_arrow()["id"].to_pylist()
    assert (found if table.schema.bucket > 0 else sorted(found)) == [0, 1, 2, 3]


def test_the_same_files_are_compacted_once(table):
    two_files(table)
    done = meanwhile(table, lambda: table.compact(full=True)).compact(full=True)
    assert (done.snapshot, done.files_before, done.given_up) == (None, 0, 1)
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT"]
    assert ids_of(table) == [0, 1, 2]


def test_compactions_of_other_files_are_both_made(table):
    two_files(table, "a")
    two_files(table, "b", 10)
    other = lambda: table.compact(full=True, partitions={"dt": "b"})  # noqa: E731
    done = meanwhile(table, other).compact(full=True, partitions="dt = 'a'")
    assert (done.tasks, done.given_up) == (1, 0)
    assert kinds(table) == ["APPEND"] * 4 + ["COMPACT"] * 2
    assert ids_of(table) == [0, 1, 2, 10, 11, 12]


def test_an_overwrite_of_the_partition_wins(table):
    two_files(table)
    done = meanwhile(table, lambda: table.overwrite(day("a", 7))).compact(full=True)
    assert (done.snapshot, done.given_up) == (None, 1)
    assert ids_of(table) == [7]


def test_what_was_rolled_away_is_not_compacted(table):
    two_files(table)
    done = meanwhile(table, lambda: table.rollback(1)).compact(full=True)
    assert (done.snapshot, done.given_up) == (None, 1)
    assert kinds(table) == ["APPEND", "APPEND", "OVERWRITE"]
    assert ids_of(table) == [0, 1]


def test_a_rollback_takes_away_what_was_compacted_meanwhile(table):
    two_files(table)
    meanwhile(table, lambda: table.compact(full=True)).rollback(1)
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT", "OVERWRITE"]
    assert ids_of(table) == [0, 1]
    table.append(day("a", 9))
    assert ids_of(table) == [0, 1, 9]


def test_an_overwrite_of_another_partition_is_no_conflict(table):
    two_files(table, "a")
    table.append(day("b", 5))
    done = meanwhile(table, lambda: table.overwrite(day("b", 7))).compact(full=True)
    assert (done.tasks, done.given_up) == (1, 0)
    assert ids_of(table) == [0, 1, 2, 7]


def test_only_the_task_whose_files_are_gone_is_given_up(table):
    for number, dt in enumerate("abc"):
        two_files(table, dt, 10 * number)
    done = meanwhile(table, lambda: table.overwrite(day("b", 77))).compact(full=True)
    assert (done.tasks, done.given_up, done.files_before, done.files_after) == (2, 1, 4, 2)
    assert ids_of(table) == [0, 1, 2, 20, 21, 22, 77]
    live = live_files(table.context, table.snapshot).df["file_name"].to_list()
    stored = {p.path.rpartition("/")[2] for p in table.context.storage.list("dt=b", recursive=True)}
    assert len(stored) == 3, (
        "two were there before, one was written by the overwrite; the rewritten one was removed"
    )
    assert {p.path.rpartition("/")[2] for p in table.context.storage.list("dt=a", recursive=True)} & set(live)


def test_files_keep_their_schema_when_it_changes_meanwhile(table):
    two_files(table)
    rewrites = rewritten(table)
    table.alter().add_column("v", "STRING").apply()
    table.commit(Compact(rewrites))
    assert live_files(table.context, table.snapshot).df["schema_id"].to_list() == [0]
    assert table.snapshot.schema_id == 1
    assert table.scan().to_arrow()["v"].to_pylist() == [None] * 3


def test_an_overwrite_takes_away_what_was_compacted_meanwhile(table):
    two_files(table)
    meanwhile(table, lambda: table.compact(full=True)).overwrite(day("a", 7))
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT", "OVERWRITE"]
    assert ids_of(table) == [7]


def test_an_append_goes_on_after_what_was_compacted_meanwhile(table):
    two_files(table)
    meanwhile(table, lambda: table.compact(full=True)).append(day("a", 3))
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT", "APPEND"]
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 2, 3]


def test_a_compaction_is_not_made_in_a_table_that_was_created_again():
    lake = anabranch.connect(f"memory://cells{next(_names)}")
    table = lake.create_table("db.t", "id BIGINT, dt STRING", partition_by=["dt"])
    two_files(table)

    def recreate():
        lake.drop_table("db.t")
        lake.create_table("db.t", "id BIGINT, dt STRING", partition_by=["dt"]).append(day("a", 9))

    with pytest.raises(anabranch.CommitConflictError, match="TABLE_REPLACED"):
        meanwhile(table, recreate).compact(full=True)
    assert ids_of(lake.table("db.t")) == [9]


@dataclass(frozen=True)
class Numbered:
    """An append by an engine that gives its files numbers of its own."""

    messages: list
    first: int
    depends_on_base = False

    def on(self, base):
        files = [
            ManifestEntry(
                FileKind.ADD,
                m.partition,
                m.bucket,
                m.total_buckets,
                replace(f, min_sequence_number=self.first, max_sequence_number=self.first),
            )
            for m in self.messages
            for f in m.new_files
        ]
        return Change(CommitKind.APPEND, files)


def written(table, rows):
    writer = table.writer()
    return writer.write([b.cast(writer.schema) for b in rows.to_batches()])


def test_files_that_came_between_those_of_a_queue_keep_them_apart():
    table = by_day(options={"bucket": "1"})
    two_files(table)
    between = written(table, day("a", 99))
    rewrites = rewritten(table)
    table.commit(Numbered(between, 1))
    with pytest.raises(anabranch.CommitConflictError, match="ORDER_CHANGED.*dt=a"):
        table.commit(Compact(rewrites))
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 99, 2]
    outcome = commit_rewrites(table.context, rewrites, write_context(table.context, {}, LocalEngine()))
    assert (outcome.snapshot, outcome.committed) == (None, ())
    assert outcome.given_up == tuple(one.task for one in rewrites)


def test_new_files_of_a_queue_must_not_reach_beyond_what_follows():
    table = by_day(options={"bucket": "1"})
    for i in range(3):
        table.commit(Numbered(written(table, day("a", 2 * i, 2 * i + 1)), 1))
    table.commit(Numbered(written(table, day("a", 6)), 1))
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(7))
    [whole] = rewritten(table)
    first_two = replace(whole.task, files=whole.task.files[:2])
    part = rewrite(first_two, write_context(table.context, {}, LocalEngine()), table.context.schemas.get)
    with pytest.raises(anabranch.CommitConflictError, match="ORDER_CHANGED"):
        table.commit(Compact([part]))
    table.commit(Compact([whole]))
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(7))


def test_the_order_of_a_queue_is_that_of_its_partition_however_its_row_is_spelled():
    table = make_table(
        f"memory://cells{next(_names)}",
        schema="id BIGINT, d DECIMAL(30, 2)",
        partition_by=["d"],
        options={"bucket": "1"},
    )

    def rows(*ids):
        return pa.table(
            {"id": pa.array(ids, pa.int64()), "d": pa.array([None] * len(ids), pa.decimal128(30, 2))}
        )

    spelled = with_arity(1, encode_row([DecimalType(30, 2)], [None], reserve_nulls=False))
    table.append(rows(0, 1))
    [between] = written(table, rows(2))
    assert between.partition != spelled
    table.commit(Append([replace(between, partition=spelled)]))
    table.append(rows(3))
    assert rewritten(table) == [], "no two files that follow each other have the same bytes"
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 2, 3]
    live = live_files(table.context, table.snapshot)
    [whole] = plan_full(live.filter(pl.col("partition") != spelled), table.schema, table.schema.options)
    assert isinstance(whole, CompactionTask)
    made = rewrite(whole, write_context(table.context, {}, LocalEngine()), table.context.schemas.get)
    with pytest.raises(anabranch.CommitConflictError, match="ORDER_CHANGED"):
        table.commit(Compact([made]))
