"""The warehouse goes away under a writer, as a network mount does, and comes back."""

import pytest

import anabranch
from anabranch.errors import AnabranchError
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
