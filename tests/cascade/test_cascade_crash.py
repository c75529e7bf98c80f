"""A cascade that dies at any storage call: nothing is seen of it or all, and run again it ends in the same place."""

import pytest

from anabranch.cascade import undo_cascade
from tests.branches.grouping import copy_of, lake_on, storage_of
from tests.branches.replacing import Time
from tests.cascade.story import cascade, doubled, even, expected, plan, spoilt, values
from tests.support.dying import CHANGING, Died, DyingStorage
from tests.support.faults import FaultyStorage, run

SOME = pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
WANTED = {"db.clean": expected(range(6), doubled), "db.big": expected(range(6), doubled, even)}


def begun():
    return spoilt(good=2, bad=1)


def seen(lake):
    tables = lake.together(*WANTED)
    return [sorted((r["id"], r["v"]) for r in table.scan().to_arrow().to_pylist()) for table in tables]


@SOME
def test_a_run(every):
    lake = begun()
    whole = FaultyStorage(storage_of(copy_of(lake)))
    cascade(lake_on(whole))
    changing = [at for at, call in enumerate(whole.calls, 1) if call.name in CHANGING]
    before, after = seen(lake), [*WANTED.values()]
    for at in changing[every // 2 :: every]:
        left = copy_of(lake)
        with pytest.raises(Died):
            cascade(lake_on(DyingStorage(storage_of(left), at, after=True)))
        found = seen(left)
        assert found in (before, after), at
        living = lake_on(storage_of(left), Time())
        result = cascade(living)
        assert result.is_published
        assert (result.group is None) == (found == after)
        assert seen(living) == after
        assert plan(living).is_done
        assert [group.outcome for group in living.groups()].count("replaced") == 1
        undo_cascade(living, table="db.orders")
        assert seen(living) == before


def test_readers_see_all_of_it_or_nothing_at_every_call():
    lake = begun()
    tables = [lake.table(name) for name in WANTED]
    known = []

    def look(path):
        if "/branch/" in path or path.startswith("groups"):
            known.append([table.scan().to_arrow().num_rows for table in tables])

    hooks = [run(when, "put_if_absent", look, times=10**9) for when in ("before", "after")]
    counts = [[table.scan().to_arrow().num_rows for table in tables]]
    cascade(lake_on(FaultyStorage(storage_of(lake), hooks)))
    counts.append([len(rows) for rows in WANTED.values()])
    assert values(lake, "db.big") == WANTED["db.big"]
    assert known[0] == counts[0]
    assert all(one in counts for one in known)
