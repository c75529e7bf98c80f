"""Small lakes with lineage, and what an index says of them."""

import itertools

import anabranch
from anabranch.lineage.index import LineageIndex
from anabranch.lineage.memory import MemoryStore
from tests.lineage.world import told
from tests.support.tables import SCHEMA, rows

ALL = 10**15
"""A moment after everything, in epoch milliseconds."""
names = itertools.count()
"""For stores in memory."""


def index_of(lake, place):
    return LineageIndex.of(lake.catalog, {"lineage.index": place}, {})


def now(index):
    """What the index says, brought up to date."""
    caught = index.catch_up()
    assert caught.problems == ()
    return said(index)


def said(index):
    with index.reading() as store:
        return told(store)


def truth(lake):
    """The same from the tables themselves."""
    tables = [f"{database}.{table}" for database in lake.databases() for table in lake.tables(database)]
    return told(MemoryStore.of_tables([lake.table(name).context for name in tables]))


def lake_with(url, *tables, commits=3):
    lake = anabranch.connect(str(url))
    for name in tables:
        table = lake.create_table(name, SCHEMA)
        for number in range(commits):
            table.append(rows(number, 1))
    return lake


def copied(lake, source, sink):
    with lake.job("copy"):
        lake.table(sink).append(lake.table(source).scan().to_arrow())


def lake_of_two(url=None):
    lake = lake_with(url or f"memory://index-{next(names)}", "db.a", "db.b")
    for _ in range(2):
        copied(lake, "db.a", "db.b")
    return lake
