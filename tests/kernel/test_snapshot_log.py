"""The log of snapshots, as damaged and half-removed files show it."""

from dataclasses import replace

import pytest

import anabranch
from tests.support.faults import FaultyStorage, run
from tests.support.moments import history, rewrite
from tests.support.tables import ids_of, rows


@pytest.fixture
def table(tmp_path):
    return history(tmp_path)


def test_a_listing_that_names_what_cannot_be_read_is_an_error_and_no_endless_loop(table, tmp_path):
    folder = tmp_path / "db.db" / "t" / "snapshot"
    (folder / "LATEST").unlink()
    storage = FaultyStorage(
        table.context.storage, [run("before", "get", _not_there, times=10**6, where="*-6")]
    )
    with pytest.raises(anabranch.StorageError, match="snapshot 6"):
        anabranch.Table(replace(table.context, storage=storage)).snapshot  # noqa: B018


@pytest.mark.parametrize("number", [1, 4, 7, 2**62])
def test_a_snapshot_under_the_number_of_another_is_damaged(table, number):
    """Following such numbers would lead in circles."""
    wrong = replace(table.context.snapshots.get(5), id=number)
    table.context.storage.put(table.context.layout.snapshot_path(5), wrong.to_json())
    with pytest.raises(anabranch.CorruptTableError, match=f"snapshot-5: holds snapshot {number}, expected 5"):
        list(table.snapshots())
    table.context.storage.put(table.context.layout.snapshot_path(6), replace(wrong, id=5).to_json())
    with pytest.raises(anabranch.CorruptTableError, match="snapshot-6"):
        table.snapshot  # noqa: B018


def _not_there(path):
    raise anabranch.NotFoundError(path)


def test_the_total_of_rows_stays_unknown_where_it_was(table):
    """Very old engines did not count; a sum that leaves out their rows would be wrong."""
    rewrite(table, 6, total_record_count=None)
    snapshot = table.append(rows(6, 2))
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (None, 2)
    assert "totalRecordCount" not in snapshot.to_dict()
    assert ids_of(table) == list(range(8))


def test_a_time_that_is_still_to_come_is_not_followed(table):
    future = 10**15
    before = table.snapshot.time_millis
    rewrite(table, 6, time_millis=future)
    made = table.append(rows(6, 1))
    assert before <= made.time_millis < future
    assert table.at(timestamp=made.time_millis).snapshot.id == 7
