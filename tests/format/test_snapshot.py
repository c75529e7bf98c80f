"""Snapshots as files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot

from .schema_values import attempt, deep_json, fixture_files, mutated_documents

PATH = "snapshot/snapshot-7"
FIRST = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="manifest-list-a-0",
    delta_manifest_list="manifest-list-a-1",
    commit_user="job",
    commit_identifier=5,
    commit_kind=CommitKind.APPEND,
    time_millis=1_700_000_000_000,
    total_record_count=3,
    delta_record_count=3,
)
NAMES = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
SIZES = st.none() | st.integers(0, 2**63 - 1)
SNAPSHOTS = st.builds(
    Snapshot,
    id=st.integers(1, 2**63 - 1),
    schema_id=st.integers(0, 2**63 - 1),
    base_manifest_list=NAMES,
    delta_manifest_list=NAMES,
    commit_user=TEXT,
    commit_identifier=LONGS,
    commit_kind=st.sampled_from(CommitKind),
    time_millis=LONGS,
    version=st.just(3),
    base_manifest_list_size=SIZES,
    delta_manifest_list_size=SIZES,
    changelog_manifest_list=st.none() | NAMES,
    changelog_manifest_list_size=SIZES,
    index_manifest=st.none() | NAMES,
    log_offsets=st.dictionaries(st.integers(0, 99), LONGS, max_size=2),
    total_record_count=st.none() | LONGS,
    delta_record_count=st.none() | LONGS,
    changelog_record_count=st.integers(0, 9),
    watermark=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
    statistics=st.none() | NAMES,
    properties=st.dictionaries(TEXT, TEXT, max_size=2),
    next_row_id=SIZES,
    uuid=st.none() | TEXT,
    operation=st.none() | TEXT,
    writer_version=st.none() | TEXT,
    extra=st.dictionaries(
        st.sampled_from(["later", "other"]), st.integers() | st.lists(TEXT, max_size=2), max_size=2
    ),
)


def read(data):
    return Snapshot.from_json(data if isinstance(data, bytes) else json.dumps(data).encode(), path=PATH)


def document(**changes):
    values = json.loads(FIRST.to_json())
    values.update(changes)
    return values


@pytest.mark.parametrize("prefix", ["snapshot-", "tag-"])
def test_what_other_writers_said_is_kept(prefix):
    for file in fixture_files(prefix):
        original = json.loads(file.read_bytes())
        snapshot = Snapshot.from_json(file.read_bytes(), path=str(file))
        written = json.loads(snapshot.to_json())
        assert original.items() <= written.items()
        added = {key: written[key] for key in written.keys() - original.keys()}
        assert (
            added.items()
            <= {"changelogManifestList": None, "logOffsets": {}, "changelogRecordCount": 0}.items()
        )


def test_a_plain_commit_is_written_for_readers_of_every_age():
    snapshot = replace(
        FIRST, base_manifest_list_size=10, delta_manifest_list_size=20, uuid="u", properties={"a": "b"}
    )
    assert json.loads(snapshot.to_json()) == {
        "version": 3,
        "id": 1,
        "schemaId": 0,
        "baseManifestList": "manifest-list-a-0",
        "baseManifestListSize": 10,
        "deltaManifestList": "manifest-list-a-1",
        "deltaManifestListSize": 20,
        "changelogManifestList": None,
        "commitUser": "job",
        "commitIdentifier": 5,
        "commitKind": "APPEND",
        "timeMillis": 1_700_000_000_000,
        "logOffsets": {},
        "totalRecordCount": 3,
        "deltaRecordCount": 3,
        "changelogRecordCount": 0,
        "uuid": "u",
        "properties": {"a": "b"},
    }
    assert "properties" not in json.loads(FIRST.to_json())


def test_keys_that_are_not_known_are_kept_unless_a_known_one_is_missing_for_them():
    others = {"propertieq": {}, "uuids": "u", "Ühr": 1, "": 2}
    values = document(properties={"a": "b"}, **others)
    assert dict(read(values).extra) == others
    del values["properties"]
    with pytest.raises(
        CorruptTableError, match="has the key 'propertieq' with one bit changed in place of 'properties'"
    ):
        read(values)


@given(SNAPSHOTS)
def test_snapshots_survive_their_file(snapshot):
    assert read(snapshot.to_json()) == snapshot


def test_files_of_very_old_writers_are_read():
    values = document(version=None)
    for key in (
        "totalRecordCount",
        "deltaRecordCount",
        "logOffsets",
        "changelogRecordCount",
        "changelogManifestList",
    ):
        del values[key]
    snapshot = read(values)
    assert (snapshot.version, snapshot.total_record_count, snapshot.delta_record_count) == (1, None, None)


def test_the_watermark_of_flink_that_says_none_is_none():
    assert read(document(watermark=-(2**63))).watermark is None
    assert read(document(watermark=-(2**63) + 1)).watermark == -(2**63) + 1


def test_batch_identifier_is_the_largest_long():
    assert BATCH_COMMIT_IDENTIFIER == 9223372036854775807


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": 0}, "id"),
        ({"id": "1"}, "id"),
        ({"id": 1.0}, "id"),
        ({"id": True}, "id"),
        ({"id": 2**63}, "id"),
        ({"schemaId": -1}, "schemaId"),
        ({"schemaId": None}, "schemaId"),
        ({"commitUser": 3}, "commitUser"),
        ({"commitKind": None}, "commitKind"),
        ({"timeMillis": []}, "timeMillis"),
        ({"properties": {"a": 1}}, "properties"),
        ({"properties": []}, "properties"),
        ({"logOffsets": {"x": 1}}, "logOffsets"),
        ({"logOffsets": {"1": "2"}}, "'1'"),
        ({"baseManifestList": None}, "baseManifestList"),
        ({"baseManifestList": "../../etc/passwd"}, "passwd"),
        ({"deltaManifestList": "a/b"}, "a/b"),
        ({"deltaManifestList": ""}, "''"),
        ({"indexManifest": ".."}, r"\.\."),
        ({"statistics": "a\\b"}, "a"),
        ({"changelogManifestList": "/x"}, "/x"),
        ({"baseManifestListSize": -1}, "baseManifestListSize"),
    ],
)
def test_a_value_that_cannot_be_is_named(changes, named):
    with pytest.raises(CorruptTableError, match=named) as caught:
        read(document(**changes))
    assert caught.value.path == PATH
    assert PATH in str(caught.value)


@pytest.mark.parametrize("key", sorted(set(json.loads(FIRST.to_json())) - {
    "version", "changelogManifestList", "logOffsets", "changelogRecordCount", "totalRecordCount", "deltaRecordCount",
}))  # fmt: skip
def test_a_missing_value_is_named(key):
    values = document()
    del values[key]
    with pytest.raises(CorruptTableError, match=f"'{key}' is missing"):
        read(values)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"a": NaN}', b'{"a": "\\ud800"}',
     b'{"a": ' + b"9" * 5000 + b"}", deep_json(100_000, "[", "]"), deep_json(100_000, '{"a":', "}"),
     FIRST.to_json()[:-2], deep_json(400, '{"a":', "}")],
)  # fmt: skip
def test_a_file_that_is_no_object_is_corrupt(data):
    with pytest.raises(CorruptTableError, match=PATH):
        read(data)


def test_what_later_versions_say_is_refused_by_name():
    with pytest.raises(UnsupportedFeatureError) as caught:
        read(document(version=4))
    assert caught.value.feature == "snapshot-version"
    with pytest.raises(UnsupportedFeatureError) as caught:
        read(document(commitKind="MERGE"))
    assert caught.value.feature == "commit-kind"


def test_text_that_no_file_can_hold_is_refused_before_writing():
    with pytest.raises(InvalidInputError):
        replace(FIRST, commit_user="\ud800").to_json()


@given(
    mutated_documents([document(later={"a": [1]}), json.loads(fixture_files("snapshot-")[-1].read_bytes())])
)
def test_a_damaged_file_is_read_or_refused(data):
    snapshot, error = attempt(lambda: read(data))
    if error is None:
        counted = replace(snapshot, changelog_record_count=snapshot.changelog_record_count or 0)
        assert read(snapshot.to_json()) == counted
    else:
        assert isinstance(error, CorruptTableError | UnsupportedFeatureError)
        assert error.path == PATH


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data):
    with pytest.raises(CorruptTableError):
        read(data)


def test_the_stamp_is_fixed():
    # Stamps are stored in forks, offsets and leases: another value would make all of them unresolvable.
    assert FIRST.stamp == "ef1d0675862e0d1d89420a22de115465"


def test_the_stamp_tells_snapshots_of_one_id_apart():
    others = [
        replace(FIRST, commit_user="job2"),
        replace(FIRST, commit_identifier=6),
        replace(FIRST, time_millis=1),
        replace(FIRST, base_manifest_list="x"),
        replace(FIRST, delta_manifest_list="x"),
        replace(FIRST, base_manifest_list="manifest-list-a-0manifest", delta_manifest_list="-list-a-1"),
        replace(FIRST, commit_user='job", 5'),
    ]
    assert len({FIRST.stamp, *(other.stamp for other in others)}) == len(others) + 1


def test_the_stamp_is_of_the_commit_and_not_of_its_spelling():
    assert replace(FIRST, properties={"a": "b"}, watermark=3, uuid="u", extra={"x": 1}).stamp == FIRST.stamp
    assert read(FIRST.to_json()).stamp == FIRST.stamp
