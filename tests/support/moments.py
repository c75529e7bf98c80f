"""Histories to travel in: snapshots at chosen times, expired ones, tags and savepoints of other makers."""

import itertools
import json
from dataclasses import replace

import anabranch
from anabranch.kernel.log.context import TableContext
from anabranch.storage.memory import MemoryStorage
from tests.support.tables import make_table, rows

COMMITS = 6

_numbers = itertools.count()
_MADE = []


def copied_history():
    """`history` in memory, made once and copied: for tests that need many."""
    if not _MADE:
        _MADE.append(history("memory://history"))
    made = _MADE[0].context
    storage = MemoryStorage(f"history{next(_numbers)}")
    storage.put_many({info.path: made.storage.get(info.path) for info in made.storage.list(recursive=True)})
    return anabranch.Table(TableContext(storage, made.name))


def history(url, times=None, **how):
    """A table of six commits, each adding the row of its number less one; snapshot n is of time 1000 n."""
    table = make_table(url, **how)
    for i in range(COMMITS):
        table.append(rows(i, 1))
    set_times(table, times or {i: 1000 * i for i in range(1, COMMITS + 1)})
    return table


def set_times(table, times):
    """Give snapshots other commit times."""
    for number, millis in times.items():
        rewrite(table, number, time_millis=millis)


def rewrite(table, number, **changes):
    """Change what a snapshot's file says, and what our later snapshots say of their parent."""
    changes.setdefault("properties", {})
    changed = replace(table.context.snapshots.get(number), **changes)
    table.context.storage.put(table.context.layout.snapshot_path(number), changed.to_json())


def forget(table, *numbers):
    """Remove snapshot files, as an expiry does, or a rollback of another engine, which moves the hint first."""
    left = [number for number in table.context.snapshots.ids() if number not in numbers]
    if left:
        table.context.snapshots.take_back_hint(left[-1])
    for number in numbers:
        table.context.storage.delete(table.context.layout.snapshot_path(number))


def foreign_tag(table, name, number):
    """A tag as another engine makes it, of a name that we would not give."""
    layout = table.context.layout
    table.context.storage.put(layout.tag_path(name), table.context.storage.get(layout.snapshot_path(number)))


def foreign_savepoint(table, number, snapshot_id, **changes):
    """A savepoint that says no more than the proposal asks for."""
    made = table.create_savepoint(snapshot_id)
    content = {
        "id": number,
        "savedSnapshotId": snapshot_id,
        "schemaId": made.schema_id,
        "fullManifestList": made.full_manifest_list,
        "recordCount": made.record_count,
        **changes,
    }
    table.context.storage.delete(table.context.layout.savepoint_path(made.id))
    table.context.storage.delete(table.context.layout.tag_path(made.pin))
    table.context.storage.put(table.context.layout.savepoint_path(number), json.dumps(content).encode())
