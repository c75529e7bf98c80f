"""Entries by column: what is left of ADDs and DELETEs, against a plain walk over them."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import COLUMNS, EntryFrame
from tests.format.entries import ENTRIES, delete, entry

EVENTS = st.lists(
    st.builds(
        lambda kind, name, partition, bucket, level: entry(
            name, kind, partition=partition, bucket=bucket, level=level
        ),
        st.sampled_from(FileKind),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([b"p", b"q"]),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    max_size=25,
)


def identity(e):
    return e.partition, e.bucket, e.file.level, e.file.file_name


def walk(entries):
    """What is left of the entries one after the other, and whether any repeated the one before it."""
    last, left, contradiction = {}, {}, False
    for i, e in enumerate(entries):
        key = identity(e)
        if last.get(key) == e.kind:
            contradiction = True
        elif e.kind == FileKind.DELETE and left.get(key, [])[-1:] and last[key] == FileKind.ADD:
            left[key].pop()
        elif e.kind == FileKind.ADD or key not in last:
            left.setdefault(key, []).append(i)
        last[key] = e.kind
    return sorted(i for kept in left.values() for i in kept), contradiction


@given(EVENTS)
def test_merged_is_a_walk_over_the_entries(entries):
    frame = EntryFrame.from_entries(entries)
    left, contradiction = walk(entries)
    expected = [entries[i] for i in left]
    assert frame.merged(strict=False).to_entries() == expected
    assert frame.live(strict=False).to_entries() == [e for e in expected if e.kind == FileKind.ADD]
    if contradiction:
        with pytest.raises(CorruptTableError, match="twice"):
            frame.merged()
        with pytest.raises(CorruptTableError, match="twice"):
            frame.live()
    else:
        assert frame.merged().to_entries() == expected
        if any(e.kind == FileKind.DELETE for e in expected):
            with pytest.raises(CorruptTableError, match="never add"):
                frame.live()
        else:
            assert frame.live().to_entries() == expected


@pytest.mark.long
@given(EVENTS, st.integers(0, 25))
def test_merging_a_part_first_changes_nothing(entries, cut):
    first, rest = EntryFrame.from_entries(entries[:cut]), EntryFrame.from_entries(entries[cut:])
    whole = EntryFrame.concat([first, rest])
    if not walk(entries)[1]:
        merged = EntryFrame.concat([first.merged(), rest.merged()])
        assert merged.merged().to_entries() == whole.merged().to_entries()


def test_a_file_added_twice():
    frame = EntryFrame.from_entries([entry("a"), entry("b"), entry("a")])
    with pytest.raises(CorruptTableError, match="add the file a twice"):
        frame.live()
    assert frame.live(strict=False).to_entries() == [entry("a"), entry("b")]


def test_the_same_name_elsewhere_is_another_file():
    entries = [entry("a"), entry("a", partition=b"q"), entry("a", bucket=1), entry("a", level=1)]
    gone = delete("a", bucket=1)
    frame = EntryFrame.from_entries([*entries, gone])
    assert frame.live().to_entries() == [entries[0], entries[1], entries[3]]


def test_a_file_deleted_and_added_again():
    frame = EntryFrame.from_entries([entry("a"), entry("b"), delete("a"), entry("a", rows=2)])
    assert frame.live().to_entries() == [entry("b"), entry("a", rows=2)]


def test_a_file_deleted_that_was_never_added():
    frame = EntryFrame.from_entries([entry("a"), delete("x"), delete("y")])
    with pytest.raises(CorruptTableError, match="delete the file x and 1 more that they never add"):
        frame.live()
    assert frame.merged().to_entries() == [entry("a"), delete("x"), delete("y")]


@given(st.lists(ENTRIES, max_size=6))
def test_entries_come_back(entries):
    frame = EntryFrame.from_entries(entries)
    assert frame.to_entries() == entries
    assert frame.df.schema == COLUMNS
    assert len(frame) == len(entries)
    assert frame.adds().to_entries() == [e for e in entries if e.kind == FileKind.ADD]
    assert frame.deletes().to_entries() == [e for e in entries if e.kind == FileKind.DELETE]
    assert EntryFrame.concat([frame, EntryFrame.empty(), frame]).to_entries() == entries * 2
    assert pickle.loads(pickle.dumps(frame)).to_entries() == entries


def test_deletes_repeat_everything_but_the_kind():
    entries = [entry("a"), entry("b", partition=b"\x01\x02")]
    frame = EntryFrame.from_entries(entries).with_kind(FileKind.DELETE)
    assert frame.to_entries() == [delete("a"), delete("b", partition=b"\x01\x02")]
    assert frame.df.schema == COLUMNS


def test_filter_and_slice():
    frame = EntryFrame.from_entries([entry("a"), entry("b"), entry("c")])
    assert frame.filter(pl.col("file_name") > "a").to_entries() == [entry("b"), entry("c")]
    assert frame.filter(pl.Series([True, False, True])).to_entries() == [entry("a"), entry("c")]
    assert frame.slice(1, 1).to_entries() == [entry("b")]
    assert EntryFrame.concat([]).to_entries() == []
