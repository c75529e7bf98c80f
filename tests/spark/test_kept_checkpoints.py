"""Checkpoints that earlier releases made: their jobs go on with this one, with their state, and every row comes once."""

import anabranch
from tests.compatibility.kept import SECOND, arrive, rows_of, run, unpack
from tests.compatibility.releases import RELEASES


def test_jobs_go_on_where_an_earlier_release_stopped(spark, tmp_path):
    for archive in RELEASES:
        place, _ = unpack(archive, tmp_path / archive.name)
        lake = anabranch.connect(str(place), spark=spark)
        arrive(lake, SECOND)
        assert run(lake) == ["ended", "ended"]
        assert [k for k, _ in rows_of(lake.table("db.firsts"))] == [1, 2, 3]
        assert len(rows_of(lake.table("db.copies"))) == 6
