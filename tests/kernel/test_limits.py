"""Scans that stop after some rows: they plan no more of the table than that, and give the rows of the whole plan."""

import random

import pyarrow as pa
import pytest

from tests.kernel.expiring import new_table, through
from tests.support.clock import Clock
from tests.support.lengths import first_short

WIDE = {"manifest.merge-min-count": "1000", "write-only": "true"}


def filled(seed, *, partitions=3, commits=24, last=lambda table: None):
    """A table of a manifest a commit, the rows of each in some of the partitions."""
    chance = random.Random(seed)
    table = new_table(Clock(), **WIDE)
    for number in range(commits):
        count = chance.randrange(1, 5)
        places = [f"p{chance.randrange(partitions)}" for _ in range(count)]
        table.append(pa.table({"id": [10 * number + i for i in range(count)], "p": places}))
    last(table)
    return table


def ids(table, **how):
    return table.scan(columns=["id"], **how).to_arrow()["id"].to_pylist()


def overwrite(table):
    table.overwrite(pa.table({"id": [900], "p": ["p1"]}))


@pytest.mark.parametrize("seed", first_short(range(4), 2))
@pytest.mark.parametrize("last", [lambda table: None, overwrite], ids=["appended", "overwritten"])
def test_a_limit_gives_the_first_rows_of_the_plan(seed, last):
    table = filled(seed, last=last)
    every = ids(table)
    for limit in (0, 1, 2, 5, 13, len(every) - 1, len(every), len(every) + 1):
        assert ids(table, limit=limit) == every[:limit]


def test_few_rows_of_a_partitioned_table_are_planned_from_few_manifests():
    table = through(filled(1, partitions=2, commits=60))
    ids(table, limit=3)
    read = [
        call for call in table.context.storage.calls if "/manifest-" in call.path and "list" not in call.path
    ]
    assert len(read) <= 15


@pytest.mark.parametrize("bucket", ["1", "2"])
def test_a_limit_keeps_the_order_of_buckets(bucket):
    table = new_table(Clock(), **WIDE, bucket=bucket, **{"bucket-key": "id"})
    for number in range(12):
        table.append(pa.table({"id": [2 * number, 2 * number + 1], "p": ["b", "a"]}))
    every = ids(table)
    assert [ids(table, limit=limit) for limit in (1, 7, 20)] == [every[:1], every[:7], every[:20]]
