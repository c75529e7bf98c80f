"""A writer that was paused while history moved on must not take a number that history has left."""

import pytest

import anabranch
from tests.support.tables import ids_of, make_table, rows


class _Pausing:
    """A storage that lets somebody else act right before a snapshot is put."""

    def __init__(self, inner, meanwhile):
        self._inner = inner
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put_if_absent(self, path, data):
        if "snapshot/snapshot-" in path and self._meanwhile is not None:
            act, self._meanwhile = self._meanwhile, None
            act()
        return self._inner.put_if_absent(path, data)


def _paused(table, meanwhile):
    from dataclasses import replace

    context = replace(table.context, storage=_Pausing(table.context.storage, meanwhile))
    return anabranch.Table(context)


def _remove(table, *ids):
    for number in ids:
        table.context.storage.delete(table.context.layout.snapshot_path(number))


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    made.append(rows(0, 1))
    made.append(rows(1, 1))
    return made


def test_a_put_below_the_expired_part_of_history_is_taken_back(table):
    def expire_past_it():
        for i in range(4):
            table.append(rows(10 + i, 1))
        _remove(table, 1, 2, 3, 4)

    snapshot = _paused(table, expire_past_it).append(rows(5, 1))
    assert snapshot.id == 7
    assert ids_of(table) == [0, 1, 5, 10, 11, 12, 13]
    assert [s.id for s in table.snapshots()] == [7, 6, 5]


def test_a_put_right_below_what_is_left_is_taken_back(table):
    def expire_up_to_it():
        for i in range(3):
            table.append(rows(10 + i, 1))
        _remove(table, 1, 2, 3)

    snapshot = _paused(table, expire_up_to_it).append(rows(5, 1))
    assert snapshot.id == 6
    assert ids_of(table) == [0, 1, 5, 10, 11, 12]


def test_a_put_above_a_rolled_back_history_is_taken_back(table):
    snapshot = _paused(table, lambda: _remove(table, 2)).append(rows(5, 1))
    assert snapshot.id == 2
    assert ids_of(table) == [0, 5]


def test_a_put_whose_predecessor_expired_afterwards_counts(table):
    snapshot = _paused(table, lambda: _remove(table, 1, 2)).append(rows(5, 1))
    assert snapshot.id == 3
    assert ids_of(table) == [0, 1, 5]
