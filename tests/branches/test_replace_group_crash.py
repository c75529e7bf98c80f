"""A replacement of several mains, and its undo, that die at any storage call: done again they end in the same place."""

import pytest

from tests.branches.grouping import NEW, OLD, all_ids, copy_of, lake_on, parted_lake, storage_of
from tests.branches.replacing import Time
from tests.support.dying import CHANGING, Died, DyingStorage
from tests.support.faults import FaultyStorage
from tests.support.tables import ids_of, rows

SOME = pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
BOTH = {"db.a": "fix", "db.b": "fix"}


def deaths(lake, work, every):
    """Copies of the warehouse, each as a process left it that died right after a call that changed something.

    Of these calls every so many are tried; the last copy is of a process that did not die.
    """
    whole = FaultyStorage(storage_of(copy_of(lake)))
    work(lake_on(whole))
    changing = [at for at, call in enumerate(whole.calls, 1) if call.name in CHANGING]
    for at in changing[every // 2 :: every]:
        left = copy_of(lake)
        with pytest.raises(Died):
            work(lake_on(DyingStorage(storage_of(left), at, after=True)))
        yield left
    yield lake_on(whole.inner)


def check(left, work, before, after):
    """All was done or nothing, nobody is held up, and done again it is done."""
    found = all_ids(left)
    assert found in ([before, before], [after, after]), found
    time = Time()
    living = lake_on(storage_of(left), time)
    begun = time.millis
    for number, name in enumerate(BOTH):
        living.table(name).append(rows(500 + number, 1))
    assert time.millis - begun < 65_000, "at most one deadline for each table"
    done = found[0] == after
    found = all_ids(living)
    assert found == [sorted([*(after if done else before), 500 + n]) for n in range(2)]
    work(living)
    late = [[500 + n] if done else [] for n in range(2)]
    assert all_ids(living) == [sorted([*after, *rest]) for rest in late]
    for number, name in enumerate(BOTH):
        table = living.table(name)
        kept = ids_of(table.branch(f"main@{table.context.main_generation}"))
        assert kept == sorted([*before, *([] if done else [500 + number])])
        table.append(rows(600, 1))
        table.maintain()
    made = [group for group in living.groups() if group.outcome == "replaced"]
    assert len({group.number for group in living.groups()}) == len(living.groups())
    return made


@SOME
def test_a_replacement(every):
    def replaced(lake):
        lake.replace_group(BOTH)

    for left in deaths(parted_lake(), replaced, every):
        made = check(left, replaced, OLD, NEW)
        assert [group.undoes for group in made] == [None]


@pytest.mark.long
@SOME
def test_an_undo(every):
    def undone(lake):
        lake.undo_group(1)

    begun = parted_lake()
    begun.replace_group(BOTH)
    for left in deaths(begun, undone, every):
        made = check(left, undone, NEW, OLD)
        assert [group.undoes for group in made] == [None, 1]
