"""Savepoints: made, read, removed, by several at once."""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.refs.savepoints import tend
from tests.kernel.savepointing import after, branch_of, check_settled, check_whole, files_of, fresh
from tests.support.deaths import through
from tests.support.faults import run
from tests.support.lengths import first_short
from tests.support.moments import copied_history, foreign_savepoint, forget, history, rewrite
from tests.support.tables import ids_of, rows

DAY = 86_400_000


@pytest.fixture
def table():
    return copied_history()


# One after the other


def test_a_savepoint_of_the_current_moment(table):
    made = table.create_savepoint()
    assert (made.id, made.saved_snapshot_id, made.schema_id, made.record_count) == (1, 6, 0, 6)
    assert made.save_time > table.snapshot.time_millis
    assert files_of(table, "savepoint") == ["savepoint-1"]
    content = json.loads(table.context.storage.get("savepoint/savepoint-1"))
    assert content["fullManifestList"] == made.full_manifest_list
    assert content["savedSnapshotId"] == 6
    assert table.savepoints() == [made]
    check_settled(table)
    assert table.tags() == []


def test_a_savepoint_of_a_chosen_moment(table):
    table.create_tag("good", 2)
    for number, made in enumerate(
        [table.create_savepoint(3), table.create_savepoint("good"), table.create_savepoint(timestamp=5500),
         table.at("snapshot.4").create_savepoint(), table.create_savepoint("savepoint.1"),
         table.savepoint_manager.create("snapshot.1")], 1,
    ):  # fmt: skip
        assert made.id == number
    assert [s.saved_snapshot_id for s in table.savepoints()] == [3, 2, 5, 4, 3, 1]
    with pytest.raises(anabranch.NotFoundError):
        table.create_savepoint(77)


def test_it_keeps_the_rows_when_all_else_is_gone(table):
    made = table.create_savepoint(3)
    forget(table, 1, 2, 3)
    assert ids_of(table.at("savepoint.1")) == [0, 1, 2]
    assert table.at("savepoint.1").snapshot == made.saved_snapshot
    table.context.storage.delete(f"manifest/{made.full_manifest_list}")  # as an orphan cleaning of others may
    assert ids_of(fresh(table).at("savepoint.1")) == [0, 1, 2]


def test_it_is_read_through_the_full_list_when_another_engine_removed_the_rest(table):
    made = table.create_savepoint(3)
    forget(table, 1, 2, 3)
    table.context.storage.delete(f"tag/tag-{made.pin}")
    for name in (made.saved_snapshot.base_manifest_list, made.saved_snapshot.delta_manifest_list):
        table.context.storage.delete(f"manifest/{name}")
    found = fresh(table).at("savepoint.1")
    assert ids_of(found) == [0, 1, 2]
    assert (found.snapshot.time_millis, found.snapshot.total_record_count) == (3000, 3)
    for make in (found.create_savepoint, lambda: found.create_tag("x")):
        with pytest.raises(anabranch.InvalidInputError, match="full manifest list of a savepoint"):
            make()
    assert found.tags() == []


def test_savepoints_of_the_proposal_are_read_and_counted(table):
    foreign_savepoint(table, 5, 2)
    assert ids_of(table.at("savepoint.5")) == [0, 1]
    forget(table, 1, 2)
    assert ids_of(table.at("savepoint.5")) == [0, 1]
    assert table.create_savepoint().id == 6
    assert table.delete_savepoint(5).saved_snapshot_id == 2
    assert [s.id for s in table.savepoints()] == [6]


def test_rows_are_counted_where_the_snapshot_does_not_say(table):
    for unknown in (None, -3):
        rewrite(table, 6, total_record_count=unknown)
        assert table.create_savepoint().record_count == 6


def test_numbers_are_never_given_out_again(table):
    assert [table.create_savepoint().id for _ in range(3)] == [1, 2, 3]
    table.delete_savepoint(3)
    assert files_of(table, "savepoint") == ["savepoint-1", "savepoint-2", "savepoint-3.deleted"]
    assert table.context.storage.get("savepoint/savepoint-3.deleted") == b""
    assert table.create_savepoint().id == 4
    table.delete_savepoint(1)
    table.delete_savepoint(4)
    table.delete_savepoint(2)
    assert table.savepoints() == []
    assert table.create_savepoint().id == 5
    with pytest.raises(
        anabranch.NotFoundError, match="savepoint 4 does not exist in 'db.t' any more"
    ) as caught:
        table.delete_savepoint(4)
    assert "savepoints there are: 5" in caught.value.hint
    check_settled(table)


def test_old_marks_of_deleted_savepoints_go(table):
    for _ in range(3):
        table.create_savepoint()
    table.delete_savepoint(1)
    table.delete_savepoint(3)
    tend(after(table, DAY // 2).context)
    assert files_of(table, "savepoint") == ["savepoint-1.deleted", "savepoint-2", "savepoint-3.deleted"]
    tend(after(table, 2 * DAY).context)
    assert files_of(table, "savepoint") == ["savepoint-2", "savepoint-3.deleted"], "that of the newest stays"
    assert after(table, 3 * DAY).create_savepoint().id == 4


def test_the_manager_of_the_proposal(table):
    manager = table.savepoint_manager
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (None, None)
    made = [manager.create(version) for version in (2, 3, None)]
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (1, 3)
    place = table.context.storage.url
    assert manager.savepoint_directory == f"{place}/savepoint"
    assert manager.savepoint_path(2) == f"{place}/savepoint/savepoint-2"
    assert made[1] == Savepoint.from_path(table.context.storage, "savepoint/savepoint-2")
    assert (
        manager.savepoint(2)
        == made[1]
        == Savepoint.from_path(table.context.storage, manager.savepoint_path(2))
    )
    assert manager.savepoint_exists(2)
    assert manager.delete(3) == made[2]
    assert not manager.savepoint_exists(3)
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (1, 2)
    assert manager.savepoints() == made[:2]
    with pytest.raises(anabranch.NotFoundError, match="savepoint 3 does not exist"):
        manager.savepoint(3)
    table.context.storage.put("savepoint/savepoint-2", b"{")
    with pytest.raises(anabranch.CorruptTableError, match="savepoint-2"):
        manager.savepoint(2)


def test_numbers_are_the_tables_whatever_the_branch(table):
    fix = branch_of(table, "fix")
    assert [t.create_savepoint().id for t in (table, fix, table, fix)] == [1, 2, 3, 4]
    assert [s.id for s in table.savepoints()] == [1, 3]
    assert [s.id for s in fix.savepoints()] == [2, 4]
    assert (fix.savepoint_manager.earliest_savepoint_id, fix.savepoint_manager.latest_savepoint_id) == (2, 4)
    fix.append(rows(100, 1))
    made = fix.create_savepoint()
    assert made.id == 5
    assert ids_of(fix.at("savepoint.5")) == [*range(6), 100]
    with pytest.raises(anabranch.NotFoundError, match="savepoint 5 is of another branch than 'db.t'"):
        table.at("savepoint.5")
    with pytest.raises(anabranch.NotFoundError, match="another branch"):
        table.delete_savepoint(5)
    check_settled(table)
    check_settled(fix)
    fix.delete_savepoint(5)
    assert table.create_savepoint().id == 6


def test_a_branch_that_took_over_the_pin_has_the_savepoint(table):
    made = table.create_savepoint()
    fix = branch_of(table, "fix")
    assert fix.savepoints() == []
    pin = f"tag/tag-{made.pin}"
    table.context.storage.put(f"branch/branch-fix/{pin}", table.context.storage.get(pin))
    assert fix.savepoints() == [made]
    assert ids_of(fix.at("savepoint.1")) == ids_of(table)


# At once


@pytest.mark.parametrize("store", first_short(["memory", "disk"]))
def test_many_make_and_remove_savepoints_at_once(store, tmp_path):
    table = copied_history() if store == "memory" else history(tmp_path)
    together = threading.Barrier(4)

    def work(_):
        mine = anabranch.Table(replace(table.context))
        together.wait(30)
        made = []
        for number in range(6):
            made.append(mine.create_savepoint((number % 6) + 1).id)
            if number % 3 == 2:
                mine.delete_savepoint(made[-1])
        return made

    with ThreadPoolExecutor(4) as pool:
        made = [*pool.map(work, range(4))]
    assert sorted(itertools.chain(*made)) == list(range(1, 25)), "each number once, and none left out"
    assert len(table.savepoints()) == 16
    check_whole(table, lambda snapshot: list(range(snapshot)))
    check_settled(table)


def test_the_number_goes_to_whoever_puts_it_first(table):
    def compete(path):
        table.create_savepoint(2)

    slow = through(table, run("before", "put_if_absent", compete, where="savepoint/*"))
    assert slow.create_savepoint(3).id == 2
    assert [s.saved_snapshot_id for s in table.savepoints()] == [2, 3]
    check_settled(table)


def test_a_number_that_was_given_and_taken_back_meanwhile_is_not_used(table):
    def compete(path):
        table.delete_savepoint(table.create_savepoint(2).id)
        if later:
            table.create_savepoint(4)

    for later in (False, True):
        slow = through(table, run("before", "put_if_absent", compete, where="savepoint/*"))
        newest_id = slow.create_savepoint(3).id
        assert newest_id == (5 if later else 2), "1, then 3 and 4, were given to others"
    assert [s.saved_snapshot_id for s in table.savepoints()] == [3, 4, 3]
    check_settled(table)


def test_a_savepoint_that_is_removed_while_it_is_made_leaves_no_tag(table):
    def remove(path):
        table.delete_savepoint(1)

    slow = through(table, run("before", "put", remove, where="tag/tag-anabranch-savepoint-*"))
    assert slow.create_savepoint().id == 1
    assert table.savepoints() == []
    check_settled(table)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_snapshot_that_expires_before_it_is_held(table, nth):
    def expire(path):
        forget(table, 1, 2)

    slow = through(
        table,
        run("before", ["put", "get"][nth - 1], expire, where=["tag/*", "snapshot/*-2"][nth - 1], nth=nth),
    )
    with pytest.raises(anabranch.NotFoundError, match="snapshot.2' of 'db.t' was removed"):
        slow.create_savepoint(2)
    assert table.savepoints() == []
    assert table.tags(include_internal=True) == []
    assert table.create_savepoint().id == 1


def test_a_number_that_another_snapshot_got_is_not_taken_for_it(table):
    def roll_back(path):
        forget(table, 6)
        table.append(rows(60, 1))

    slow = through(table, run("before", "put", roll_back, where="tag/*"))
    with pytest.raises(anabranch.NotFoundError, match="removed while"):
        slow.create_savepoint()
    assert table.tags(include_internal=True) == []
