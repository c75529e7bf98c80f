"""Schemas: their files, what a new table must satisfy, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidNameError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from anabranch.format.schema.change import RemoveOption, SetOption, apply_changes
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.support import check_expirable, check_readable, check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t

from .schema_values import SCHEMAS, attempt, deep_json, fixture_files, mutated_documents

PATH = "schema/schema-0"
COLUMNS = parse_columns(
    "id BIGINT NOT NULL, dt STRING COMMENT 'day', v ARRAY<ROW<a INT, b STRING>>, n DECIMAL(10, 2)"
)
DOCUMENT = {
    "version": 3,
    "id": 2,
    "fields": [
        {"id": 0, "name": "id", "type": "BIGINT NOT NULL"},
        {"id": 1, "name": "dt", "type": "STRING", "description": "day"},
        {"id": 5, "name": "v", "type": {"type": "ROW", "fields": [{"id": 4, "name": "a", "type": "INT"}]}},
    ],
    "highestFieldId": 7,
    "partitionKeys": ["dt"],
    "primaryKeys": [],
    "options": {"bucket": "2", "bucket-key": "id"},
    "comment": "orders",
    "timeMillis": 1720496663041,
}


def read(data):
    return TableSchema.from_json(data if isinstance(data, bytes) else json.dumps(data).encode(), path=PATH)


def without(*keys):
    return {key: value for key, value in DOCUMENT.items() if key not in keys}


def create(fields=COLUMNS, **arguments):
    return TableSchema.create(fields, time_millis=5, **arguments)


# Files


def test_tables_of_other_writers_are_read_whole():
    for file in fixture_files("schema-"):
        schema = TableSchema.from_json(file.read_bytes(), path=str(file))
        check_readable(schema, path=str(file))
        check_writable(schema, path=str(file))
        original = json.loads(file.read_bytes(), object_hook=_without_nothings)
        assert json.loads(schema.to_json()) == original, file


def _without_nothings(value):
    """A JSON object without the two keys that pypaimon adds and nobody needs."""
    return {k: v for k, v in value.items() if k != "nullable" and not (k == "comment" and v is None)}


def test_new_tables_number_their_columns_as_other_writers_do():
    for file in fixture_files("schema-0"):
        schema = TableSchema.from_json(file.read_bytes(), path=str(file))
        blank = TableSchema.create(
            schema.fields, partition_keys=schema.partition_keys, options=schema.options, time_millis=0
        )
        assert (blank.fields, blank.highest_field_id) == (schema.fields, schema.highest_field_id), file


def test_a_file_is_read_as_it_says():
    schema = read(DOCUMENT)
    assert schema == TableSchema(
        id=2,
        fields=(
            t.Field(0, "id", t.BigIntType(nullable=False)),
            t.Field(1, "dt", t.VarCharType(), "day"),
            t.Field(5, "v", t.RowType((t.Field(4, "a", t.IntType()),))),
        ),
        partition_keys=("dt",),
        primary_keys=(),
        options={"bucket": "2", "bucket-key": "id"},
        highest_field_id=7,
        comment="orders",
        time_millis=1720496663041,
        version=3,
    )
    assert json.loads(schema.to_json()) == DOCUMENT
    assert schema.bucket == 2
    assert schema.bucket_keys == ("id",)
    assert schema.partition_fields == (schema.fields[1],)
    assert schema.row_type == t.RowType(schema.fields, nullable=False)
    assert schema.field_by_id(5) is schema.fields[2]
    assert schema.field_by_id(4) is None


def test_an_unknown_column_is_answered_with_the_ones_there_are():
    with pytest.raises(SchemaError, match="no column 'iD'; columns are id, dt, v") as caught:
        read(DOCUMENT).field("iD")
    assert "'id'" in caught.value.hint


def test_what_is_absent_is_not_written():
    written = json.loads(create(parse_columns("a INT")).to_json())
    assert "comment" not in written
    assert written["fields"] == [{"id": 0, "name": "a", "type": "INT"}]
    assert written["version"] == 3


@pytest.mark.parametrize(
    ("version", "given_options", "expected"),
    [
        (None, {}, {"bucket": "1", "file.format": "orc"}),
        (1, {"bucket": "3", "file.format": "avro"}, {"bucket": "3", "file.format": "avro"}),
        (2, {}, {"file.format": "orc"}),
        (3, {}, {}),
    ],
)
def test_older_files_had_other_defaults(version, given_options, expected):
    document = {**without("timeMillis", "comment"), "version": version, "options": given_options}
    schema = read(document if version is not None else {k: v for k, v in document.items() if k != "version"})
    assert schema.options == expected
    assert schema.time_millis == 0
    assert read(schema.to_json()) == schema


def test_defaults_of_plain_columns_are_kept_and_of_others_not_written_for():
    document = json.loads(json.dumps(DOCUMENT))
    document["fields"][0]["defaultValue"] = "7"
    schema = read(document)
    assert json.loads(schema.to_json()) == document
    check_readable(schema, path=PATH)
    check_writable(schema, path=PATH)
    nested = replace(
        schema, fields=(*schema.fields, t.Field(99, "l", t.ArrayType(t.IntType()), default="[]"))
    )
    with pytest.raises(UnsupportedFeatureError, match=r"values of l") as caught:
        check_writable(nested, path=PATH)
    assert caught.value.feature == "column-default"


def test_a_later_format_is_refused_by_name():
    with pytest.raises(UnsupportedFeatureError, match="version 4") as caught:
        read({**DOCUMENT, "version": 4})
    assert caught.value.feature == "schema-version"


def _changed(**changes):
    return {**DOCUMENT, **changes}


def _fields(*fields):
    return _changed(fields=list(fields), partitionKeys=[], options={})


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (_changed(id=-1), "id"),
        (_changed(id="2"), "id"),
        (_changed(id=10**30), "id"),
        (_changed(version="3"), "version"),
        (_changed(fields={}), "fields"),
        (_changed(fields=[None]), "field"),
        (_changed(highestFieldId=None), "highestFieldId"),
        (_changed(highestFieldId=2**31), "highestFieldId"),
        (_changed(partitionKeys="dt"), "partitionKeys"),
        (_changed(partitionKeys=["nope"]), "nope"),
        (_changed(partitionKeys=["dt", "dt"]), "more than once"),
        (_changed(partitionKeys=["v"]), "ROW"),
        (_changed(primaryKeys=[1]), "primaryKeys"),
        (_changed(primaryKeys=["nope"]), "nope"),
        (_changed(options=[]), "options"),
        (_changed(options={"bucket": 2}), "bucket"),
        (_changed(options={"bucket": "two"}), "bucket"),
        (_changed(comment=1), "comment"),
        (_changed(timeMillis="now"), "timeMillis"),
        (_fields({"id": 0, "name": "a", "type": "INT"}, {"id": 0, "name": "b", "type": "INT"}), "id 0"),
        (_fields({"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "a", "type": "INT"}), "'a'"),
        (_fields({"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": {
            "type": "ROW", "fields": [{"id": 0, "name": "c", "type": "INT"}]}}), "id 0"),
        (_fields({"id": 0, "name": "b", "type": {"type": "ARRAY", "element": {"type": "ROW", "fields": [
            {"id": 1, "name": "c", "type": "INT"}, {"id": 2, "name": "c", "type": "INT"}]}}}), "'c'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_is_refused(document, named):
    with pytest.raises(CorruptTableError, match=named) as caught:
        read(document)
    assert caught.value.path == PATH


@pytest.mark.parametrize("key", ["id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options"])
def test_a_missing_key_is_named(key):
    with pytest.raises(CorruptTableError, match=f"'{key}' is missing"):
        read(without(key))


@pytest.mark.parametrize("levels", [101, 200, 5000])
def test_deep_types_in_a_file_are_corrupt(levels):
    deep = deep_json(levels, '{"type": "ARRAY", "element": ', "}", '"INT"')
    field = b'{"id": 0, "name": "a", "type": ' + deep + b"}"
    data = json.dumps(_fields("HERE")).encode().replace(b'"HERE"', field)
    with pytest.raises(CorruptTableError, match="deep"):
        read(data)


def test_a_highest_id_below_the_ids_in_use_is_raised_to_them():
    assert read(_changed(highestFieldId=1)).highest_field_id == 5


@given(SCHEMAS)
def test_schemas_survive_their_file(schema):
    assert read(schema.to_json()) == schema


@given(mutated_documents([DOCUMENT, *(json.loads(f.read_bytes()) for f in fixture_files("schema-")[:40:8])]))
def test_a_damaged_file_is_read_or_refused(data):
    schema, error = attempt(lambda: read(data))
    if error is None:
        assert read(schema.to_json()) == schema
        _, error = attempt(lambda: check_writable(schema, path=PATH))
    assert error is None or isinstance(error, CorruptTableError | UnsupportedFeatureError)
    assert error is None or error.path == PATH


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data):
    with pytest.raises(CorruptTableError):
        read(data)


# New tables


def test_a_new_table():
    schema = create(partition_keys=["dt"], options={"bucket": "3", "bucket-key": "id, n"}, comment="c")
    assert [f.id for f in t.walk_fields(schema.fields)] == [0, 1, 2, 3, 4, 5]
    assert (schema.id, schema.highest_field_id, schema.time_millis) == (0, 5, 5)
    assert (schema.bucket, schema.bucket_keys, schema.partition_keys) == (3, ("id", "n"), ("dt",))
    assert schema.comment == "c"


def test_ids_of_another_tables_columns_are_replaced():
    fields = (replace(COLUMNS[0], id=17), replace(COLUMNS[1], id=3))
    assert [f.id for f in create(fields).fields] == [0, 1]


@pytest.mark.parametrize(
    ("ddl", "arguments", "error", "named"),
    [
        ("a INT, a INT", {}, SchemaError, "'a' more than once"),
        ("a INT, b ROW<c INT, c INT>", {}, SchemaError, "'c' more than once"),
        ("a INT, b ARRAY<ROW<>>", {}, SchemaError, "without fields"),
        ("_KEY_a INT", {}, InvalidNameError, "reserved"),
        ("rowkind INT", {}, InvalidNameError, "reserved"),
        ("`a/b` INT", {}, InvalidNameError, "separator"),
        ("a ROW<`..` INT>", {}, InvalidNameError, "dot"),
        ("a INT, b INT", {"partition_keys": ["c"]}, SchemaError, "'c'"),
        ("a INT, b INT", {"partition_keys": ["a", "a"]}, SchemaError, "more than once"),
        ("a INT, b INT", {"partition_keys": ["a", "b"]}, SchemaError, "every column"),
        ("a INT, b ARRAY<INT>", {"partition_keys": ["b"]}, SchemaError, "ARRAY"),
        ("a INT", {"options": {"bucket": "0"}}, OptionError, "'bucket' is 0"),
        ("a INT", {"options": {"bucket": "-2"}}, OptionError, "'bucket' is -2"),
        ("a INT", {"options": {"bucket": "x"}}, OptionError, "bucket"),
        ("a INT", {"options": {"bucket": "2"}}, OptionError, "bucket-key"),
        ("a INT", {"options": {"bucket-key": "a"}}, OptionError, "bucket = -1"),
        ("a INT", {"options": {"bucket": "-1", "bucket-key": "a"}}, OptionError, "bucket = -1"),
        ("a INT", {"options": {"bucket": "2", "bucket-key": " , "}}, OptionError, "bucket-key"),
        ("a INT", {"options": {"bucket": "2", "bucket-key": "c"}}, OptionError, "'c'"),
        ("a INT", {"options": {"bucket": "2", "bucket-key": "a,a"}}, OptionError, "more than once"),
        ("a ARRAY<INT>", {"options": {"bucket": "2", "bucket-key": "a"}}, OptionError, "ARRAY"),
        ("a INT, b INT", {"partition_keys": ["a"], "options": {"bucket": "2", "bucket-key": "a"}}, OptionError,
         "partition key"),
        (
            "a INT",
            {"options": {"snapshot.num-retained.min": "20", "snapshot.num-retained.max": "5"}},
            OptionError,
            "more than",
        ),
        ("a INT", {"options": {"write-only": True}}, OptionError, "text"),
        ("a INT", {"options": {"anabranch.tabel-uuid": "x"}}, OptionError, "anabranch.table-uuid"),
        ("a INT", {"options": {"file.format": "csv"}}, OptionError, "file.format"),
        ("a INT", {"options": {"partition": "a"}}, OptionError, "partition"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_is_refused(ddl, arguments, error, named):
    with pytest.raises(error, match=named) as caught:
        create(parse_columns(ddl), **arguments)
    assert isinstance(caught.value, InvalidInputError)


def test_a_table_needs_a_column():
    with pytest.raises(SchemaError, match="at least one column"):
        create(())


def test_types_nested_too_deeply_are_refused():
    deep = t.IntType()
    for _ in range(5000):
        deep = t.ArrayType(deep)
    with pytest.raises(SchemaError, match="deep"):
        create((t.Field(0, "a", deep),))


def test_one_bucket_needs_no_key():
    assert create(options={"bucket": "1"}).bucket == 1
    assert create(options={"bucket": "1", "bucket-key": "id"}).bucket_keys == ("id",)
    assert (
        create(options={"bucket": "2", "bucket-key": "id", "full-compaction.delta-commits": "3"}).bucket == 2
    )


def test_full_compaction_of_a_scalable_table_is_stored_under_a_name_that_other_engines_pass_over():
    made = create(options={"full-compaction.delta-commits": "3", "bucket": "-1"})
    assert made.options == {"anabranch.full-compaction.delta-commits": "3", "bucket": "-1"}
    set_again = apply_changes(
        made, [SetOption("full-compaction.delta-commits", "5")], time_millis=1, has_snapshots=False
    )
    assert set_again.options["anabranch.full-compaction.delta-commits"] == "5"
    assert "full-compaction.delta-commits" not in set_again.options
    removed = apply_changes(
        set_again, [RemoveOption("full-compaction.delta-commits")], time_millis=2, has_snapshots=False
    )
    assert removed.options == {"bucket": "-1"}
    with pytest.raises(OptionError, match="delta-commits"):
        create(options={"full-compaction.delta-commits": "0"})


@pytest.mark.parametrize("arguments", [{"primary_keys": ["id"]}, {"options": {"primary-key": "id"}}])
def test_a_primary_key_is_refused_with_the_kind_of_table_that_has_one(arguments):
    with pytest.raises(UnsupportedFeatureError, match="complete records") as caught:
        create(**arguments)
    assert caught.value.feature == "primary-key"
    assert "primary-key table" in caught.value.hint


def test_text_that_no_file_can_hold_is_refused_before_writing():
    with pytest.raises(InvalidInputError):
        create(comment="\ud800").to_json()


# What is not implemented

READ = [
    ("type", "format-table", "table-type"),
    ("type", "object-table", "table-type"),
    ("deletion-vectors.enabled", "true", "deletion-vectors"),
    ("deletion-vectors.enabled", "TRUE ", "deletion-vectors"),
    ("data-evolution.enabled", "true", "data-evolution"),
    ("data-file.external-paths", "s3://b/x", "external-paths"),
    ("data-file.path-directory", "data", "data-file-directory"),
    ("file.format", "lance", "file-format"),
    ("file.format.per.level", "0:parquet,5:csv", "file-format"),
    ("manifest.format", "orc", "manifest-format"),
    ("changelog-producer", "input", "changelog-producer"),
    ("merge-engine", "partial-update", "merge-engine"),
    ("sequence.field", "id", "sequence-field"),
    ("rowkind.field", "id", "rowkind-field"),
    ("record-level.expire-time", "1 d", "record-level-expire"),
    ("chain-table.enabled", "true", "chain-table"),
    ("scan.fallback-branch", "b", "fallback-branch"),
    ("scan.primary-branch", "b", "primary-branch"),
    ("query-auth.enabled", "true", "query-auth"),
    ("fields.v.map.storage-layout", "shared", "map-storage-layout"),
    ("fields.id.default-value", "3", "column-default"),
]
WRITE = [
    ("row-tracking.enabled", "true", "row-tracking"),
    ("bucket-function.type", "mod", "bucket-function"),
    ("data-file.prefix", "part-", "data-file-prefix"),
    ("index-file-in-data-file-dir", "true", "index-file-directory"),
    ("file.format.per.level", "0:parquet,5:orc", "file-format-per-level"),
]


def _of_others(**options):
    return replace(read(_changed(options={})), options=options)


@pytest.mark.parametrize(("key", "value", "feature"), READ)
def test_a_table_that_would_be_read_wrongly_is_refused(key, value, feature):
    schema = _of_others(**{key: value})
    for check in (check_readable, check_writable):
        with pytest.raises(UnsupportedFeatureError, match=key) as caught:
            check(schema, path=PATH)
        assert (caught.value.feature, caught.value.path) == (feature, PATH)
        assert caught.value.hint


@pytest.mark.parametrize(("key", "value", "feature"), WRITE)
def test_a_table_that_would_be_damaged_is_only_read(key, value, feature):
    schema = _of_others(**{key: value})
    check_readable(schema, path=PATH)
    with pytest.raises(UnsupportedFeatureError, match=key) as caught:
        check_writable(schema, path=PATH)
    assert (caught.value.feature, caught.value.path) == (feature, PATH)


@pytest.mark.parametrize("key", ["deletion-vectors.enabled", "row-tracking.enabled"])
def test_a_new_table_cannot_ask_for_it_either(key):
    with pytest.raises(UnsupportedFeatureError, match=key):
        create(options={key: "true"})


def test_options_at_their_defaults_and_options_of_others_are_no_obstacle():
    schema = _of_others(
        **{
            "type": "table",
            "deletion-vectors.enabled": "false",
            "row-tracking.enabled": "false",
            "bucket-function.type": "default",
            "data-file.prefix": "data-",
            "data-file.external-paths": "",
            "merge-engine": "deduplicate",
            "changelog-producer": "none",
            "manifest.format": "avro",
            "file.format": "orc",
            "file-index.bloom-filter.columns": "id",
            "sink.parallelism": "4",
            "owner": "me",
            "fields.id.stats-mode": "full",
        }
    )
    check_writable(schema, path=PATH)


def test_primary_keys_and_their_buckets_are_refused():
    keyed = replace(read(DOCUMENT), primary_keys=("id",))
    with pytest.raises(UnsupportedFeatureError, match=r"primary key \(id\)") as caught:
        check_readable(keyed, path=PATH)
    assert caught.value.feature == "primary-key"
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_readable(_of_others(bucket="-2"), path=PATH)
    assert caught.value.feature == "postpone-bucket"


@pytest.mark.parametrize("options", [{"bucket": "0"}, {"bucket": "2", "bucket-key": "gone"}])
def test_buckets_that_cannot_be_are_corrupt(options):
    with pytest.raises(CorruptTableError, match="bucket"):
        check_readable(_of_others(**options), path=PATH)


def test_whether_buckets_follow_from_keys():
    queue = {"bucket": "2", "bucket-key": "id"}
    assert _of_others(**queue).bucket_follows_from_keys
    assert _of_others(**queue, **{"bucket-function.type": "default"}).bucket_follows_from_keys
    assert not _of_others(**queue, **{"bucket-function.type": "hive"}).bucket_follows_from_keys
    assert not _of_others(bucket="1").bucket_follows_from_keys


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, False),
        ({"changelog.time-retained": "1 h"}, False),
        ({"changelog.time-retained": "2 h"}, True),
        ({"changelog.time-retained": "2 h", "snapshot.time-retained": "1 d"}, False),
        ({"changelog.time-retained": "soon"}, True),
        ({"changelog.num-retained.min": "11"}, True),
        ({"changelog.num-retained.max": "100"}, False),
        ({"changelog.num-retained.max": "100", "snapshot.num-retained.max": "50"}, True),
    ],
)
def test_a_changelog_kept_longer_than_snapshots_forbids_expiry(options, refused):
    _, error = attempt(lambda: check_expirable(_of_others(**options), path=PATH))
    assert (error is not None) == refused
    assert error is None or error.feature == "decoupled-changelog"
