"""Rewriting the files of a partition with their rows sorted, whether they fit in memory or not."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.arrow import row_buffer, sorting
from anabranch.arrow.rewrite import split_of
from anabranch.arrow.sort_key import STRATEGIES, SortOrder
from anabranch.arrow.sorting import RangeSorter, SortPlan, sample, sort
from anabranch.errors import StorageError
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import context_of, make_schema, read_table, reading, rows_of, stored_paths, write
from tests.support.faults import FaultyStorage, fail, no_space
from tests.support.lengths import first_short

SCHEMA = make_schema("id BIGINT NOT NULL, a BIGINT, b DOUBLE, s STRING", target__file__size="8 kb")


def some_rows(count, seed=0):
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 1000, count).tolist()
    return rows_of(
        SCHEMA,
        {
            "id": range(count),
            "a": [None if n % 20 == 0 else n for n in numbers],
            "b": [float("nan") if n % 20 == 1 else n for n in random.normal(size=count)],
            "s": [None if n % 20 == 2 else f"prefix/{n % 100:03}" for n in numbers],
        },
    )


def task_of(rows, context, files=4):
    parts = [rows.slice(start, len(rows) // files) for start in range(0, len(rows), len(rows) // files)]
    messages = [message for part in parts for message in write([part], context)]
    first = messages[0]
    return CompactionTask(first.partition, 0, -1, tuple(file for m in messages for file in m.new_files))


def sorted_by(task, context, *by, strategy="order"):
    return sort(task, context, lambda _: context.schema, SortOrder(strategy, by))


def read(result, context):
    made = replace(result.task, files=result.new_files)
    return read_table([split_of(made, context)], reading(context))


def in_order(rows, *by):
    """Ids of the rows as Python sorts them."""

    def key(value):
        is_number = value is not None and value == value
        return (value is not None, value != value, value if is_number else 0)

    ordered = sorted(rows.to_pylist(), key=lambda row: [key(row[name]) for name in by])
    return [row["id"] for row in ordered]


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """A context whose rows do not fit in memory: many ranges, most of them on disk."""
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 300)
    monkeypatch.setattr(sorting, "SAMPLE_ROWS", 1000)
    return context_of(SCHEMA, options={"write-buffer-size": "32 kb"}, spill_folder=str(tmp_path))


@pytest.mark.parametrize("by", [("a",), ("b",), ("s",), ("s", "b"), ("a", "s", "b")])
@pytest.mark.parametrize("memory", ["enough", "little"])
def test_order_is_exact_through_all_files(by, memory, request, tmp_path):
    context = request.getfixturevalue("little_memory") if memory == "little" else context_of(SCHEMA)
    rows = some_rows(4000)
    result = sorted_by(task_of(rows, context), context, *by)
    assert len(result.new_files) > 3
    assert read(result, context)["id"].to_pylist() == in_order(rows, *by)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_stay_what_they_are(strategy, little_memory):
    rows = some_rows(3000)
    result = sorted_by(task_of(rows, little_memory), little_memory, "a", "b", strategy=strategy)
    assert read(result, little_memory).sort_by("id").equals(rows)


@pytest.mark.parametrize("strategy", first_short(["zorder", "hilbert"]))
def test_each_file_is_narrow_in_all_columns(strategy):
    context = context_of(SCHEMA)
    random = np.random.default_rng(1)
    rows = rows_of(
        SCHEMA,
        {
            "id": range(20_000),
            "a": random.integers(0, 10**12, 20_000),
            "b": np.exp(random.normal(size=20_000) * 20),
            "s": [None] * 20_000,
        },
    )
    result = sorted_by(task_of(rows, context), context, "a", "b", strategy=strategy)
    assert len(result.new_files) > 30
    shares = {"a": [], "b": []}
    for file in result.new_files:
        part = read(replace(result, new_files=(file,)), context)
        for name, found in shares.items():
            low, high = min(part[name].to_pylist()), max(part[name].to_pylist())
            values = rows[name].to_numpy()
            found.append(((values >= low) & (values <= high)).mean())
    assert np.mean(shares["a"]) < 0.4
    assert np.mean(shares["b"]) < 0.4


def test_what_does_not_fit_in_memory_waits_on_disk(little_memory, tmp_path):
    rows = some_rows(5000)
    order = SortOrder("order", ("b",))
    plan = SortPlan.of(order, pa.table(order.columns(rows), names=["b"]))
    with RangeSorter(plan, little_memory, len(rows)) as sorter:
        for batch in rows.to_batches(max_chunksize=100):
            sorter.add(pa.Table.from_batches([batch]))
        assert sorter.spilled > 100_000
        pieces = list(sorter.sorted())
    assert len(pieces) > 10
    assert max(piece.nbytes for piece in pieces) < 32 << 10
    assert pa.concat_tables(pieces)["id"].to_pylist() == in_order(rows, "b")
    assert list(tmp_path.iterdir()) == []


def test_one_value_with_more_rows_than_memory_is_sorted_piece_by_piece(little_memory):
    rows = some_rows(4000).set_column(1, SCHEMA_FIELD, pa.array([7] * 3900 + [None, 8] * 50))
    result = sorted_by(task_of(rows, little_memory), little_memory, "a", "b")
    found = read(result, little_memory)
    assert sorted(found["id"].to_pylist()) == list(range(4000))
    assert found["a"].to_pylist() == [None] * 50 + [7] * 3900 + [8] * 50


SCHEMA_FIELD = some_rows(1).schema.field("a")


def test_a_sample_is_a_share_of_the_rows_from_everywhere():
    context = context_of(SCHEMA)
    task = task_of(some_rows(20_000), context)
    order = SortOrder("zorder", ("id", "s"))
    found = sample(split_of(task, context), reading(context), order, share=0.1)
    assert found.column_names == ["id", "s"]
    assert 1700 < len(found) < 2300
    counts = np.histogram(found["id"].to_numpy(), 10, (0, 20_000))[0]
    assert counts.min() > 140
    again = sample(split_of(task, context), reading(context), order, share=0.1)
    assert again.equals(found), "the same each time, so that a task can be done again"
    other = sample(split_of(task, context), reading(context), order, share=0.1, first_row=20_000)
    assert not other.equals(found)


def test_a_sample_of_long_texts_is_small():
    context = context_of(SCHEMA)
    rows = some_rows(100).set_column(3, some_rows(1).schema.field("s"), pa.array(["x" * 10_000 + "y"] * 100))
    found = sample(
        split_of(task_of(rows, context), context), reading(context), SortOrder("order", ("s",)), share=1
    )
    assert found.nbytes < 50_000


def test_ranges_have_about_as_many_rows_each():
    order = SortOrder("zorder", ("a", "b"))
    rows = some_rows(8000)
    plan = SortPlan.of(order, pa.table(order.columns(rows.slice(0, 4000)), names=["a", "b"]))
    cuts = plan.cuts(8)
    counts = np.bincount(sorting.range_of(plan.keys_of(rows), cuts))
    assert len(counts) == 8
    assert counts.min() > 700
    assert len(plan.cuts(1)) == 0
    part = plan.part(cuts, 3)
    assert 400 < len(part.sampled) < 600
    assert pickle.loads(pickle.dumps(part)).cuts(4).tolist() == part.cuts(4).tolist()


def test_no_range_is_made_for_nothing():
    order = SortOrder("order", ("a",))
    rows = pa.table({"a": [1, 1, 1, 1, 2]})
    plan = SortPlan.of(order, pa.table(order.columns(rows), names=["a"]))
    assert [len(plan.cuts(ranges)) for ranges in (1, 2, 5, 100)] == [0, 0, 1, 1]
    empty = SortPlan.of(order, pa.table(order.columns(rows.slice(5)), names=["a"]))
    assert len(empty.cuts(5)) == 0


FAULTS = [
    fail("write", nth=3),
    no_space("write", nth=6),
    fail("open_output", nth=3),
    fail("get_range", nth=9, times=99),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("make_storage", [MemoryStorage, None], ids=["memory", "local"])
def test_a_sort_that_fails_leaves_nothing(fault, make_storage, tmp_path):
    inner = make_storage() if make_storage else LocalStorage(tmp_path / "t")
    task = task_of(some_rows(4000), context_of(SCHEMA, inner))
    before = stored_paths(inner)
    faulty = FaultyStorage(inner, [fault])
    try:
        sorted_by(task, context_of(SCHEMA, faulty), "a")
    except StorageError:
        assert stored_paths(inner) == before
    else:
        assert fault.call not in faulty.counts(), "a local file is not read through the store"


def test_a_full_disk_for_waiting_rows_leaves_nothing(little_memory, tmp_path):
    task = task_of(some_rows(4000), little_memory)
    before = stored_paths(little_memory.storage)
    with pytest.raises(StorageError, match="aside"):
        sorted_by(task, replace(little_memory, spill_folder=str(tmp_path / "gone")), "a")
    assert stored_paths(little_memory.storage) == before
