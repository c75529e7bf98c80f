import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidInputError
from anabranch.streaming.offsets import BEGINNING, Offset, Position, check_same_history

positions = st.builds(
    Position,
    st.integers(0, 2**53),
    st.none() | st.text(max_size=40),
    st.none() | st.integers(0, 10**6),
    st.booleans(),
    st.none() | st.text(max_size=20),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
offsets = st.builds(Offset, st.text(), st.text(), st.text(), positions, st.none() | positions)


def through_json(offset: Offset) -> dict:
    return json.loads(json.dumps(offset.to_dict()))


@given(offsets)
def test_round_trip_is_exact_and_repeats_the_same_text(offset):
    again = Offset.from_dict(through_json(offset))
    assert again == offset
    # Spark decides by the text whether there is anything new.
    assert json.dumps(again.to_dict()) == json.dumps(offset.to_dict())


@pytest.mark.parametrize("files", [None, 4])
@pytest.mark.parametrize("origin", [None, {"snapshot": 0, "stamp": None, "files": None, "full": False}])
def test_offsets_of_the_first_release_stay_as_they_are(files, origin):
    # If the text changed, a restarted query would begin with a batch without anything new.
    names = {"source": "anabranch", "version": 1, "table": "t", "branch": "b", "name": "db.t"}
    stored = {**names, "snapshot": 7, "stamp": "s", "files": files, "full": False, "origin": origin}
    assert json.dumps(Offset.from_dict(stored).to_dict()) == json.dumps(stored)


@pytest.mark.parametrize(
    "value",
    [None, 5, {"logOffset": 3}, {"topic": {"0": 5}}, {"version": 1, "table": "t"}, []],
)
def test_offsets_of_other_sources_are_refused(value):
    with pytest.raises(InvalidInputError, match="no offset of an Anabranch table") as caught:
        Offset.from_dict(value)
    assert "checkpoint" in caught.value.hint


def test_a_newer_version_is_refused_and_named():
    value = through_json(Offset("t", "b", "db.t", BEGINNING)) | {"version": 2}
    with pytest.raises(InvalidInputError, match="version 2"):
        Offset.from_dict(value)


@pytest.mark.parametrize(
    "change",
    [
        {"table": None},
        {"branch": 1},
        {"snapshot": -1},
        {"snapshot": "5"},
        {"files": -3},
        {"full": None},
        {"listing": 3},
        {"watermark": "soon"},
        {"stamp": 7},
        {"origin": {"snapshot": "x"}},
        {"origin": 3},
    ],
)
def test_damaged_offsets_are_refused(change):
    value = through_json(Offset("t", "b", "db.t", Position(5, "s", 2), BEGINNING)) | change
    with pytest.raises(InvalidInputError, match="damaged"):
        Offset.from_dict(value)


def test_another_table_or_branch_is_refused_but_not_another_name():
    offset = Offset("table-1", "branch-1", "db.old", BEGINNING)
    check_same_history(offset, table_uuid="table-1", branch_uuid="branch-1", name="db.new")
    with pytest.raises(InvalidInputError, match=r"belongs to table 'db.old'"):
        check_same_history(offset, table_uuid="table-2", branch_uuid="branch-1", name="db.t")
    with pytest.raises(InvalidInputError, match="belongs to another branch"):
        check_same_history(offset, table_uuid="table-1", branch_uuid="branch-2", name="db.t")


@pytest.mark.parametrize(
    ("position", "through"),
    [
        (BEGINNING, 0),
        (Position(7, "s"), 7),
        (Position(7, "s", files=2), 6),
        (Position(7, "s", files=2, full=True), 0),
    ],
)
def test_delivered_through_counts_whole_snapshots_only(position, through):
    assert position.delivered_through == through
