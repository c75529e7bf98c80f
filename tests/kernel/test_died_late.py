"""A writer slept for days right before it put its snapshot, put it, and died before it looked for its files."""

import pytest

import anabranch
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.kernel.test_presence import late_commit, through
from tests.support.clock import DAY, Clock
from tests.support.tables import SCHEMA, ids_of, rows


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    runtime = Runtime(clock=clock)
    made = Lake(MemoryStorage(runtime=runtime), runtime=runtime).create_table("db.t", SCHEMA)
    made.append(rows(0, 1))
    return made


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


@pytest.mark.parametrize("list_", [0, 1])
def test_repair_keeps_a_snapshot_of_which_one_list_is_left(table, list_):
    """That is no writer that slept: nobody knows whether it is all there is of acknowledged rows."""
    newest = table.append(rows(1, 1))
    lost = (newest.base_manifest_list, newest.delta_manifest_list)[list_]
    table.context.storage.delete(table.context.layout.manifest_path(lost))
    done = through(table).repair()
    assert [problem.path for problem in done.left] == [f"manifest/{lost}"]
    assert through(table).snapshot.id == 2
