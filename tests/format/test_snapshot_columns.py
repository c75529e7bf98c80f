"""Snapshots as columns: whatever they say comes back, and nothing else does."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.records.snapshot_columns import (
    field_of,
    from_columns,
    property_of,
    snapshots_at,
    to_columns,
)
from anabranch.kernel.provenance.past import Joined
from tests.format.test_snapshot import FIRST, SNAPSHOTS, TEXT

MANY = st.lists(SNAPSHOTS, max_size=5)


@given(MANY)
def test_snapshots_come_back_as_they_were(snapshots):
    stored = json.loads(json.dumps(to_columns(snapshots)))
    read = from_columns(stored, path="notes")
    assert tuple(read) == tuple(snapshots)
    assert [s.to_dict() for s in read] == [s.to_dict() for s in snapshots]
    assert [(s.stamp, s.checksum, hash(s.commit_kind)) for s in read] == [
        (s.stamp, s.checksum, hash(s.commit_kind)) for s in snapshots
    ]


def test_what_is_the_same_for_all_and_texts_with_what_stands_between_come_back():
    users = ("x/y", "x", "/", "")
    snapshots = [
        replace(FIRST, id=number, commit_user=user, properties={"same": "a/b", "own": user})
        for number, user in enumerate(users, 1)
    ]
    read = from_columns(json.loads(json.dumps(to_columns(snapshots))), path="notes")
    assert tuple(read) == tuple(snapshots)


SLICES = st.slices(8)


@given(st.lists(SNAPSHOTS, max_size=8), st.integers(0, 8), SLICES, st.data())
def test_some_are_had_as_of_a_tuple_also_where_others_were_put_after_them(snapshots, known, some, data):
    columns = from_columns(json.loads(json.dumps(to_columns(snapshots[:known]))), path="notes")
    for read, wanted in [
        (columns, tuple(snapshots[:known])),
        (Joined(columns, snapshots[known:]), tuple(snapshots)),
        (Joined(Joined((), columns), snapshots[known:]), tuple(snapshots)),
    ]:
        assert len(read) == len(wanted)
        assert tuple(read) == wanted
        assert tuple(read[some]) == wanted[some]
        assert tuple(reversed(read)) == wanted[::-1]
        if wanted:
            at = data.draw(st.integers(-len(wanted), len(wanted) - 1))
            assert read[at] == wanted[at]
        for name in (field.name for field in fields(Snapshot)):
            assert [*field_of(read, name)] == [getattr(one, name) for one in wanted]
        keys = {key for one in wanted for key in one.properties} | {"in none"}
        for key in keys:
            assert [*property_of(read, key)] == [one.properties.get(key) for one in wanted]
        rows = sorted(data.draw(st.sets(st.sampled_from(range(len(wanted)))) if wanted else st.just(set())))
        assert snapshots_at(read, rows) == [wanted[row] for row in rows]
        for beyond in (len(wanted), -len(wanted) - 1):
            with pytest.raises(IndexError):
                read[beyond]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)


@given(MANY, st.data())
def test_columns_of_anything_else_are_refused_or_are_snapshots(snapshots, data):
    stored = json.loads(json.dumps(to_columns(snapshots)))
    place = data.draw(st.sampled_from([stored, stored["fields"], stored["properties"]]))
    key = data.draw(st.sampled_from([*place, "other"]))
    place[key] = data.draw(ANYTHING)
    try:
        read = from_columns(stored, path="notes")
    except (ValueError, KeyError, TypeError, AnabranchError):
        return
    assert all(
        isinstance(snapshot.commit_kind, CommitKind) and len(snapshot.stamp) == 32 for snapshot in read
    )


def test_a_claim_of_many_takes_no_memory():
    with pytest.raises((TypeError, ValueError)):
        from_columns({"ids": 1 << 60, "fields": {}, "properties": {}}, path="notes")
