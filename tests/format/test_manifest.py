"""Manifests and manifest lists: those of other writers, our own, and damaged ones."""

from __future__ import annotations

import copy
import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.avro.container import read_blocks, read_header
from anabranch.format.avro.files import write_container
from anabranch.format.records import manifest
from anabranch.format.records.data_file import EMPTY_ROW, EMPTY_STATS, FileKind, ManifestFileMeta, SimpleStats
from anabranch.format.records.entry_frame import COLUMNS, EntryFrame
from anabranch.format.records.layout import check_file_name
from anabranch.format.records.manifest import (
    concat_manifests,
    decode_manifest,
    decode_manifests,
    encode_frame,
    encode_manifest,
    roll_frame,
)
from anabranch.format.records.manifest_list import decode_manifest_list, encode_manifest_list
from anabranch.format.records.manifest_schema import MANIFEST_ENTRY, MANIFEST_FILE_META, PlainName, PlainNames
from tests.format import avro_oracle as oracle
from tests.format.entries import COUNTS, ENTRIES, INT32, NAMES, STATS, delete, entry
from tests.support.lengths import first_short

FIXTURES = Path(__file__).parents[1] / "data" / "paimon"
CASES = sorted(path.parent for path in FIXTURES.glob("*/*/warehouse"))
CODECS = ["null", "deflate", "snappy", "zstandard"]


def files(case: Path, kind: str) -> list[tuple[str, bytes]]:
    found = sorted(case.glob(f"warehouse/*/*/manifest/{kind}-*"))
    return [
        (path.name, path.read_bytes())
        for path in found
        if path.name.startswith("manifest-list-") == (kind == "manifest-list")
    ]


def a_schema(writer: str, kind: str) -> dict:
    return oracle.read(files(FIXTURES / writer / "f_overwritten", kind)[0][1])[0]


JAVA_ENTRY, PYTHON_ENTRY = a_schema("java-0.9", "manifest"), a_schema("python-2.1", "manifest")
JAVA_LIST, PYTHON_LIST = a_schema("java-0.9", "manifest-list"), a_schema("python-2.1", "manifest-list")


def stats(record) -> tuple:
    return record["_MIN_VALUES"], record["_MAX_VALUES"], record["_NULL_COUNTS"]


def as_row(record) -> dict:
    """A record of fastavro as the columns of an `EntryFrame`."""
    file = record["_FILE"]
    key_min, key_max, key_null_counts = stats(file["_KEY_STATS"])
    value_min, value_max, value_null_counts = stats(file["_VALUE_STATS"])
    created = file["_CREATION_TIME"]
    return {
        "kind": record["_KIND"],
        "partition": record["_PARTITION"],
        "bucket": record["_BUCKET"],
        "total_buckets": record["_TOTAL_BUCKETS"],
        "file_name": file["_FILE_NAME"],
        "file_size": file["_FILE_SIZE"],
        "row_count": file["_ROW_COUNT"],
        "min_key": file["_MIN_KEY"],
        "max_key": file["_MAX_KEY"],
        "key_min": key_min,
        "key_max": key_max,
        "key_null_counts": key_null_counts,
        "value_min": value_min,
        "value_max": value_max,
        "value_null_counts": value_null_counts,
        "min_sequence_number": file["_MIN_SEQUENCE_NUMBER"],
        "max_sequence_number": file["_MAX_SEQUENCE_NUMBER"],
        "schema_id": file["_SCHEMA_ID"],
        "level": file["_LEVEL"],
        "extra_files": file["_EXTRA_FILES"],
        "creation_time": None
        if created is None
        else (created - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution * 1000),
        "delete_row_count": file["_DELETE_ROW_COUNT"],
        "embedded_index": file["_EMBEDDED_FILE_INDEX"],
        "file_source": file["_FILE_SOURCE"],
        "value_stats_cols": file.get("_VALUE_STATS_COLS"),
        "external_path": file.get("_EXTERNAL_PATH"),
        "first_row_id": file.get("_FIRST_ROW_ID"),
        "write_cols": file.get("_WRITE_COLS"),
    }


def as_meta(record) -> ManifestFileMeta:
    low, high, null_counts = stats(record["_PARTITION_STATS"])
    return ManifestFileMeta(
        record["_FILE_NAME"],
        record["_FILE_SIZE"],
        record["_NUM_ADDED_FILES"],
        record["_NUM_DELETED_FILES"],
        SimpleStats(low, high, tuple(null_counts)),
        record["_SCHEMA_ID"],
        record.get("_MIN_BUCKET"),
        record.get("_MAX_BUCKET"),
        record.get("_MIN_LEVEL"),
        record.get("_MAX_LEVEL"),
        tuple(record.get("_EXTRA_FILES") or ()),
    )


# Files of other writers


def test_there_are_fixtures():
    assert len(CASES) > 60
    assert sum(len(files(case, "manifest")) for case in CASES) > 200
    assert sum(len(files(case, "manifest-list")) for case in CASES) > 400


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_manifests_of_others(case):
    manifests = files(case, "manifest")
    frame, counts = decode_manifests(manifests)
    expected = [oracle.read(data)[1] for _, data in manifests]
    assert frame.df.to_dicts() == [as_row(record) for records in expected for record in records]
    assert frame.df.schema == COLUMNS
    assert counts == [len(records) for records in expected]
    for (path, data), records in zip(manifests, expected, strict=True):
        assert decode_manifest(data, path=path).df.to_dicts() == list(map(as_row, records))

    written = encode_frame(frame)
    assert decode_manifest(written, path="ours").df.equals(frame.df)
    assert oracle.read(encode_manifest(frame.to_entries())) == oracle.read(written)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_manifest_lists_of_others(case):
    manifests = dict(files(case, "manifest"))
    for path, data in files(case, "manifest-list"):
        metas = decode_manifest_list(data, path=path)
        assert metas == [as_meta(record) for record in oracle.read(data)[1]]
        assert decode_manifest_list(encode_manifest_list(metas), path="ours") == metas
        for meta in metas:
            if meta.file_name in manifests:  # not expired
                frame = decode_manifest(manifests[meta.file_name], path=meta.file_name)
                assert len(manifests[meta.file_name]) == meta.file_size
                assert (len(frame.adds()), len(frame.deletes())) == (
                    meta.num_added_files,
                    meta.num_deleted_files,
                )


# Our own


@settings(deadline=None)
@given(st.lists(ENTRIES, max_size=8), st.sampled_from(CODECS))
def test_entries_come_back(entries, codec):
    data = encode_manifest(entries, codec=codec)
    frame = decode_manifest(data, path="m")
    assert frame.to_entries() == entries
    assert frame.df.equals(EntryFrame.from_entries(entries).df)
    assert encode_frame(frame, codec=codec) == data


def test_entries_by_column_are_the_bytes_of_entries_by_record():
    """Also over several blocks, chunks and values of every length."""
    numbers = [sign * (1 << bits) for bits in range(63) for sign in (1, -1)] + [0, -(2**63), 2**63 - 1]
    entries = [
        dataclasses.replace(
            entry(f"f{i}"),
            file=dataclasses.replace(
                entry(f"f{i}" * (i % 40 + 1)).file,
                min_sequence_number=number,
                creation_time=number if i % 3 else None,
                value_stats=SimpleStats(bytes(i), b"", (None, abs(number) % 2**40) * (i % 4)),
                value_stats_cols=None if i % 2 else ("a", "", "b" * i)[: i % 4],
            ),
        )
        for i, number in enumerate(numbers)
    ]
    parts = [EntryFrame.from_entries(entries[i : i + 50]) for i in range(0, len(entries), 50)]
    assert encode_frame(EntryFrame.concat(parts)) == encode_manifest(entries)


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_java_resolves_our_entries(entries):
    """Java resolves by the names of records and fields; pypaimon takes the records as they are."""
    entries = [
        dataclasses.replace(e, file=dataclasses.replace(e.file, creation_time=1_700_000_000_123))
        for e in entries
    ]
    _, seen = oracle.read(encode_manifest(entries), JAVA_ENTRY)
    unknown = dict.fromkeys(("value_stats_cols", "external_path", "first_row_id", "write_cols"))
    assert [as_row(record) for record in seen] == [
        {**row, **unknown} for row in EntryFrame.from_entries(entries).df.to_dicts()
    ]
    _, records = oracle.read(encode_manifest(entries))
    assert [as_row(record) for record in records] == EntryFrame.from_entries(entries).df.to_dicts()


def test_java_resolves_our_lists():
    meta = ManifestFileMeta(
        "manifest-1", 2, 3, 4, SimpleStats(b"a", b"b", (1, None)), 5, 0, 1, 2, 3, ("sidecar",)
    )
    data = encode_manifest_list([meta])
    assert [as_meta(record) for record in oracle.read(data)[1]] == [meta]
    [seen] = oracle.read(data, JAVA_LIST)[1]
    assert as_meta(seen) == ManifestFileMeta("manifest-1", 2, 3, 4, meta.partition_stats, 5)


@given(
    st.lists(
        st.builds(
            ManifestFileMeta,
            NAMES,
            COUNTS,
            COUNTS,
            COUNTS,
            STATS,
            COUNTS,
            st.none() | INT32,
            st.none() | INT32,
            st.none() | INT32,
            st.none() | INT32,
            st.lists(NAMES, max_size=2).map(tuple),
        ),
        max_size=5,
    ),
    st.sampled_from(CODECS),
)
def test_metas_come_back(metas, codec):
    assert decode_manifest_list(encode_manifest_list(metas, codec=codec), path="l") == metas


def test_lists_and_manifests_of_nothing():
    assert decode_manifest_list(encode_manifest_list([]), path="l") == []
    assert len(decode_manifest(encode_manifest([]), path="m")) == 0
    assert encode_frame(EntryFrame.empty()) == encode_manifest([])
    assert decode_manifest(encode_manifest([]), path="m").df.schema == COLUMNS
    assert oracle.read(encode_manifest([]))[1] == []


def test_the_writer_schema_is_fixed():
    """Manifests are merged without decoding as long as this text stays the same."""
    assert read_header(encode_manifest([]), path="m").schema == MANIFEST_ENTRY.text
    names = [f["name"] for f in json.loads(MANIFEST_ENTRY.text)["fields"][5]["type"]["fields"]]
    assert names == [f["name"] for f in PYTHON_ENTRY["fields"][5]["type"]["fields"]][:20]
    listed = [f["name"] for f in json.loads(MANIFEST_FILE_META.text)["fields"]]
    assert listed == [f["name"] for f in PYTHON_LIST["fields"]]


# Merging


def test_concat_keeps_all_entries_in_order():
    groups = [[entry("a1"), delete("x")], [], [entry("a2")], [entry("a3"), entry("a4")]]
    merged = concat_manifests([encode_manifest(group) for group in groups])
    assert merged == encode_manifest([e for group in groups for e in group])


def test_concat_decodes_nothing_when_the_schema_is_the_same(monkeypatch):
    monkeypatch.setattr(manifest, "decode_manifests", None)
    case = FIXTURES / "java-0.9" / "i_many_commits"
    manifests = files(case, "manifest")
    merged = concat_manifests([data for _, data in manifests])
    schema, records = oracle.read(merged)
    assert schema == JAVA_ENTRY
    assert records == [record for _, data in manifests for record in oracle.read(data)[1]]
    header = read_header(merged, path="m")
    assert (header.codec, len(list(read_blocks(merged, header, path="m")))) == ("zstandard", 1)


def test_concat_of_different_writers_is_written_in_our_schema():
    java, python = ([data for _, data in files(FIXTURES / w / "f_overwritten", "manifest")] for w in WRITERS)
    ours = encode_manifest([entry("a")])
    merged = concat_manifests([java[0], ours, python[1], java[1]], codec="deflate")
    parts = [decode_manifest(data, path="m") for data in (java[0], ours, python[1], java[1])]
    assert merged == encode_frame(EntryFrame.concat(parts), codec="deflate")
    assert read_header(merged, path="m").schema == MANIFEST_ENTRY.text


WRITERS = ("java-0.9", "python-2.1")


def test_concat_names_the_damaged_manifest():
    good = encode_manifest([entry("a")])
    with pytest.raises(CorruptTableError, match=r"^second: damaged Avro block"):
        concat_manifests([good, good[:-3]], paths=["first", "second"])


def test_concat_writes_blocks_of_a_bounded_size(monkeypatch):
    monkeypatch.setattr(manifest, "_BLOCK_BYTES", 300)
    merged = concat_manifests([encode_manifest([entry(f"f{i}")]) for i in range(10)])
    blocks = list(read_blocks(merged, read_header(merged, path="m"), path="m"))
    assert [block.rows for block in blocks] == [3, 3, 3, 1]


@pytest.mark.parametrize("size", first_short([500, 2000, 1 << 20, 1], 3))
def test_rolling(size):
    frame = EntryFrame.from_entries([entry(f"f{i}-{hash((i, size)):x}") for i in range(200)])
    parts = list(roll_frame(frame, target_size=size))
    assert [decode_manifest(data, path="m").df.to_dicts() for _, data in parts] == [
        p.df.to_dicts() for p, _ in parts
    ]
    assert EntryFrame.concat([part for part, _ in parts]).df.equals(frame.df)
    head = len(encode_manifest([]))
    assert all(len(data) - head >= size - 16 for _, data in parts[:-1])
    assert all(len(data) - head < 4 * size + 500 for _, data in parts)
    assert (len(parts) > 1) == (size <= 2000)
    assert list(roll_frame(EntryFrame.empty(), target_size=size)) == []


# Contradictions and the unknown

GOOD = manifest._to_record(entry("data-1.parquet"))
GOOD_META = dict(oracle.read(encode_manifest_list([ManifestFileMeta("m", 1, 2, 3, EMPTY_STATS, 0)]))[1][0])


def changed(record, **changes):
    file = {k: v for k, v in changes.items() if k in record.get("_FILE", ())}
    return {**record, **changes, **({"_FILE": {**record["_FILE"], **file}} if file else {})}


def alter(schema, *, drop=(), **types):
    """The schema without some fields, others of another type or new."""
    schema = copy.deepcopy(schema)
    for record in (schema, *(f["type"] for f in schema["fields"] if f["name"] == "_FILE")):
        record["fields"] = [
            {**f, "type": types.pop(f["name"], f["type"])} for f in record["fields"] if f["name"] not in drop
        ]
    schema["fields"] += [{"name": name, "type": t} for name, t in types.items()]
    return schema


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"_KIND": 2}, "the kind 2; expected a number from 0 to 1"),
        ({"_KIND": -1}, "the kind -1"),
        ({"_BUCKET": -1}, "the bucket -1"),
        ({"_TOTAL_BUCKETS": 0}, "the total_buckets 0; expected a number other than 0"),
        ({"_FILE_SIZE": -1}, "the file_size -1"),
        ({"_ROW_COUNT": -1}, "the row_count -1"),
        ({"_SCHEMA_ID": -1}, "the schema_id -1"),
        ({"_LEVEL": -1}, "the level -1"),
        ({"_DELETE_ROW_COUNT": -1}, "the delete_row_count -1"),
        ({"_FILE_NAME": ""}, "the file_name ''; expected a plain file name"),
        ({"_FILE_NAME": ".."}, "file_name"),
        ({"_FILE_NAME": "."}, "file_name"),
        ({"_FILE_NAME": "../../x"}, "file_name"),
        ({"_FILE_NAME": "a/b"}, "file_name"),
        ({"_FILE_NAME": "a\\b"}, "file_name"),
        ({"_FILE_NAME": "a\nb"}, "file_name"),
        ({"_FILE_NAME": "a\0"}, "file_name"),
        ({"_FILE_NAME": "a\x85"}, "file_name"),
        ({"_EXTRA_FILES": ["ok", "../x"]}, "extra_files"),
        ({"_EXTRA_FILES": [""]}, "extra_files"),
    ],
)
def test_impossible_entries_are_refused_by_name(changes, message):
    good = encode_manifest([entry("a"), entry("b")])
    bad = write_container(MANIFEST_ENTRY, [GOOD, changed(GOOD, **changes)])
    with pytest.raises(CorruptTableError) as caught:
        decode_manifests([("m0", good), ("m1", bad), ("m2", good)])
    assert message in caught.value.message
    assert "m1: entry 1 has" in caught.value.message
    assert caught.value.path == "m1"


@given(st.text(max_size=6) | st.text("./\\\x00\x1f\x7f\x85\xa0a", max_size=4))
def test_names_are_judged_as_anywhere_else(name):
    try:
        check_file_name(name, path="m")
        plain = True
    except CorruptTableError:
        plain = False
    assert PlainName("n").holds(pl.Series([name])) == plain
    assert PlainNames("n").holds(pl.Series([["a", name]])) == plain


def test_numbers_too_large_for_their_column():
    schema = alter(PYTHON_ENTRY, _BUCKET="long", _LEVEL="long", _TOTAL_BUCKETS="long", _KIND="long")
    for field in ("_BUCKET", "_LEVEL", "_TOTAL_BUCKETS", "_KIND"):
        with pytest.raises(CorruptTableError, match=rf"the {field[1:].lower()} {2**40}"):
            decode_manifest(oracle.write(schema, [changed(GOOD, **{field: 2**40})]), path="m")


@pytest.mark.parametrize(
    "field", ["_VERSION", "_KIND", "_PARTITION", "_BUCKET", "_FILE_NAME", "_ROW_COUNT", "_LEVEL"]
)
def test_entries_without_a_required_field(field):
    data = oracle.write(alter(PYTHON_ENTRY, drop=[field]), [GOOD])
    with pytest.raises(CorruptTableError, match=r"has the .* None; expected a value"):
        decode_manifest(data, path="m")
    kind = next(
        f["type"]
        for r in (PYTHON_ENTRY, PYTHON_ENTRY["fields"][5]["type"])
        for f in r["fields"]
        if f["name"] == field
    )
    with pytest.raises(CorruptTableError, match=r"m: entry 0 has the .* None; expected a value"):
        decode_manifest(
            oracle.write(alter(PYTHON_ENTRY, **{field: ["null", kind]}), [changed(GOOD, **{field: None})]),
            path="m",
        )


def test_fields_that_may_be_absent():
    optional = [f["name"] for f in PYTHON_ENTRY["fields"][5]["type"]["fields"]][11:]
    schema = alter(PYTHON_ENTRY, drop=[*optional, "_MIN_KEY", "_MAX_KEY", "_KEY_STATS", "_VALUE_STATS"])
    [found] = decode_manifest(oracle.write(schema, [GOOD]), path="m").to_entries()
    full = entry("data-1.parquet")
    assert found == dataclasses.replace(
        full, file=dataclasses.replace(full.file, file_source=None, delete_row_count=None)
    )
    assert found.file.value_stats == EMPTY_STATS
    assert found.file.min_key == EMPTY_ROW


def test_fields_of_tomorrow_are_ignored():
    schema = alter(PYTHON_ENTRY, _NEW={"type": "map", "values": ["null", "long", "string"]}, _MORE="double")
    schema["fields"][5]["type"]["fields"].insert(3, {"name": "_NEW", "type": ["null", "double", "string"]})
    row = changed(GOOD, _NEW={"a": 1}, _MORE=0.5)
    assert (
        decode_manifest(oracle.write(schema, [row, row]), path="m").to_entries()
        == [entry("data-1.parquet")] * 2
    )


def test_fields_in_another_order_and_nullable_records():
    """As paimon-rust writes them: the version last, records in unions, a union at the top."""
    schema = copy.deepcopy(PYTHON_ENTRY)
    schema["fields"].append(schema["fields"].pop(0))
    file = schema["fields"][4]["type"]
    for field in file["fields"]:
        if field["name"].endswith("_STATS"):
            field["type"] = ["null", field["type"]]
    schema["fields"][4]["type"] = ["null", file]
    data = oracle.write(["null", schema], [GOOD, changed(GOOD, _FILE_NAME="b")])
    assert decode_manifest(data, path="m").to_entries() == [entry("data-1.parquet"), entry("b")]
    data = oracle.write(["null", schema], [GOOD, changed(GOOD, _VALUE_STATS=None)])
    assert decode_manifest(data, path="m").to_entries() == [entry("data-1.parquet")] * 2
    with pytest.raises(CorruptTableError, match="the file_name None"):
        decode_manifest(oracle.write(["null", schema], [GOOD, {**GOOD, "_FILE": None}]), path="m")


@pytest.mark.parametrize("version", [1, 3, 0, -1])
def test_other_versions_are_refused(version):
    manifest_bytes = write_container(MANIFEST_ENTRY, [GOOD, changed(GOOD, _VERSION=version)])
    list_bytes = write_container(MANIFEST_FILE_META, [changed(GOOD_META, _VERSION=version)])
    for decode, data in ((decode_manifest, manifest_bytes), (decode_manifest_list, list_bytes)):
        with pytest.raises(UnsupportedFeatureError, match=f"the version {version}; expected 2") as caught:
            decode(data, path="m")
        assert (caught.value.feature, caught.value.path) == ("manifest-version", "m")


def test_an_unknown_file_source_is_a_feature():
    with pytest.raises(UnsupportedFeatureError) as caught:
        decode_manifest(write_container(MANIFEST_ENTRY, [changed(GOOD, _FILE_SOURCE=2)]), path="m")
    assert caught.value.feature == "file-source"


@pytest.mark.parametrize(
    "changes",
    [
        {"_FILE_NAME": "../m"},
        {"_FILE_SIZE": -1},
        {"_NUM_ADDED_FILES": -1},
        {"_NUM_DELETED_FILES": -1},
        {"_SCHEMA_ID": -1},
        {"_EXTRA_FILES": ["a/b"]},
    ],
)
def test_impossible_lists_are_refused(changes):
    data = write_container(MANIFEST_FILE_META, [GOOD_META, changed(GOOD_META, **changes)])
    with pytest.raises(CorruptTableError, match=r"^list-1: entry 1 has"):
        decode_manifest_list(data, path="list-1")


def test_lists_of_six_fields():
    schema = alter(JAVA_LIST, drop=["_SCHEMA_ID"])
    assert decode_manifest_list(oracle.write(schema, [GOOD_META]), path="l") == [
        ManifestFileMeta("m", 1, 2, 3, EMPTY_STATS, 0)
    ]


# Damage

SEEDS = [
    files(FIXTURES / writer / "f_overwritten", kind)[0][1]
    for writer in WRITERS
    for kind in ("manifest", "manifest-list")
] + [encode_manifest([entry("a"), delete("b")], codec="null"), encode_manifest_list([], codec="null")]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=11), st.integers(0, 4)), max_size=3),
)
def test_damaged_files(seed, edits):
    data = bytearray(seed)
    for position, insert, cut in edits:
        start = position % len(data)
        data[start : start + cut] = insert
    survives(bytes(data))


@settings(max_examples=200, deadline=None)
@given(
    seed=st.sampled_from(SEEDS[:4]),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
def test_damaged_rows(seed, edits):
    header = read_header(seed, path="f")
    blocks = []
    for block in read_blocks(seed, header, path="f"):
        payload = bytearray(block.payload)
        for position, value in edits:
            payload[position % len(payload)] = value
        blocks.append((block.rows, bytes(payload)))
    survives(oracle.frame(header.schema, blocks))


def survives(data: bytes) -> None:
    for decode in (decode_manifest, decode_manifest_list):
        try:
            found = decode(data, path="f")
        except (CorruptTableError, UnsupportedFeatureError) as error:
            assert error.path == "f"
        else:
            encode = encode_frame if decode is decode_manifest else encode_manifest_list
            encode(found)
            if decode is decode_manifest:
                assert all(e.kind in FileKind for e in found.to_entries())


@pytest.mark.parametrize("codec", first_short(CODECS[::-1]))
def test_files_and_manifests_whose_names_differ_in_a_counter_alone(codec):
    """As one writer names them, with all else alike: compressed, each takes one byte or two."""
    named = [entry(f"data-u-{number}.parquet") for number in range(20_000)]
    data = encode_manifest(named, codec=codec)
    frame, _ = decode_manifests([("m", data)], counts=[len(named)])
    assert frame.df["file_name"].to_list() == [one.file.file_name for one in named]
    metas = [
        ManifestFileMeta(f"manifest-u-{number}", 1, 2, 3, EMPTY_STATS, 0, 0, 0, 0, 0)
        for number in range(20_000)
    ]
    assert decode_manifest_list(encode_manifest_list(metas, codec=codec), path="l") == metas
