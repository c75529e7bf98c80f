"""Snapshots as columns: whatever they say comes back, and nothing else does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.provenance.snapshot_columns import from_columns, to_columns

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FILE = st.text("ab-", min_size=1, max_size=4)
FEW_TEXTS = st.dictionaries(st.sampled_from(["a", "b", "a/b", ""]), TEXT, max_size=3)
SNAPSHOTS = st.lists(
    st.builds(
        Snapshot,
        id=st.integers(1, 2**63 - 1),
        schema_id=st.integers(0, 3),
        base_manifest_list=FILE,
        delta_manifest_list=FILE,
        commit_user=TEXT,
        commit_identifier=LONG,
        commit_kind=st.sampled_from(CommitKind),
        time_millis=LONG,
        version=st.integers(1, 3),
        **dict.fromkeys(
            (
                "base_manifest_list_size",
                "total_record_count",
                "delta_record_count",
                "watermark",
                "next_row_id",
            ),
            st.none() | LONG,
        ),
        **dict.fromkeys(("changelog_manifest_list", "index_manifest", "statistics"), st.none() | FILE),
        **dict.fromkeys(("uuid", "operation", "writer_version"), st.none() | TEXT),
        log_offsets=st.dictionaries(st.integers(0, 3), LONG, max_size=2),
        properties=FEW_TEXTS,
        extra=st.dictionaries(TEXT, st.none() | LONG | st.lists(TEXT, max_size=2), max_size=2),
    ),
    max_size=5,
)


@given(SNAPSHOTS)
def test_snapshots_come_back_as_they_were(snapshots):
    stored = json.loads(json.dumps(to_columns(snapshots)))
    read = from_columns(stored, path="notes")
    assert read == tuple(snapshots)
    assert [s.to_dict() for s in read] == [s.to_dict() for s in snapshots]
    assert [(s.stamp, s.checksum, hash(s.commit_kind)) for s in read] == [
        (s.stamp, s.checksum, hash(s.commit_kind)) for s in snapshots
    ]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)


@given(SNAPSHOTS, st.data())
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
