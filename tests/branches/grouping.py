"""A small warehouse in which several tables have a branch that is to take the place of main."""

import itertools

from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.open import open_storage
from tests.branches.replacing import Ids, Time
from tests.support.tables import SCHEMA, ids_of, rows

_names = itertools.count()

OLD, NEW = [0, 1, 2, 1000], [0, 1, 2, 100]
"""The rows of each table before and after."""


def lake_on(storage, time=None):
    """The warehouse as another process has it, for which time passes only by waiting."""
    time = time or Time()
    return Lake(storage, runtime=Runtime(time, Ids(next(_names)), time))


def parted_lake(*tables, options=None):
    """Tables `db.a`, `db.b` or those named: rows 0 to 2 tagged `good`, then 1000 on main and 100 on the branch `fix`."""
    lake = lake_on(open_storage(f"memory://grouping{next(_names)}"))
    for name in tables or ("db.a", "db.b"):
        table = lake.create_table(name, SCHEMA, options=options)
        table.append(rows(0, 3))
        table.create_tag("good")
        table.append(rows(1000, 1))
        table.create_branch("fix", "good")
        table.branch("fix").append(rows(100, 1))
    return lake


def storage_of(lake):
    return lake.catalog.storage


def again(lake, time=None):
    return lake_on(storage_of(lake), time)


def copy_of(lake):
    there = open_storage(f"memory://grouping{next(_names)}")
    here = storage_of(lake)
    there.put_many({info.path: here.get(info.path) for info in here.list(recursive=True)})
    return lake_on(there)


def all_ids(lake, *tables):
    return [ids_of(table) for table in lake.together(*(tables or ("db.a", "db.b")))]
