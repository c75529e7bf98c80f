"""Sort compaction as users call it: the same rows, in an order that lets queries skip files."""

import itertools
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import InvalidInputError, SchemaError, StorageError, UnsupportedFeatureError
from anabranch.format.types.data_types import ArrayType, MapType, MultisetType, RowType
from anabranch.kernel.actions.append import Append
from anabranch.maintenance import sort as sort_module
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position
from anabranch.table import Table
from tests.support.canonical import canonical_rows
from tests.support.faults import FaultyStorage, fail, kill, run
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.tables import ids_of, make_table

_names = itertools.count()
COLUMNS = "id BIGINT NOT NULL, a BIGINT, b DOUBLE, s STRING, p INT, l ARRAY<INT>"
FOREIGN = Path(__file__).parent.parent / "data" / "paimon"
STRATEGIES = ("order", "zorder", "hilbert")


def new_table(url=None, **how):
    options = {"target-file-size": "2 kb", **how.pop("options", {})}
    return make_table(url or f"memory://sort{next(_names)}", schema=COLUMNS, options=options, **how)


def some_rows(start, count, p=0):
    random = np.random.default_rng(start)
    numbers = random.integers(0, 10**9, count).tolist()
    return pa.table(
        {
            "id": pa.array(range(start, start + count), pa.int64()),
            "a": pa.array([None if n % 40 == 0 else n for n in numbers], pa.int64()),
            "b": np.exp(random.normal(size=count) * 20),
            "s": [None if n % 40 == 1 else f"{n % 1000:03}" for n in numbers],
            "p": pa.array([p] * count, pa.int32()),
            "l": [[n % 7] * (n % 3) for n in numbers],
        }
    )


def appended(table, count=8000, commits=4, p=0):
    for start in range(0, count, count // commits):
        table.append(some_rows(start, count // commits, p))
    return table


def canonical(table):
    return canonical_rows(table.scan().to_arrow(), table.schema.fields)


def share_read(table, filter=None):
    return table.scan(filter).plan().files.height / table.scan().plan().files.height


# What it does


@pytest.mark.parametrize("strategy", first_short(STRATEGIES))
def test_rows_stay_and_files_are_skipped(strategy):
    table = appended(new_table())
    before, files = canonical(table), table.scan().plan().files.height
    result = table.sort_compact(["a", "b"], strategy)
    assert canonical(table) == before
    assert table.snapshot.commit_kind == "COMPACT"
    assert json.loads(table.snapshot.properties["anabranch.rewrite"]) == {"sort": strategy, "by": ["a", "b"]}
    assert table.snapshot.stamp == result.snapshot.stamp
    assert (result.files_before, result.rows, result.partitions, result.tasks) == (files, 8000, 1, 1)
    assert result.files_after == table.scan().plan().files.height > 30
    most = {"order": 0.1, "zorder": 0.3, "hilbert": 0.3}[strategy]
    assert share_read(table, f"a < {10**7}") < most
    if strategy != "order":
        assert share_read(table, "b < 1e-19") < most
        assert share_read(table, f"a BETWEEN {5 * 10**8} AND {51 * 10**7} AND b > 1e19") < 0.15


@pytest.mark.long
def test_texts_and_nulls_are_found_without_the_other_files():
    table = appended(new_table())
    table.sort_compact(["s", "a"])
    assert share_read(table, "s = '500'") < 0.25
    assert share_read(table, "s IS NULL") < 0.25
    assert share_read(table, "a IS NULL") < 0.25
    assert len(ids_of(table, filter="s = '500'")) == table.scan().to_arrow()["s"].to_pylist().count("500")


def test_one_column_may_be_given_as_text():
    table = appended(new_table(), 2000)
    table.sort_compact("a", strategy="order")
    found = table.scan(columns=["a"]).to_arrow()["a"].to_pylist()
    assert found == sorted(found, key=lambda value: (value is not None, value or 0))


@pytest.mark.long
def test_only_the_partitions_that_were_named():
    table = new_table(partition_by=["p"])
    for p in range(3):
        appended(table, 1000, 2, p)
    before = {row["file_name"] for row in table.scan().plan().files.iter_rows(named=True)}
    result = table.sort_compact(["a"], partitions="p > 0")
    assert (result.partitions, result.rows) == (2, 2000)
    files = table.scan("p = 0").plan().files["file_name"].to_list()
    assert files
    assert before.issuperset(files)
    assert before.isdisjoint(table.scan("p > 0").plan().files["file_name"].to_list())
    assert table.sort_compact(["a"], partitions={"p": 0}).rows == 1000


def test_there_is_nothing_to_sort():
    table = new_table()
    assert table.sort_compact(["a"]).snapshot is None
    assert table.snapshot is None
    appended(table, 100, 1)
    assert table.sort_compact(["a"], partitions=None).rows == 100


def test_what_is_sorted_like_that_already_is_passed_over():
    table = new_table(partition_by=["p"])
    for p in range(3):
        appended(table, 1000, 2, p)
    assert table.sort_compact(["a", "b"]).partitions == 3
    head = table.snapshot
    assert table.sort_compact(["a", "b"]).files_before == 0
    assert table.snapshot == head
    table.append(some_rows(5000, 10, p=1))
    result = table.sort_compact(["a", "b"])
    assert (result.partitions, result.rows) == (1, 1010)
    assert table.sort_compact(["a", "b"]).snapshot is None


def expire_all(table):
    """Nothing is left of the snapshot that tells of the sorting."""
    for _ in range(3):
        table.commit(Append([]))
    table.expire_snapshots(retain_max=2)


@pytest.mark.parametrize(
    "meanwhile",
    first_short([
        lambda table: table.sort_compact(["b", "a"]),
        lambda table: table.sort_compact(["a", "b"], "hilbert"),
        lambda table: table.with_options({"target-file-size": "8 kb"}).sort_compact(["a", "b"]),
        lambda table: table.overwrite(some_rows(0, 1000)),
        lambda table: table.append(some_rows(9000, 1)),
        lambda table: table.alter().set_option("target-file-size", "8 kb").apply(),
        lambda table: table.alter().rename_column("a", "x").rename_column("b", "a").rename_column("x", "b").apply(),
        expire_all,
    ], 2),
    ids=["columns", "strategy", "size", "overwrite", "append", "option", "renaming", "expiry"],
)  # fmt: skip
def test_what_was_sorted_otherwise_or_changed_since_is_sorted_again(meanwhile):
    table = appended(new_table(), 2000)
    table.sort_compact(["a", "b"])
    meanwhile(table)
    rows = table.scan().to_arrow().num_rows
    assert table.sort_compact(["a", "b"]).rows == rows
    assert table.sort_compact(["a", "b"]).rows == 0


def test_a_rollback_to_the_sorted_state_is_sorted():
    table = appended(new_table(), 2000)
    table.sort_compact(["a", "b"])
    table.create_tag("sorted")
    table.append(some_rows(9000, 1))
    table.rollback("sorted")
    assert table.sort_compact(["a", "b"]).snapshot is None


def test_streams_see_nothing_of_it():
    table = appended(new_table(), 2000)
    start = Position(table.snapshot.id, table.snapshot.stamp)
    table.sort_compact(["a", "b"])
    feed = Feed(table.context, table.schema)
    end = feed.advance(start)
    assert end.snapshot == table.snapshot.id
    assert feed.splits(start, end) == []
    table.append(some_rows(2000, 5))
    assert sum(split.row_count for split in feed.splits(start, feed.advance(start))) == 5


def test_older_snapshots_read_as_before():
    table = appended(new_table(), 2000)
    head, before = table.snapshot.id, canonical(table)
    table.sort_compact(["a", "b"])
    assert canonical(table.at(head)) == before


def test_the_newest_schema_is_written():
    table = appended(new_table(), 1000)
    table.alter().rename_column("a", "c").add_column("n", "INT").drop_column("l").apply()
    table.append(pa.table({"id": [9999], "c": [5], "n": pa.array([1], pa.int32())}))
    table.sort_compact(["c", "n"])
    assert table.scan("n = 1").to_arrow()["id"].to_pylist() == [9999]
    assert {file["schema_id"] for file in table.scan().plan().files.iter_rows(named=True)} == {1}
    assert len(ids_of(table)) == 1001


def _foreign():
    for path in sorted(FOREIGN.glob("*/*/expected/case.json")):
        writer, case = path.parts[-4:-2]
        marks = [] if case[0] in "bd" else [pytest.mark.long]
        yield pytest.param(path.parent.parent, id=f"{writer}-{case}", marks=marks)


@pytest.mark.parametrize("folder", first_short(_foreign(), 2))
def test_tables_that_others_wrote_keep_their_rows(folder, tmp_path):
    case = json.loads((folder / "expected" / "case.json").read_text())
    shutil.copytree(folder / "warehouse", tmp_path / "w")
    table = anabranch.connect(str(tmp_path / "w")).table(case["table"])
    if table.schema.bucket > 0:
        with pytest.raises(UnsupportedFeatureError):
            table.sort_compact(table.schema.fields[0].name)
        return
    complex_types = ArrayType | MapType | MultisetType | RowType
    by = [
        f.name
        for f in table.schema.fields
        if f.name not in table.schema.partition_keys and not isinstance(f.type, complex_types)
    ][:16]
    before = canonical(table)
    for strategy in STRATEGIES:
        assert table.sort_compact(by, strategy).given_up == 0
        assert canonical(table) == before


# What is refused


@pytest.mark.parametrize("buckets", [{"bucket": "1"}, {"bucket": "4", "bucket-key": "id"}])
def test_queues_keep_their_order(buckets):
    table = appended(new_table(options=buckets), 100, 1)
    with pytest.raises(UnsupportedFeatureError, match="order") as caught:
        table.sort_compact(["a"])
    assert "`compact`" in caught.value.hint
    assert table.snapshot.commit_kind == "APPEND"


@pytest.mark.parametrize(
    ("by", "strategy", "error", "message"),
    [
        (["x"], "zorder", SchemaError, "no column 'x'"),
        (["p"], "zorder", SchemaError, "partition column"),
        (["l"], "order", SchemaError, "ARRAY<INT>"),
        (["a", "b", "a"], "order", SchemaError, "twice"),
        ([], "order", InvalidInputError, "no column"),
        (["a"], "z-order", InvalidInputError, "z-order"),
    ],
)
def test_what_cannot_be_sorted_by_is_refused(by, strategy, error, message):
    table = new_table(partition_by=["p"])
    with pytest.raises(error, match=message):
        table.sort_compact(by, strategy)


def test_a_curve_has_so_many_columns_at_most():
    columns = [f"c{i}" for i in range(20)]
    table = make_table(f"memory://sort{next(_names)}", schema=", ".join(f"{name} INT" for name in columns))
    table.append(pa.table({name: pa.array([2, 1], pa.int32()) for name in columns}))
    table.sort_compact(columns, "order")
    table.sort_compact(columns[:16], "hilbert")
    with pytest.raises(InvalidInputError, match="20 columns"):
        table.sort_compact(columns, "zorder")


def test_the_past_is_not_sorted():
    table = appended(new_table(), 100, 1)
    with pytest.raises(InvalidInputError, match="pinned"):
        table.at(1).sort_compact(["a"])


# What others do meanwhile


def meanwhile(table, action):
    """The table whose new files, once they are written, see `action` before they are committed."""
    done = []

    def once(_):
        if not done:
            done.append(None)
            action()

    fault = run("before", "put_if_absent", once, where="*snapshot-*")
    return Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


def test_rows_that_are_appended_meanwhile_stay():
    table = appended(new_table(), 1000)
    result = meanwhile(table, lambda: table.append(some_rows(5000, 10))).sort_compact(["a"])
    assert (result.rows, result.given_up) == (1000, 0)
    assert ids_of(table) == [*range(1000), *range(5000, 5010)]


def test_a_partition_that_is_overwritten_meanwhile_is_given_up_alone():
    table = new_table(partition_by=["p"])
    for p in range(3):
        appended(table, 500, 2, p)

    def overwrite():
        table.overwrite(some_rows(9000, 7, 1), partition={"p": 1})

    result = meanwhile(table, overwrite).sort_compact(["a"])
    assert (result.partitions, result.rows, result.given_up) == (2, 1000, 1)
    assert ids_of(table, filter="p = 1") == [*range(9000, 9007)]
    assert table.scan().to_arrow().num_rows == 1007
    live = {f"{s.path}" for split in table.scan().plan().splits for s in split.files}
    stored = [i.path for i in table.context.storage.list("", recursive=True) if "/data-" in i.path]
    orphans = set(stored) - live - _reached(table)
    assert orphans == set(), "of what was given up nothing is left"


def _reached(table):
    return {
        file.path
        for snapshot in table.snapshots()
        for split in table.at(snapshot.id).scan().plan().splits
        for file in split.files
    }


def test_a_partition_that_is_compacted_meanwhile_is_given_up():
    table = appended(new_table(options={"target-file-size": "1 mb"}), 1000)
    result = meanwhile(table, lambda: table.compact(full=True)).sort_compact(["a"])
    assert (result.snapshot, result.given_up) == (None, 1)
    assert ids_of(table) == [*range(1000)]


# Failures


def test_what_was_finished_before_an_error_is_committed():
    table = new_table(partition_by=["p"])
    for p in range(3):
        appended(table, 500, 2, p)
    storage = FaultyStorage(table.context.storage, [fail("open_output", where="*p=2/*")])
    with pytest.raises(StorageError):
        Table(replace(table.context, storage=storage)).sort_compact(["a"])
    assert table.snapshot.commit_kind == "COMPACT"
    assert table.scan("p = 2").to_arrow().num_rows == 500
    assert table.scan().to_arrow().num_rows == 1500


def _sort_and_die(path, call, nth):
    table = anabranch.connect(path).table("db.t")
    storage = FaultyStorage(table.context.storage, [kill("before", call, nth=nth)])
    Table(replace(table.context, storage=storage)).sort_compact(["a", "b"])


@pytest.mark.parametrize(
    ("call", "nth"), first_short([("open_output", 1), ("write", 4), ("put_many", 1), ("put_if_absent", 1)])
)
def test_killed_in_the_middle_nothing_is_lost_and_the_next_finishes(call, nth, tmp_path):
    table = appended(new_table(str(tmp_path)), 2000)
    before = canonical(table)
    server = forking(__name__)
    process = server.Process(target=_sort_and_die, args=(str(tmp_path), call, nth))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert canonical(table) == before
    assert table.sort_compact(["a", "b"]).rows == 2000
    assert canonical(table) == before


# Who does it


class ManyTasks:
    """An engine that sorts large partitions in a way of its own."""

    def __init__(self, largest):
        self.largest, self.sorted = largest, []

    def map(self, work, items, *, name):
        return map(work, items)

    def largest_for_one_task(self, total):
        return self.largest(total)

    def sort(self, task, job):
        self.sorted.append(task)
        return job.run(task)


def test_an_engine_may_sort_large_partitions_with_many_tasks():
    table = new_table(partition_by=["p"])
    appended(table, 3000, 2, 0)
    appended(table, 100, 1, 1)
    engine = ManyTasks(lambda total: total // 2)
    assert isinstance(engine, sort_module.SortingEngine)
    result = Table(table.context, engine=engine).sort_compact(["a"])
    assert (result.partitions, result.rows) == (2, 3100)
    assert [task.row_count for task in engine.sorted] == [3000]
