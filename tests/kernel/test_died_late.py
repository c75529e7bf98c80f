"""A writer slept for days right before it put its snapshot, put it, and died before it looked for its files."""

from dataclasses import replace

import pytest

import anabranch
from tests.kernel.test_presence import clock, late_commit, table, through
from tests.support.clock import DAY
from tests.support.tables import ids_of, rows

__all__ = ["clock", "table"]


def die_late(table, clock, *, cleanings=1):
    """Snapshot 2 is the newest, and its files are in the folder of the cleaning, or were purged."""
    storage, path, content = late_commit(table)
    for _ in range(cleanings):
        clock.now += 2 * DAY
        through(table).remove_orphan_files()
    storage.put(path, content)
    return through(table)


def test_whoever_commits_next_brings_its_files_back(table, clock):
    found = die_late(table, clock)
    assert found.append(rows(9, 1)).id == 3
    assert ids_of(found) == [0, 1, 2, 3, 9]


def test_maintenance_brings_its_files_back(table, clock):
    found = die_late(table, clock)
    found.maintain()
    assert ids_of(found) == [0, 1, 2, 3]


def test_repair_takes_it_back_when_its_files_were_purged(table, clock):
    found = die_late(table, clock, cleanings=2)
    with pytest.raises(anabranch.CorruptTableError, match="is referred to, but does not exist") as caught:
        found.append(rows(9, 1))
    assert "`repair`" in caught.value.hint
    planned = found.repair(dry_run=True)
    assert "take snapshot 2 of 'db.t' back" in planned.steps[0].what
    done = found.repair()
    assert (done.steps, done.left) == (planned.steps, ())
    assert ids_of(through(table)) == [0]
    assert through(table).append(rows(9, 1)).id == 2


@pytest.mark.parametrize("left", ["base list", "delta list", "manifest"])
def test_repair_keeps_a_snapshot_of_which_anything_is_left(table, left):
    """That is no writer that slept: somebody may find out what there was of acknowledged rows."""
    newest = table.append(rows(1, 1))
    (meta,) = table.context.manifests.read_list(newest.delta_manifest_list)
    names = {
        "base list": newest.base_manifest_list,
        "delta list": newest.delta_manifest_list,
        "manifest": meta.file_name,
    }
    for what, name in names.items():
        if what != left:
            table.context.storage.delete(table.context.layout.manifest_path(name))
    assert through(table).repair().left
    assert through(table).snapshot.id == 2


def test_repair_keeps_what_another_engine_put(table, clock):
    """It does not look for its files afterwards, so it was told that it is committed."""
    storage, path, _ = late_commit(table)
    found = die_late(table, clock, cleanings=2)
    made = found.snapshot
    storage.put(path, replace(made, properties={}).to_json())
    assert through(table).repair().left
    assert through(table).snapshot.id == 2
