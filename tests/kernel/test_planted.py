"""Files with numbers that nobody of ours would write: a clear error at once, and no work without end."""

import json
import re
import shutil
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CorruptTableError
from anabranch.format.records.manifest_list import decode_manifest_list, encode_manifest_list
from tests.support.hostile import survive
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows


def branch_from_tag(folder):
    table = anabranch.connect(folder).table("db.t")
    return table.create_branch("fix", tag="good").name


def read_main(folder):
    table = anabranch.connect(folder).table("db.t")
    return table.scan().to_arrow().num_rows, len(table.branches())


@pytest.mark.parametrize("schema_id", [7, 2147483648, 2**62])
def test_a_tag_of_a_schema_that_never_was_begins_no_branch(tmp_path, schema_id):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    table.create_tag("good")
    path = tmp_path / "db.db" / "t" / "tag" / "tag-good"
    content = {**json.loads(path.read_text()), "schemaId": schema_id}
    content["properties"].pop("anabranch.checksum")
    path.write_text(json.dumps(content))
    (outcome,) = survive(branch_from_tag, [str(tmp_path)], seconds=20)
    assert outcome.kind == "refused", outcome
    assert f"schema {schema_id}" in outcome.value[2]
    assert not list((tmp_path / "db.db" / "t").glob("branch/branch-fix/*"))


def test_a_branch_has_the_schemas_that_main_had(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    table.alter().add_column("w", "INT").apply()
    table.alter().add_column("x", "INT").apply()
    table.append(rows(3, 3).append_column("w", [[1] * 3]).append_column("x", [[2] * 3]))
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    branch = table.branch("fix")
    assert [schema.id for schema in branch.schemas()] == [0, 1, 2, 3]
    assert branch.scan(columns=["id", "x"]).to_arrow().num_rows == 6


def test_a_planted_pointer_with_a_gap_below_it_is_told(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(3, 3))
    table.replace_main_branch("fix")
    folder = tmp_path / "db.db" / "t" / "branch"
    planted = folder / "MAIN-4000000000"
    planted.write_text((folder / "MAIN-1").read_text().replace('"generation":1', '"generation":4000000000'))
    (outcome,) = survive(read_main, [str(tmp_path)], seconds=20)
    assert outcome.kind == "refused", outcome
    assert outcome.value[0] == "CorruptTableError"
    assert "MAIN-4000000000" in outcome.value[2]
    planted.unlink()
    assert read_main(str(tmp_path))[0] == 6


VERBS = {
    "expire": lambda table: table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s"),
    "orphans": lambda table: table.remove_orphan_files("0 s", dry_run=True),
    "scan": lambda table: table.scan().to_arrow(),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize("verb", first_short(VERBS, 2))
@pytest.mark.parametrize("value", [0, pytest.param(5, marks=pytest.mark.long), 2**40])
def test_a_manifest_list_that_lies_about_counts(tmp_path, verb, value):
    """One of several lists that name the same manifest: what the others say was read and kept before."""
    table = make_table(tmp_path / "made", options={"manifest.merge-min-count": "100"})
    for i in range(3):
        table.append(rows(3 * i, 3))
    table.overwrite(rows(9, 3))  # its files that went are what an expiry looks for in manifests
    table.append(rows(12, 3))
    table.append(rows(15, 3))
    table.create_tag("good", snapshot=2)
    if verb == "expire":  # else no data file can go, and what manifests say is not asked
        table.overwrite(rows(9, 3))
        table.append(rows(12, 3))
    refused = 0
    names = [path.name for path in (tmp_path / "made/db.db/t/manifest").glob("manifest-list-*")]
    for number, name in enumerate(names):
        copy = shutil.copytree(tmp_path / "made", tmp_path / f"copy-{number}")
        path = copy / "db.db" / "t" / "manifest" / name
        metas = decode_manifest_list(path.read_bytes(), path=name)
        path.write_bytes(encode_manifest_list([replace(meta, num_added_files=value) for meta in metas]))
        try:
            VERBS[verb](anabranch.connect(str(copy)).table("db.t"))
        except CorruptTableError as error:
            refused += 1
            assert "entries" in str(error) or "more rows" in str(error)
    assert refused


def test_in_a_history_of_appends_no_data_goes_whatever_lists_say(tmp_path):
    table = make_table(tmp_path / "made", options={"manifest.merge-min-count": "100"})
    for i in range(4):
        table.append(rows(3 * i, 3))
    for number, path in enumerate(sorted((tmp_path / "made/db.db/t/manifest").glob("manifest-list-*"))):
        copy = shutil.copytree(tmp_path / "made", tmp_path / f"copy-{number}")
        lying = copy / path.relative_to(tmp_path / "made")
        metas = decode_manifest_list(lying.read_bytes(), path=path.name)
        lying.write_bytes(encode_manifest_list([replace(m, num_added_files=7) for m in metas]))
        data = {*copy.rglob("data-*")}
        VERBS["expire"](anabranch.connect(str(copy)).table("db.t"))
        assert {*copy.rglob("data-*")} == data
    assert data


def test_an_expiry_that_is_told_of_one_entry_too_many(tmp_path):
    """What still refers to candidates is searched in several manifests at once, by what their list counts."""
    table = make_table(tmp_path / "made", options={"manifest.merge-min-count": "100"})
    for i in range(3):
        table.append(rows(3 * i, 3))
    table.overwrite(rows(20, 3))
    table.append(rows(30, 2))
    table.create_tag("good", snapshot=2)
    refused = set()
    for number, path in enumerate(sorted((tmp_path / "made/db.db/t/manifest").glob("manifest-list-*"))):
        copy = shutil.copytree(tmp_path / "made", tmp_path / f"copy-{number}")
        lying = copy / path.relative_to(tmp_path / "made")
        metas = decode_manifest_list(lying.read_bytes(), path=path.name)
        lying.write_bytes(encode_manifest_list([replace(m, num_added_files=2) for m in metas]))
        before = {p for p in copy.rglob("*") if p.is_file()}
        try:
            VERBS["expire"](anabranch.connect(str(copy)).table("db.t"))
        except CorruptTableError as error:
            refused.add(re.search("entries, its manifest list says|more rows", str(error)) is not None)
            gone = before - {*copy.rglob("*")}
            assert not [p for p in gone if "bucket-" in str(p)], (
                "no data goes on the word of a list that lies"
            )
    assert refused == {True}
