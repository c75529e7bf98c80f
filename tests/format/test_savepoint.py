"""Savepoints as files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch
from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.layout import Layout, deleted_savepoint_id_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint, pin_name, pinned_savepoint_of

from .schema_values import attempt, mutated_documents
from .test_snapshot import FIRST as JUST_MADE
from .test_snapshot import NAMES, SNAPSHOTS, TEXT

PATH = "savepoint/savepoint-3"
FIRST = replace(JUST_MADE, changelog_record_count=0)  # as it is read again
AS_PROPOSED = {
    "id": 3,
    "savedSnapshotId": 7,
    "schemaId": 1,
    "fullManifestList": "manifest-list-x-0",
    "recordCount": 12,
}
WHOLE = {**AS_PROPOSED, "savedSnapshotId": 1, "schemaId": 0, "saveTime": 1_700_000_000_500, "branchUuid": "b",
         "savedSnapshot": json.loads(FIRST.to_json())}  # fmt: skip


def read(document, path=PATH):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Savepoint.from_json(data, path=path)


class Files(dict):
    url = "memory://files/db.t"

    def get(self, path):
        if path not in self:
            raise NotFoundError(path)
        return self[path]


class Lists(dict):
    read_list = dict.__getitem__


def test_the_fields_of_the_proposal_are_enough():
    savepoint = read(AS_PROPOSED)
    assert (savepoint.id, savepoint.saved_snapshot_id, savepoint.schema_id) == (3, 7, 1)
    assert (savepoint.full_manifest_list, savepoint.record_count) == ("manifest-list-x-0", 12)
    assert (savepoint.save_time, savepoint.saved_time, savepoint.branch_uuid) == (None, None, None)
    assert json.loads(savepoint.to_json()) == AS_PROPOSED
    assert (savepoint.snapshot.id, savepoint.snapshot.schema_id) == (7, 1)
    assert savepoint.snapshot.total_record_count == 12


def test_a_savepoint_holds_its_snapshot():
    savepoint = read(WHOLE)
    assert json.loads(savepoint.to_json()) == WHOLE
    assert savepoint.saved_snapshot == FIRST
    assert savepoint.saved_time == FIRST.time_millis
    assert savepoint.save_time == 1_700_000_000_500
    assert savepoint.saved_snapshot.stamp == FIRST.stamp


def test_its_data_is_in_the_full_manifest_list_alone():
    savepoint = read(WHOLE)
    assert savepoint.data_manifests(Lists({"manifest-list-x-0": ("a", "b")})) == ["a", "b"]
    snapshot = savepoint.snapshot
    assert (snapshot.base_manifest_list, snapshot.delta_manifest_list) == ("manifest-list-x-0", "")
    assert replace(
        snapshot,
        base_manifest_list=FIRST.base_manifest_list,
        delta_manifest_list=FIRST.delta_manifest_list,
    ) == replace(FIRST, base_manifest_list_size=None, delta_manifest_list_size=None)


def test_what_stands_for_a_snapshot_never_becomes_a_file():
    for stored in (read(WHOLE).snapshot, Tag("x", read(AS_PROPOSED).snapshot)):
        with pytest.raises(InvalidInputError, match="full manifest list of a savepoint"):
            stored.to_json()


def test_from_path():
    files = Files({PATH: json.dumps(WHOLE).encode()})
    assert Savepoint.from_path(files, PATH) == read(WHOLE)
    assert Savepoint.from_path(files, f"{files.url}/{PATH}") == read(WHOLE)
    with pytest.raises(NotFoundError):
        Savepoint.from_path(files, "savepoint/savepoint-4")
    files["savepoint/savepoint-4"] = files[PATH]
    with pytest.raises(CorruptTableError, match="savepoint-4: holds savepoint 3, expected 4"):
        Savepoint.from_path(files, "savepoint/savepoint-4")


def test_the_name_of_the_pin():
    assert pin_name(12) == read({**AS_PROPOSED, "id": 12}).pin == "anabranch-savepoint-12"
    assert pinned_savepoint_of("anabranch-savepoint-12") == 12
    for other in (
        "anabranch-savepoint-012",
        "anabranch-savepoint-",
        "anabranch-savepoint-x",
        "savepoint-12",
        "good",
    ):
        assert pinned_savepoint_of(other) is None


@pytest.mark.parametrize(
    "changes",
    [{"id": 0}, {"id": "3"}, {"savedSnapshotId": 0}, {"schemaId": -1}, {"recordCount": -1}, {"recordCount": None},
     {"fullManifestList": 7}, {"fullManifestList": ""}, {"fullManifestList": "../x"}, {"fullManifestList": "a/b"},
     {"saveTime": "now"}, {"branchUuid": 1}, {"savedSnapshot": []}, {"savedSnapshot": {}}, {"savedSnapshotId": 2},
     {"schemaId": 5}, {"savedSnapshot": {**WHOLE["savedSnapshot"], "baseManifestList": "../../x"}}],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_corrupt(changes):
    with pytest.raises(CorruptTableError) as caught:
        read({**WHOLE, **changes})
    assert caught.value.path == PATH


@pytest.mark.parametrize("key", ["saveTime", "branchUuid", "savedSnapshot"])
def test_a_changed_bit_in_a_key_is_damage(key):
    """Without its identity it would count as a savepoint of main, made by another engine."""
    changed = {name if name != key else f"{name[:-1]}{chr(ord(name[-1]) ^ 1)}": WHOLE[name] for name in WHOLE}
    with pytest.raises(CorruptTableError, match=f"one bit changed in place of '{key}'") as caught:
        read(changed)
    assert caught.value.path == PATH


@given(
    st.builds(
        Savepoint,
        id=st.integers(1, 2**63 - 1),
        saved_snapshot_id=st.integers(1, 2**63 - 1),
        schema_id=st.integers(0, 2**63 - 1),
        full_manifest_list=NAMES,
        record_count=st.integers(0, 2**63 - 1),
        save_time=st.none() | st.integers(-(2**63), 2**63 - 1),
        branch_uuid=st.none() | TEXT,
        extra=st.dictionaries(st.sampled_from(["x", "y"]), TEXT, max_size=2),
    ),
    st.none() | SNAPSHOTS,
)
def test_savepoints_survive_their_file(savepoint, snapshot):
    if snapshot is not None:
        savepoint = replace(
            savepoint,
            saved_snapshot=snapshot,
            saved_snapshot_id=snapshot.id,
            schema_id=snapshot.schema_id,
        )
    assert read(savepoint.to_json()) == savepoint


@given(mutated_documents([WHOLE]))
def test_a_damaged_savepoint_is_read_or_refused(data):
    _, error = attempt(lambda: read(data))
    assert error is None or isinstance(error, CorruptTableError | UnsupportedFeatureError)
    assert error is None or error.path == PATH


def test_savepoints_of_all_branches_lie_together():
    for layout in (Layout(), Layout("fix")):
        assert layout.savepoint_path(3) == PATH
        assert layout.deleted_savepoint_path(3) == "savepoint/savepoint-3.deleted"
    assert deleted_savepoint_id_of("savepoint/savepoint-3.deleted") == 3
    for other in ("savepoint-3", "savepoint-.deleted", "savepoint-x.deleted", "savepoint-3.deleted.deleted"):
        assert deleted_savepoint_id_of(other) is None


def test_it_is_public():
    assert anabranch.Savepoint is Savepoint
