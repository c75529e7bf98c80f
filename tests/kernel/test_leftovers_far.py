"""A store that fails while somebody tells leftovers from history says nothing of them: nobody builds on what may be one."""

import itertools

import pytest

from anabranch.errors import CommitOutcomeUnknownError, StorageError
from tests.kernel.leaving import drop_hints, foreign_commit, fresh, roll_back, roll_back_elsewhere, table
from tests.support.dying import copy_of, through
from tests.support.faults import FaultyStorage, fail
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

__all__ = ["table"]


def beside_history(table):
    """The rows 4 and 50 of another engine above a history that went on without them."""
    newest = fresh(table).snapshot
    roll_back_elsewhere(table, 4)()
    fresh(table).append(rows(10, 1))
    foreign_commit(table, 6, newest, row=50)


def above_rolled_back(table):
    """The same above a gap, of which a record of ours tells."""
    newest = fresh(table).snapshot
    roll_back(table, 3)()
    foreign_commit(table, 6, newest, row=50)


@pytest.mark.parametrize("hints", first_short([True, False]), ids=["hints", "no hints"])
@pytest.mark.parametrize("leave", [beside_history, above_rolled_back])
@pytest.mark.parametrize("call", ["get", "list"])
def test_whichever_call_fails_history_stays_what_it_is(table, leave, hints, call):
    """The row 50, which another engine has acknowledged, may be appended to what is there."""
    for nth in itertools.count(1):
        here = copy_of(table)
        leave(here)
        if not hints:
            drop_hints(here)
        there = ids_of(fresh(here))
        assert not {4, 50} & {*there}
        storage = FaultyStorage(here.context.storage, [fail(call, nth=nth)])
        may_be_there = {50}
        try:
            through(here, storage).append(rows(100, 1))
            there.append(100)
        except CommitOutcomeUnknownError:
            may_be_there.add(100)
        except StorageError:
            pass
        found = ids_of(fresh(here))
        assert sorted({*found} - may_be_there) == sorted(there)
        assert len(found) == len({*found})
        if storage.counts()[call] < nth:
            break
    assert nth > 1
