"""Writers that leave a snapshot above the newest, because a rollback for good overtook them."""

import os
from dataclasses import replace

import pytest

from tests.support.dying import Died, copy_of, through
from tests.support.faults import FaultyStorage, run
from tests.support.tables import make_table, rows


@pytest.fixture
def table(tmp_path):
    """Five snapshots, one row each."""
    made = make_table(tmp_path, options={"write-only": "true"})
    for start in range(5):
        made.append(rows(start, 1))
    return made


def die(path):
    raise Died


def fresh(table):
    return through(table, table.context.storage)


def leave(table, meanwhile, row=50):
    """A writer of ours is paused before its put, `meanwhile` happens, it puts its snapshot and dies."""
    faults = [
        run("before", "put_if_absent", lambda path: meanwhile(), where="snapshot/*"),
        run("after", "put_if_absent", die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).append(rows(row, 1))


def leave_foreign(table, meanwhile, row=50):
    """The same by another engine, which is not killed: it does not look back, and says where its snapshot is."""
    leave(table, meanwhile, row)
    log = fresh(table).context.snapshots
    left = log.find(max(log.ids()))
    plain = replace(left, properties={}, uuid=None)
    table.context.storage.put(table.context.layout.snapshot_path(left.id), plain.to_json())
    table.context.storage.put(table.context.layout.latest_hint_path, str(left.id).encode())
    return plain


def roll_back(table, to=2):
    return lambda: fresh(table).rollback(to, destructive=True)


def drop_hints(table):
    table.context.storage.delete(table.context.layout.latest_hint_path)
    table.context.storage.delete(table.context.layout.earliest_hint_path)


def file_of(table, path):
    return os.path.join(table.context.storage.url.removeprefix("file://"), path)


def roll_back_elsewhere(table, to):
    """As other engines roll back: the hint, then the newest snapshots; nothing says what was removed."""

    def roll_back():
        storage, layout = table.context.storage, table.context.layout
        newest = max(fresh(table).context.snapshots.ids())
        storage.put(layout.latest_hint_path, str(to).encode())
        for number in range(newest, to, -1):
            storage.delete(layout.snapshot_path(number))

    return roll_back


def foreign_commit(table, number, on, row):
    """Another engine puts a snapshot by number and hint, built on what it read before."""
    other = copy_of(table)
    other.context.storage.delete_folder(other.context.layout.snapshot_folder)
    other.context.storage.put(other.context.layout.snapshot_path(on.id), on.to_json())
    other.context.storage.put(other.context.layout.latest_hint_path, str(on.id).encode())
    before = {info.path for info in other.context.storage.list(recursive=True)}
    made = fresh(other).append(rows(row, 1))
    plain = replace(made, properties={}, uuid=None)
    for info in other.context.storage.list(recursive=True):
        if info.path not in before and not info.path.startswith("snapshot/"):
            table.context.storage.put(info.path, other.context.storage.get(info.path))
    table.context.storage.put(table.context.layout.snapshot_path(number), plain.to_json())
    table.context.storage.put(table.context.layout.latest_hint_path, str(number).encode())
    return plain
