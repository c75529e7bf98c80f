import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError
from anabranch.lineage.model import (
    LINEAGE_PROPERTY,
    ColumnOrigin,
    Engine,
    LineageEntry,
    SourceInput,
    TableInput,
    lineage_of,
)
from anabranch.streaming.offsets import BEGINNING, Position

text = st.text(max_size=20)
positions = st.builds(
    Position, st.integers(0, 1000), st.none() | text, st.none() | st.integers(0, 9), st.booleans()
)
json_values = st.recursive(
    st.none() | st.integers() | text, lambda inner: st.dictionaries(text, inner, max_size=3), max_leaves=6
)
inputs = st.builds(TableInput, text, text, text, positions, positions) | st.builds(
    SourceInput,
    st.sampled_from(["kafka", "files", "unknown"]),
    text,
    json_values,
    json_values,
    st.none() | text,
)
columns = st.builds(ColumnOrigin, text, st.lists(text, max_size=2).map(tuple))
maybe = st.none() | text
entries = st.builds(
    LineageEntry,
    text,
    maybe,
    maybe,
    st.builds(Engine, text, maybe, maybe, maybe, st.none() | st.integers(0, 10**9)),
    st.lists(inputs, max_size=3).map(tuple),
    st.lists(text, max_size=2).map(tuple),
    st.none() | st.builds(TableInput, text, text, text, positions, positions),
    st.lists(columns, max_size=2, unique_by=lambda one: one.column).map(tuple),
    millis=st.none() | st.integers(0, 10**12),
)


@given(entries)
def test_an_entry_survives_its_json(entry):
    assert LineageEntry.from_json(entry.to_json(), where="snapshot 1") == entry


def test_the_json_names_what_readers_look_for():
    entry = LineageEntry(
        "clean",
        "run-1",
        "abc123",
        Engine("spark", "4.3.0", "app-1", "q-1", 7),
        (TableInput("db.t", "t-1", "b-1", Position(3, "s3"), Position(5, "s5")),),
    )
    value = json.loads(entry.to_json())
    assert value["job"] == "clean"
    assert value["engine"]["batch"] == 7
    assert value["inputs"] == [
        {
            "kind": "table",
            "name": "db.t",
            "table": "t-1",
            "branch": "b-1",
            "from": {"snapshot": 3, "stamp": "s3", "files": None, "full": False},
            "to": {"snapshot": 5, "stamp": "s5", "files": None, "full": False},
        }
    ]


def test_ranges_of_partly_delivered_snapshots_include_them():
    whole = TableInput("t", "t", "b", Position(9, "s", 0, full=True), Position(9, "s"))
    assert (whole.after, whole.through) == (0, 9)
    rest = TableInput("t", "t", "b", Position(4, "s", 2), Position(5, "s", 1))
    assert (rest.after, rest.through) == (3, 5)
    assert TableInput("t", "t", "b", BEGINNING, Position(1, "s")).after == 0


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"version": 1}', '{"version": 0, "job": "x"}'])
def test_damaged_entries_name_where_they_are(damaged):
    with pytest.raises(CorruptTableError, match="snapshot 12"):
        lineage_of({LINEAGE_PROPERTY: damaged}, where="snapshot 12")


def test_snapshots_without_an_entry_have_none():
    assert lineage_of({}, where="snapshot 1") is None
    assert lineage_of(None, where="snapshot 1") is None
