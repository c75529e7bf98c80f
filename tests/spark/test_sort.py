"""Sort compaction by tasks of Spark: the same rows, sorted, whatever their types."""

import datetime as dt
import os
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import anabranch
from anabranch.arrow.row_buffer import measured
from anabranch.arrow.sort_key import SortOrder
from anabranch.arrow.sorting import SortPlan
from anabranch.errors import NotFoundError, StorageError
from anabranch.spark.tasks import sort
from anabranch.spark.tasks.engine import SparkEngine
from anabranch.table import Table
from tests.support.canonical import canonical_rows
from tests.support.faults import FaultyStorage, fail

pytestmark = pytest.mark.spark

COLUMNS = """id BIGINT NOT NULL, a BIGINT, b STRING, n TIMESTAMP(9), l TIMESTAMP(6) WITH LOCAL TIME ZONE, t TIME(3),
    m MULTISET<STRING>, r ROW<x INT, y ARRAY<STRING>>, d DECIMAL(30, 4), f DOUBLE, p INT"""

OPTIONS = {"target-file-size": "8 kb", "metadata.stats-mode": "full"}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """A few kilobytes are as a hundred megabytes."""
    monkeypatch.setattr(sort, "_PIECE_SIZE", 64 << 10)
    monkeypatch.setattr(sort, "_LEAST_PART", 24 << 10)
    monkeypatch.setattr(sort, "_MOST_PART", 32 << 10)
    monkeypatch.setattr(sort, "_PARCEL_SIZE", 4 << 10)


@pytest.fixture(autouse=True)
def divided(monkeypatch):
    """The partitions that were sorted by many tasks."""
    seen = []
    real = sort.sort_with_many

    def sort_with_many(engine, task, job, **how):
        seen.append(task)
        return real(engine, task, job, **how)

    monkeypatch.setattr(sort, "sort_with_many", sort_with_many)
    return seen


@pytest.fixture
def table(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    return lake.create_table("db.t", COLUMNS, partition_by=["p"], options=OPTIONS)


def some_rows(start, count, p=0):
    random = np.random.default_rng(start)
    ids = list(range(start, start + count))
    numbers = random.integers(0, 2**60, count).tolist()
    moment = dt.datetime(2026, 1, 1)
    return pa.table(
        {
            "id": ids,
            "a": [None if i % 50 == 0 else n for i, n in zip(ids, numbers, strict=True)],
            "b": [None if i % 31 == 0 else f"https://example.org/{n % 1000:03}" for i, n in zip(ids, numbers, strict=True)],
            "n": pa.array(numbers, pa.timestamp("ns")),
            "l": pa.array([moment + dt.timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")),
            "t": pa.array([i % 86_400_000 for i in numbers], pa.time32("ms")),
            "m": pa.array([[("k", i % 5)] for i in ids], pa.map_(pa.string(), pa.int32())),
            "r": [{"x": i, "y": [str(i)] * (i % 3)} for i in ids],
            "d": pa.array([Decimal(i).scaleb(-4) for i in numbers], pa.decimal128(30, 4)),
            "f": [float("nan") if i % 40 == 0 else i / 7 for i in ids],
            "p": pa.array([p] * count, pa.int32()),
        }
    )  # fmt: skip


def canonical(table):
    return canonical_rows(table.scan().to_arrow(), table.schema.fields)


def share_read(table, filter):
    return table.scan(filter).plan().files.height / table.scan().plan().files.height


@pytest.mark.long
def test_a_large_partition_is_sorted_by_many_tasks(table, divided):
    for start in range(0, 3000, 1000):
        table.append(some_rows(start, 1000))
    table.append(some_rows(3000, 50, p=1))
    before = canonical(table)
    result = table.sort_compact(["a", "b"], "hilbert")
    assert canonical(table) == before
    assert (result.rows, result.partitions, result.given_up) == (3050, 2, 0)
    assert table.snapshot.commit_kind == "COMPACT"
    assert [task.row_count for task in divided] == [3000], "the small one is work for one task"
    assert result.files_after > 20
    assert share_read(table, f"a < {2**60 // 100}") < 0.4
    assert share_read(table, "b >= 'https://example.org/99'") < 0.5


def test_parts_follow_each_other(table, divided):
    for start in range(0, 3000, 1000):
        table.append(some_rows(start, 1000))
    table.sort_compact("n", "order")
    assert len(divided) == 1
    found = table.scan(columns=["n"]).to_arrow()["n"].cast(pa.int64()).to_pylist()
    assert found == sorted(found)


def test_a_partition_whose_files_are_gone_is_an_error(table, warehouse):
    for start in range(0, 2000, 1000):
        table.append(some_rows(start, 1000))
    folder = f"{warehouse}/db.db/t/p=0/bucket-0"
    os.remove(f"{folder}/{table.scan().plan().files['file_name'][-1]}")
    files = set(os.listdir(folder))
    with pytest.raises(NotFoundError):
        table.sort_compact("a")
    assert table.snapshot.commit_kind == "APPEND"
    assert set(os.listdir(folder)) == files


def test_what_other_tasks_wrote_goes_when_one_fails(table, spark, warehouse):
    for start in range(0, 2000, 1000):
        table.append(some_rows(start, 1000))
    folder = f"{warehouse}/db.db/t/p=0/bucket-0"
    files = set(os.listdir(folder))
    storage = FaultyStorage(table.context.storage, [fail("open_output", nth=2)])
    faulty = Table(replace(table.context, storage=storage), engine=SparkEngine(spark))
    with pytest.raises(StorageError):
        faulty.sort_compact("a")
    assert set(os.listdir(folder)) == files


def test_rows_travel_in_parcels(monkeypatch):
    monkeypatch.setattr(sort, "_PARCEL_SIZE", 1000)
    rows = pa.table({"a": range(1000)})
    order = SortOrder("order", ("a",))
    plan = SortPlan.of(order, pa.table(order.columns(rows), names=["a"]))
    sent = list(sort._parcels(measured(rows), plan, plan.cuts(3)))
    assert {batch["part"][0].as_py() for batch in sent} == {0, 1, 2}
    parcels = [batch["rows"][0].as_py() for batch in sent]
    assert all(len(parcel) < 1500 for parcel in parcels)
    found = [pa.ipc.read_record_batch(pa.py_buffer(parcel), rows.schema) for parcel in parcels]
    assert pa.Table.from_batches(found).equals(rows)
