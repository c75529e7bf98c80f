"""A warehouse with a table that is corrected, and tables that streaming jobs make from it."""

import itertools

from anabranch.cascade import CascadeOptions, plan_cascade, run_cascade
from anabranch.storage.open import open_storage
from tests.branches.grouping import lake_on
from tests.cascade.embedded import SCHEMA, run, streaming
from tests.support.tables import ids_of

_names = itertools.count()


def doubled(rows):
    return [{"id": row["id"], "v": row["v"] * 2} for row in rows]


def even(rows):
    return [row for row in rows if row["id"] % 2 == 0]


def all_of(*sources):
    return [
        {"id": row["id"] + 1_000 * number, "v": row["v"]}
        for number, rows in enumerate(sources)
        for row in rows
    ]


CLEAN = streaming("clean", ["db.orders"], "db.clean", doubled)
BIG = streaming("big", ["db.clean"], "db.big", even)
CHAIN = (CLEAN, BIG)


def new_lake(*tables):
    lake = lake_on(open_storage(f"memory://cascade{next(_names)}"))
    for table in tables:
        lake.create_table(table, SCHEMA)
    return lake


def rows(first, count, factor=1):
    return [{"id": i, "v": i * factor} for i in range(first, first + count)]


def values(lake, table):
    return sorted((row["id"], row["v"]) for row in lake.table(table).scan().to_arrow().to_pylist())


def expected(ids, *functions):
    found = [{"id": i, "v": i} for i in ids]
    for function in functions:
        found = function(found)
    return sorted((row["id"], row["v"]) for row in found)


def spoilt(
    jobs=CHAIN, *, good=2, bad=2, tables=("db.orders", "db.clean", "db.big"), after_good=lambda lake: None
):
    """Orders in batches of two, from some batch on with the wrong value; jobs have taken in each. `good` is tagged.

    On the branch `fix` of `good` the bad batches are right, and it is main by now.
    """
    lake = new_lake(*tables)
    orders = lake.table("db.orders")
    for number in range(good):
        orders.append(rows(2 * number, 2))
        for job in jobs:
            run(job, lake)
    if good:
        orders.create_tag("good")
    after_good(lake)
    for number in range(good, good + bad):
        orders.append(rows(2 * number, 2, factor=100))
        for job in jobs:
            run(job, lake)
    correct(lake, good, bad)
    return lake


def correct(lake, good, bad, *, name="fix"):
    orders = lake.table("db.orders")
    orders.create_branch(name, "good")
    for number in range(good, good + bad):
        orders.branch(name).append(rows(2 * number, 2))
    orders.replace_main_branch(name)


def plan(lake, jobs=CHAIN):
    return plan_cascade(lake, "db.orders", jobs)


def cascade(lake, jobs=CHAIN, **options):
    return run_cascade(lake, "db.orders", jobs, CascadeOptions(**options), runner=run)


__all__ = [
    "BIG",
    "CHAIN",
    "CLEAN",
    "cascade",
    "correct",
    "doubled",
    "even",
    "expected",
    "ids_of",
    "plan",
    "spoilt",
]
