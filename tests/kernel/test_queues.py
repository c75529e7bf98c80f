"""Queue tables: rows keep their order inside a bucket, and a partition keeps its number of buckets."""

import itertools

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.actions.append import Append
from tests.support.tables import ids_of, make_table, rows, written

_names = itertools.count()
QUEUE = {"bucket": "2", "bucket-key": "id"}


@pytest.fixture
def queue():
    return make_table(f"memory://queue{next(_names)}", options={"bucket": "1"})


@pytest.fixture
def by_day():
    return make_table(
        f"memory://queue{next(_names)}", schema="id BIGINT, dt STRING", partition_by=["dt"], options=QUEUE
    )


def day(dt, *ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def _ranges(table):
    live = table.context.manifests.entries(table.context.manifests.of_snapshot(table.snapshot)).live()
    return sorted(live.df.select("min_sequence_number", "max_sequence_number").iter_rows())


def test_sequence_numbers_go_on_where_the_bucket_ends(queue):
    first, second = written(queue, 0, 3), written(queue, 3, 2)
    queue.commit(Append(second))
    queue.commit(Append(first))
    queue.append(rows(5, 1))
    assert _ranges(queue) == [(0, 1), (2, 4), (5, 5)]
    assert queue.scan().to_arrow()["id"].to_pylist() == [3, 4, 0, 1, 2, 5]


def test_another_process_goes_on_where_this_one_ended(queue):
    queue.append(rows(0, 3))
    other = anabranch.connect(queue.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    other.append(rows(3, 2))
    queue.append(rows(5, 1))
    assert _ranges(queue) == [(0, 2), (3, 4), (5, 5)]


def test_an_overwrite_goes_on_too(queue):
    queue.append(rows(0, 3))
    queue.overwrite(rows(10, 2))
    queue.append(rows(12, 1))
    assert queue.scan().to_arrow()["id"].to_pylist() == [10, 11, 12]


def test_not_a_number_is_one_partition_and_the_zeros_are_two():
    """As in the folders and in Java, which compare bits."""
    table = make_table(
        f"memory://queue{next(_names)}",
        schema="id BIGINT, f DOUBLE",
        partition_by=["f"],
        options={"bucket": "1"},
    )
    for number, f in enumerate([float("nan"), 0.0, -0.0] * 2):
        table.append(pa.table({"id": [number], "f": [f]}))
    assert _ranges(table) == [(0, 0)] * 3 + [(1, 1)] * 3
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]
    table.overwrite(pa.table({"id": [6, 7], "f": [float("nan"), -0.0]}))
    assert ids_of(table) == [1, 4, 6, 7]


def test_a_partition_keeps_its_number_of_buckets(by_day):
    by_day.append(day("a", 1, 2, 3))
    by_day.alter().set_option("bucket", "4").apply()
    with pytest.raises(anabranch.CommitConflictError, match="BUCKET_COUNT_CHANGED.*dt=a"):
        by_day.append(day("a", 4))
    by_day.append(day("b", 5, 6))
    by_day.overwrite(day("a", 7, 8, 9))
    by_day.append(day("a", 10))
    assert ids_of(by_day) == [5, 6, 7, 8, 9, 10]
    assert by_day.scan("id = 9").to_arrow()["id"].to_pylist() == [9]


def test_another_process_sees_that_a_partition_has_other_buckets(by_day):
    by_day.append(day("a", 1, 2, 3))
    by_day.alter().set_option("bucket", "4").apply()
    by_day.append(day("b", 5))
    by_day.context.cache.put((by_day.context.storage.url, "bucket-ends", by_day.branch_uuid), None, 0)
    with pytest.raises(anabranch.CommitConflictError, match="BUCKET_COUNT_CHANGED"):
        by_day.append(day("a", 4))


def test_an_emptied_partition_may_change_its_number_of_buckets(by_day):
    by_day.append(day("a", 1, 2, 3))
    by_day.overwrite(day("a"), {"dt": "a"})
    by_day.alter().set_option("bucket", "4").apply()
    by_day.append(day("a", 4, 5))
    by_day.append(day("a", 6))
    assert ids_of(by_day) == [4, 5, 6]
