"""Finding a moment of a table, also while snapshots expire, and with names nobody should have."""

from dataclasses import replace

import pytest

import anabranch
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    for i in range(6):
        made.append(rows(i, 1))
    for snapshot in made.snapshots():
        _rewrite(made, replace(snapshot, time_millis=1000 * snapshot.id))
    return made


def _rewrite(table, snapshot):
    table.context.storage.put(table.context.layout.snapshot_path(snapshot.id), snapshot.to_json())


def _remove(table, *ids):
    for number in ids:
        table.context.storage.delete(table.context.layout.snapshot_path(number))


def _tag(table, name, snapshot_id):
    layout = table.context.layout
    table.context.storage.put(
        layout.tag_path(name), table.context.storage.get(layout.snapshot_path(snapshot_id))
    )


@pytest.mark.parametrize(
    ("millis", "expected"), [(1000, 1), (1999, 1), (2000, 2), (3500, 3), (6000, 6), (10**15, 6)]
)
def test_the_newest_at_or_before_a_moment(table, millis, expected):
    assert table.at(timestamp=millis).snapshot.id == expected


def test_snapshots_that_expire_while_one_is_looked_for(table):
    storage = FaultyStorage(
        table.context.storage,
        [run("after", "get", lambda path: _remove(table, 1, 2, 3), where="snapshot/snapshot-[1-5]")],
    )
    expiring = anabranch.Table(replace(table.context, storage=storage))
    assert expiring.at(timestamp=4500).snapshot.id == 4
    with pytest.raises(anabranch.NotFoundError, match="earliest is snapshot 4 of 4000"):
        table.at(timestamp=3999)


def test_all_snapshots_below_a_moment_expire_while_it_is_looked_for(table):
    storage = FaultyStorage(
        table.context.storage,
        [run("before", "get", lambda path: _remove(table, 1, 2, 3), where="snapshot/snapshot-[1-3]")],
    )
    expiring = anabranch.Table(replace(table.context, storage=storage))
    with pytest.raises(
        anabranch.NotFoundError, match="no snapshot at or before 2500.*earliest is snapshot 4"
    ):
        expiring.at(timestamp=2500)


def test_a_stale_hint_of_the_earliest_does_not_mislead(table):
    _remove(table, 1, 2)
    for hint in (b"1", b"5", b"77", b"x"):
        table.context.storage.put(table.context.layout.earliest_hint_path, hint)
        assert table.context.snapshots.earliest_id() == 3
        assert table.at(timestamp=3000).snapshot.id == 3


@pytest.mark.parametrize(
    "version",
    ["snapshot." + "9" * 5000, "9" * 5000, "9" * 19, "snapshot.", "snapshot.x", "snapshot.-1", "snapshot.١",
     "²", "nowhere", "..", ".", "a/b", "a\\b", "", " ", "x" * 300, "snapshot.0", 0, -1, 2**70],
    ids=lambda v: repr(v)[:20],
)  # fmt: skip
def test_versions_that_do_not_exist(table, version):
    with pytest.raises((anabranch.NotFoundError, anabranch.InvalidInputError)):
        table.at(version)


def test_savepoints_are_refused_by_name(table):
    with pytest.raises(anabranch.UnsupportedFeatureError) as caught:
        table.at("savepoint.1")
    assert caught.value.feature == "savepoints"


def test_tags_are_read_after_their_snapshot_has_expired(table):
    _tag(table, "good", 2)
    _remove(table, 1, 2, 3)
    assert ids_of(table.at("good")) == [0, 1]
    assert ids_of(table.with_options({"scan.tag-name": "good"})) == [0, 1]
    assert table.tags() == ["good"]
    with pytest.raises(anabranch.NotFoundError, match="tags there are: good"):
        table.at("bad")


def test_digits_that_name_both_a_tag_and_a_snapshot_are_ambiguous(table):
    _tag(table, "4", 2)
    with pytest.raises(anabranch.InvalidInputError, match="ambiguous"):
        table.at("4")
    assert ids_of(table.at("snapshot.4")) == [0, 1, 2, 3]
    assert ids_of(table.with_options({"scan.tag-name": "4"})) == [0, 1]
    _remove(table, 1, 2, 3, 4)
    assert ids_of(table.at("4")) == [0, 1]


def test_a_read_names_one_moment(table):
    with pytest.raises(anabranch.OptionError, match="one moment"):
        table.with_options({"scan.snapshot-id": "1", "scan.tag-name": "x"})
    with pytest.raises(anabranch.InvalidInputError, match="either"):
        table.at(1, timestamp=5)
    with pytest.raises(anabranch.InvalidInputError, match="no moment"):
        table.at(timestamp="soon")


# The log


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
    _rewrite(table, replace(table.snapshot, total_record_count=None))
    snapshot = table.append(rows(6, 2))
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (None, 2)
    assert "totalRecordCount" not in snapshot.to_dict()
    assert ids_of(table) == list(range(8))


def test_the_time_of_snapshots_never_goes_back(table):
    future = 10**15
    _rewrite(table, replace(table.snapshot, time_millis=future))
    assert table.append(rows(6, 1)).time_millis == future
    assert table.at(timestamp=future).snapshot.id == 7
