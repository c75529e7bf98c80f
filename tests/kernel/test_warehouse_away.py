"""The warehouse goes away under a writer, as a network mount does, and comes back."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import AnabranchError, NotFoundError, PositionLostError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.streaming.history import History
from anabranch.streaming.offsets import Position
from tests.support.faults import FaultyStorage
from tests.support.tables import ids_of, make_table, rows


@pytest.mark.parametrize("mount_point_stays", [False, True])
def test_a_writer_makes_nothing_in_its_place_and_goes_on(tmp_path, mount_point_stays):
    mount, away = tmp_path / "mount", tmp_path / "away"
    table = make_table(mount / "wh")
    table.append(rows(0, 1))
    writer = anabranch.connect(str(mount / "wh")).table("db.t")
    mount.rename(away)
    if mount_point_stays:
        mount.mkdir()
    for one in (table, writer):
        with pytest.raises(AnabranchError):
            one.append(rows(1, 1))
    assert mount.exists() == mount_point_stays
    if mount_point_stays:
        assert [*mount.iterdir()] == []
        mount.rmdir()
    away.rename(mount)
    writer.append(rows(1, 1))
    assert ids_of(table) == [0, 1]


@pytest.mark.parametrize("has_read", [False, True])
def test_a_stream_takes_a_warehouse_that_is_away_for_nothing_else(tmp_path, has_read):
    """It was told that the table had been rolled back, which is final for a job."""
    table = make_table(tmp_path / "wh")
    table.append(rows(0, 1))
    lake = anabranch.connect(str(tmp_path / "wh"))
    context = lake.table("db.t").context
    position = Position.after(context.snapshots.head())
    if has_read:  # what it knows of the table
        context = replace(context, cache=MetadataCache())
        assert context.schemas.latest() is not None
    (tmp_path / "wh").rename(tmp_path / "away")
    with pytest.raises(NotFoundError, match="is not there") as error:
        History(context).verified(position)
    assert not isinstance(error.value, PositionLostError)
    assert "go" in error.value.hint
    (tmp_path / "away").rename(tmp_path / "wh")
    assert History(context).verified(position).id == 1


@pytest.mark.parametrize("looks", range(12))
def test_a_stream_at_which_the_warehouse_comes_back_between_two_looks(tmp_path, monkeypatch, looks):
    """It had seen no snapshots and then that the table is there, and was told that it had been rolled back."""
    table = make_table(tmp_path / "wh")
    table.append(rows(0, 1))
    context = anabranch.connect(str(tmp_path / "wh")).table("db.t").context
    context = replace(context, storage=FaultyStorage(context.storage))
    position = Position.after(context.snapshots.head())
    context.storage.forget_calls()
    begin = FaultyStorage._begin

    def come_back(storage, *call):
        if len(storage.calls) == looks and not (tmp_path / "wh").exists():
            (tmp_path / "away").rename(tmp_path / "wh")
        return begin(storage, *call)

    monkeypatch.setattr(FaultyStorage, "_begin", come_back)
    context = replace(context, cache=MetadataCache())
    (tmp_path / "wh").rename(tmp_path / "away")
    try:
        assert History(context).verified(position).id == 1
    except NotFoundError as error:
        assert not isinstance(error, PositionLostError)
