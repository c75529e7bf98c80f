"""What costs the same however much else there is: calls of the store, counted on two sizes."""

import tracemalloc
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import consumer_lags, record_consumer
from anabranch.kernel.scan.plan import EMPTY_FILES, Plan
from tests.kernel.expiring import expire_to, fill, new_table, through
from tests.support.clock import Clock
from tests.support.depth import cost_of
from tests.support.forged import forge_history
from tests.support.lengths import first_short
from tests.support.tables import ids_of


@pytest.fixture
def table():
    return new_table(Clock())


def calls_of(table, work):
    watched = through(table)
    work(watched)
    return Counter(call.name for call in watched.context.storage.calls)


def test_all_consumers_are_told_by_one_walk(table):
    fill(table, 1)
    head = forge_history(table, 400)

    def lags(consumers):
        for number in range(consumers):
            record_consumer(table.context, f"c{number}", Consumer(2 + number % 7))
        return calls_of(table, lambda watched: consumer_lags(watched.context))

    few, many = lags(5), lags(105)
    assert many["get"] <= few["get"] + 100 + 5
    found = {lag.name: lag for lag in consumer_lags(table.context)}
    assert found["c0"].snapshots == head.id - 1
    assert found["c6"].snapshots == head.id - 7


def test_a_savepoint_costs_the_same_after_many(table):
    fill(table, 1)
    for _ in range(10):
        table.create_savepoint()
    few = calls_of(table, lambda watched: watched.create_savepoint())
    for _ in range(60):
        table.create_savepoint()
    many = calls_of(table, lambda watched: watched.create_savepoint())
    assert many.total() <= 1.5 * few.total()


def partitioned(count):
    """A table with a manifest for each partition."""
    table = new_table(Clock(), **{"manifest.merge-min-count": "1000", "write-only": "true"})
    for number in range(count):
        table.append(pa.table({"id": [number], "p": [f"p{number:04}"]}))
    return table


NEW = pa.table({"id": [77], "p": ["p0003"]})
WAYS = {
    "partition": lambda table: table.overwrite(NEW, {"p": "p0003"}),
    "dynamic": lambda table: table.overwrite(NEW),
    "where": lambda table: table.replace(NEW, where="p = 'p0003'"),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_overwrite_of_one_partition_reads_that_partition(way):
    tables = [partitioned(10), partitioned(60)]
    few, many = (calls_of(table, WAYS[way]) for table in tables)
    assert many["get"] <= few["get"] + 2
    assert ids_of(tables[1]) == [*range(3), *range(4, 60), 77]


@pytest.mark.long
def test_branches_are_looked_at_side_by_side(table):
    fill(table, 6)
    table.create_tag("base", 3)
    for number in range(40):
        table.create_branch(f"b{number}", tag="base")
    calls, depth = cost_of(table, lambda watched: expire_to(watched, 2))
    assert calls > 40 * 10
    assert depth < calls / 3


def test_versions_of_the_schema_are_read_side_by_side(table):
    for number in range(40):
        table.append(pa.table({"id": [number], "p": ["a"]}))
        table.alter().set_option("owner.name", str(number)).apply()
        table = table.branch("main")
    calls, depth = cost_of(table, lambda watched: watched.scan().plan())
    assert calls > 40
    assert depth < calls / 2


@pytest.mark.parametrize("side", first_short(["main", "branch"]))
def test_a_merge_reads_what_both_did_side_by_side(table, side):
    fill(table, 1)
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    fill(table.branch("fix"), 1)
    if side == "main":
        forge_history(table, 150)
    else:
        fill(table.branch("fix"), 150)
    calls, depth = cost_of(table.branch("main"), lambda watched: watched.merge_branch("fix"))
    assert calls > 2 * 150
    assert depth < calls / 2


def test_a_plan_with_a_limit_reads_as_many_manifests_as_it_needs():
    table = anabranch.connect("memory://limited").create_table(
        "db.t", "id BIGINT", options={"manifest.merge-min-count": "1000", "write-only": "true"}
    )
    for number in range(40):
        table.append(pa.table({"id": [2 * number, 2 * number + 1]}))
    calls = calls_of(table, lambda watched: watched.scan(limit=3).plan())
    assert calls["get"] < 15
    for limit in (0, 1, 3, 4, 60, 79, 80, 100):
        found = table.scan(limit=limit).to_arrow()["id"].to_pylist()
        assert found == [*range(min(limit, 80))]
    table.overwrite(pa.table({"id": [7]}))
    assert table.scan(limit=3).to_arrow()["id"].to_pylist() == [7]


def test_who_goes_through_a_plan_holds_the_files_of_one_split():
    count = 20_000
    splits = Plan(None, planned_files(range(count)), ("",), np.arange(0, count, 32)).splits
    tracemalloc.start()
    try:
        assert sum(len(split.files) for split in splits) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * count


def planned_files(numbers):
    count = len(numbers)
    return pl.DataFrame(
        {
            "folder": [0] * count,
            "partition": [b""] * count,
            "bucket": [0] * count,
            "file_name": [f"data-{number:040}.parquet" for number in numbers],
            "file_size": [1] * count,
            "row_count": [1] * count,
            "schema_id": [0] * count,
        },
        schema=EMPTY_FILES.schema,
    )


def test_splits_of_a_plan_begin_and_end_anywhere_in_the_manifests_that_it_was_read_from():
    """A plan has a chunk for each large manifest, whose memory it shares with the cache."""
    random, several = Random(5), 0
    for _ in range(40):
        count = random.randint(1, 60)
        ends = sorted({*(random.randint(1, count) for _ in range(random.randint(0, 9))), count})
        bounds = list(pairwise([0, *ends]))
        files = pl.concat([planned_files(range(*bound)) for bound in bounds], rechunk=False)
        several += files.n_chunks() > 2  # it may join some, as it does with one thread
        starts = sorted({0, *(random.randint(0, count - 1) for _ in range(random.randint(0, 9)))})
        plan = Plan(None, files, ("",), np.array(starts))
        found = [[int(file.path[-48:-8]) for file in split.files] for split in plan.splits]
        assert found == [[*range(*bound)] for bound in pairwise([*starts, count])]
    assert several > 20
