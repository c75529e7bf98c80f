"""Warehouses that earlier releases made are read, and gone on with, by this one; see `tests/compatibility/kept.py`."""

import json

import pytest

import anabranch
from tests.compatibility.kept import after, go_on, rows_of, truth, unpack
from tests.compatibility.releases import RELEASES


@pytest.fixture(params=RELEASES, ids=lambda archive: archive.name)
def kept(request, tmp_path):
    """A copy of a release's warehouse, and what it said is in it."""
    place, expected = unpack(request.param, tmp_path)
    return anabranch.connect(str(place)), expected


def test_there_is_one_of_each_release():
    assert [archive.name for archive in RELEASES][:1] == ["0.1.0.tar.gz"]


def test_everything_is_read_as_it_was(kept):
    lake, expected = kept
    del expected["version"]
    assert json.loads(json.dumps(truth(lake))) == expected
    assert [table for table in lake.tables("db") if not lake.table(f"db.{table}").verify().ok] == []


def test_the_index_of_lineage_is_gone_on_with_and_says_the_same_as_a_new_one(kept):
    lake, expected = kept
    assert lake.lineage.catch_up().tables == (), "nothing is new"
    lake.lineage.rebuild()
    assert truth(lake)["lineage"] == expected["lineage"]


def test_work_goes_on(kept):
    lake, expected = kept
    go_on(lake, "new")
    main, branch = after(expected, "new")
    assert rows_of(lake.table("db.t")) == main
    assert rows_of(lake.table("db.t").at("good")) == expected["good"]
    assert rows_of(lake.table("db.t").branch("next")) == branch
    lake.table("db.t").undo_replace()
    found = lake.table("db.t").verify()
    assert [one for one in found.problems if one.severity != "warning"] == [], found
