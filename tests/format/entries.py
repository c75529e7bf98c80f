"""Manifest entries for tests."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from anabranch.format.records.data_file import DataFileMeta, FileKind, FileSource, ManifestEntry, SimpleStats

INT64 = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
NAMES = st.text(string.ascii_letters + string.digits + "-_.=é", min_size=3, max_size=60)
ROWS = st.binary(max_size=60)
STATS = st.builds(SimpleStats, ROWS, ROWS, st.lists(st.none() | COUNTS, max_size=5).map(tuple))
COLUMNS = st.none() | st.lists(st.text(max_size=10), max_size=3).map(tuple)

FILES = st.builds(
    DataFileMeta,
    file_name=NAMES,
    file_size=COUNTS,
    row_count=COUNTS,
    value_stats=STATS,
    min_sequence_number=INT64,
    max_sequence_number=INT64,
    schema_id=COUNTS,
    level=INT32,
    extra_files=st.lists(NAMES, max_size=2).map(tuple),
    creation_time=st.none() | INT64,
    delete_row_count=st.none() | COUNTS,
    embedded_index=st.none() | ROWS,
    file_source=st.none() | st.sampled_from(FileSource),
    value_stats_cols=COLUMNS,
    external_path=st.none() | st.text(max_size=20),
    first_row_id=st.none() | INT64,
    write_cols=COLUMNS,
    min_key=ROWS,
    max_key=ROWS,
    key_stats=STATS,
)
ENTRIES = st.builds(
    ManifestEntry,
    kind=st.sampled_from(FileKind),
    partition=ROWS,
    bucket=INT32,
    total_buckets=st.integers(-2, 2**31 - 1).filter(bool),
    file=FILES,
)


def entry(
    name: str, kind: FileKind = FileKind.ADD, *, partition=b"p", bucket=0, level=0, rows=1
) -> ManifestEntry:
    stats = SimpleStats(bytes(12), bytes(12), ())
    file = DataFileMeta(name, 100, rows, stats, 0, rows - 1, 0, level=level)
    return ManifestEntry(kind, partition, bucket, -1, file)


def delete(name: str, **keywords) -> ManifestEntry:
    return entry(name, FileKind.DELETE, **keywords)
