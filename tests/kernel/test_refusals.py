"""What is not implemented in tables of others is refused by name: never read wrongly, never written to.

The tables are made by hand: one of ours, in whose metadata another engine's feature is written.
"""

import io
import json
import shutil

import fastavro
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CorruptTableError
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A table of two files, to be copied: bytes are cached by the place they were read from."""
    folder = tmp_path_factory.mktemp("plain")
    # fastavro knows this compression by itself.
    table = make_table(folder, schema="id BIGINT, v STRING", options={"manifest.compression": "deflate"})
    for i in range(2):
        table.append(rows(10 * i, 3))
    return folder


@pytest.fixture
def lake(plain, tmp_path):
    shutil.copytree(plain, tmp_path / "lake")
    return tmp_path / "lake"


def _root(lake):
    return lake / "db.db" / "t"


def _open(lake):
    return anabranch.connect(str(lake)).table("db.t")


def _edit(path, **values):
    """Set keys of a JSON file; a function gets the old value."""
    content = json.loads(path.read_text())
    for key, value in values.items():
        content[key] = value(content.get(key)) if callable(value) else value
    (content.get("properties") or {}).pop("anabranch.checksum", None)
    path.write_text(json.dumps(content))


def _edit_records(path, change):
    """Change the records of an Avro file, each by itself, in a schema that may gain fields."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, codec, records = reader.writer_schema, reader.codec, list(reader)
    for record in records:
        change(record)
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    path.write_bytes(out.getvalue())


def _manifests(lake, snapshot=2):
    """Paths of the manifests that the snapshot's delta list names, and of the list."""
    folder = _root(lake) / "manifest"
    name = json.loads((_root(lake) / "snapshot" / f"snapshot-{snapshot}").read_text())["deltaManifestList"]
    with (folder / name).open("rb") as file:
        return [folder / record["_FILE_NAME"] for record in fastavro.reader(file)], folder / name


def _tree(lake):
    return {p: p.read_bytes() for p in lake.rglob("*") if p.is_file()}


def _refused(action, feature):
    with pytest.raises(anabranch.UnsupportedFeatureError) as caught:
        action()
    assert caught.value.feature == feature
    assert caught.value.hint
    return caught.value


def _check_reading_is_refused(lake, feature):
    _refused(lambda: _open(lake).scan().to_arrow(), feature)
    _refused(lambda: _open(lake).scan("id = 1", columns=["v"], limit=1).plan(), feature)


def _check_writing_is_refused(lake, feature):
    before = _tree(lake)
    _refused(lambda: _open(lake).append(rows(100, 1)), feature)
    _refused(lambda: _open(lake).overwrite(rows(100, 1)), feature)
    assert _tree(lake) == before


def test_the_table_is_fine_before_it_is_tampered_with(lake):
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12]
    assert _open(lake).append(rows(20, 1)).id == 3


# What the schema says

NEITHER = [
    ({"type": "format-table"}, "table-type"),
    ({"primary-key": "id"}, "primary-key"),
    ({"deletion-vectors.enabled": "true"}, "deletion-vectors"),
    ({"deletion-vectors.enabled": " TRUE "}, "deletion-vectors"),
    ({"data-evolution.enabled": "true"}, "data-evolution"),
    ({"data-file.external-paths": "s3://elsewhere/x"}, "external-paths"),
    ({"data-file.path-directory": "data"}, "data-file-directory"),
    ({"file.format": "lance"}, "file-format"),
    ({"file.format": "csv"}, "file-format"),
    ({"file.format.per.level": "0:parquet,5:vortex"}, "file-format"),
    ({"manifest.format": "parquet"}, "manifest-format"),
    ({"changelog-producer": "lookup"}, "changelog-producer"),
    ({"merge-engine": "partial-update"}, "merge-engine"),
    ({"sequence.field": "id"}, "sequence-field"),
    ({"rowkind.field": "v"}, "rowkind-field"),
    ({"record-level.expire-time": "1 d"}, "record-level-expire"),
    ({"chain-table.enabled": "true"}, "chain-table"),
    ({"scan.fallback-branch": "b"}, "fallback-branch"),
    ({"scan.primary-branch": "b"}, "primary-branch"),
    ({"query-auth.enabled": "true"}, "query-auth"),
    ({"fields.v.map.storage-layout": "columns"}, "map-storage-layout"),
    ({"fields.v.default-value": "x"}, "column-default"),
    ({"bucket": "-2"}, "postpone-bucket"),
]
READ_ONLY = [
    ({"row-tracking.enabled": "true"}, "row-tracking"),
    ({"bucket-function.type": "mod"}, "bucket-function"),
    ({"data-file.prefix": "part-"}, "data-file-prefix"),
    ({"index-file-in-data-file-dir": "true"}, "index-file-directory"),
    ({"file.format.per.level": "0:parquet"}, "file-format-per-level"),
]
HARMLESS = [
    {"type": "table"},
    {"deletion-vectors.enabled": "false"},
    {"row-tracking.enabled": "false"},
    {"bucket-function.type": "default"},
    {"changelog-producer": "none"},
    {"sink.parallelism": "4", "clustering.columns": "id", "write-buffer-size": "1 mb"},
    {"file-index.bloom-filter.columns": "id"},
    {"changelog.time-retained": "1 d"},
]


def _with_options(lake, options):
    _edit(_root(lake) / "schema" / "schema-0", options=lambda old: {**old, **options})


@pytest.mark.parametrize(("options", "feature"), NEITHER, ids=str)
def test_options_that_change_what_rows_there_are(lake, options, feature):
    _with_options(lake, options)
    _check_reading_is_refused(lake, feature)
    _check_writing_is_refused(lake, feature)


@pytest.mark.parametrize(("options", "feature"), READ_ONLY, ids=str)
def test_options_that_only_a_writer_has_to_know(lake, options, feature):
    _with_options(lake, options)
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12]
    _check_writing_is_refused(lake, feature)


@pytest.mark.parametrize("options", HARMLESS, ids=str)
def test_options_that_change_nothing_here(lake, options):
    _with_options(lake, options)
    _open(lake).append(rows(20, 1))
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12, 20]


def test_options_set_later_count_too(lake):
    """The newest schema speaks for the table, also if no snapshot was made since."""
    newer = _root(lake) / "schema" / "schema-1"
    shutil.copy(_root(lake) / "schema" / "schema-0", newer)
    _edit(newer, id=1, options=lambda old: {**old, "deletion-vectors.enabled": "true"})
    _check_reading_is_refused(lake, "deletion-vectors")
    _check_writing_is_refused(lake, "deletion-vectors")


def test_primary_keys(lake):
    _edit(_root(lake) / "schema" / "schema-0", primaryKeys=["id"])
    _check_reading_is_refused(lake, "primary-key")
    _check_writing_is_refused(lake, "primary-key")


def test_defaults_of_columns_are_for_what_is_written(lake):
    def with_default(fields):
        fields[1]["defaultValue"] = "x"
        return fields

    _edit(_root(lake) / "schema" / "schema-0", fields=with_default)
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12]
    _open(lake).append([{"id": 99}])
    assert _open(lake).scan("id = 99").to_arrow()["v"].to_pylist() == ["x"]


@pytest.mark.parametrize("kind", ["VARIANT", "BLOB", "VECTOR<FLOAT, 3>", "GEOMETRY", "GEOGRAPHY"])
def test_columns_of_types_not_known(lake, kind):
    _edit(
        _root(lake) / "schema" / "schema-0",
        fields=lambda old: [*old, {"id": 9, "name": "x", "type": kind}],
        highestFieldId=9,
    )
    feature = f"type-{kind.partition('<')[0].lower()}"
    assert "schema-0" in str(_refused(lambda: _open(lake).scan().to_arrow(), feature))
    _check_writing_is_refused(lake, feature)


# What snapshots say


def test_formats_of_later_versions(lake):
    _edit(_root(lake) / "schema" / "schema-0", version=4)
    _refused(lambda: _open(lake).scan().to_arrow(), "schema-version")


def test_snapshots_of_later_versions(lake):
    _edit(_root(lake) / "snapshot" / "snapshot-2", version=4)
    _check_reading_is_refused(lake, "snapshot-version")
    _check_writing_is_refused(lake, "snapshot-version")
    assert ids_of(_open(lake).at(1)) == [0, 1, 2]


def test_commits_of_kinds_not_known(lake):
    _edit(_root(lake) / "snapshot" / "snapshot-2", commitKind="REVERT")
    _check_reading_is_refused(lake, "commit-kind")
    _check_writing_is_refused(lake, "commit-kind")


INDEX_ENTRY = {
    "type": "record",
    "name": "IndexManifestEntry",
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {
            "name": "_DELETIONS_VECTORS_RANGES",
            "default": None,
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "range",
                        "fields": [
                            {"name": "f0", "type": "string"},
                            {"name": "f1", "type": "int"},
                            {"name": "f2", "type": "int"},
                            {"name": "_CARDINALITY", "type": ["null", "long"], "default": None},
                        ],
                    },
                },
            ],
        },
    ],
}


def _with_index(lake, *kinds, live=True):
    """Give the newest snapshot an index manifest with a file of each of these types."""
    records = [
        {
            "_VERSION": 1,
            "_KIND": 0 if live else 1,
            "_PARTITION": bytes(12),
            "_BUCKET": 0,
            "_INDEX_TYPE": kind,
            "_FILE_NAME": f"index-{i}",
            "_FILE_SIZE": 31,
            "_ROW_COUNT": 1,
            "_DELETIONS_VECTORS_RANGES": [{"f0": "data-x.parquet", "f1": 1, "f2": 22, "_CARDINALITY": 1}]
            if kind == "DELETION_VECTORS"
            else None,
        }
        for i, kind in enumerate(kinds)
    ]
    with (_root(lake) / "manifest" / "index-manifest-0").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(INDEX_ENTRY), records, codec="deflate")
    _edit(_root(lake) / "snapshot" / "snapshot-2", indexManifest="index-manifest-0")


@pytest.mark.parametrize(
    ("kinds", "feature"),
    [(["DELETION_VECTORS"], "deletion-vectors"), (["btree", "DELETION_VECTORS"], "deletion-vectors"), (["HASH"], "primary-key")],
    ids=str,
)  # fmt: skip
def test_indexes_that_change_what_rows_there_are(lake, kinds, feature):
    _with_index(lake, *kinds)
    _check_reading_is_refused(lake, feature)
    _check_writing_is_refused(lake, feature)
    assert ids_of(_open(lake).at(1)) == [0, 1, 2]
    table = _open(lake)
    _refused(lambda: table.plan_delta(table.snapshot), feature)


def test_indexes_that_a_commit_would_make_stale(lake):
    _with_index(lake, "btree", "bitmap")
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12]
    _check_writing_is_refused(lake, "index-manifest")


@pytest.mark.parametrize("kinds", [[], ["DELETION_VECTORS", "btree"]], ids=["empty", "all removed"])
def test_an_index_manifest_without_live_indexes_is_carried_on(lake, kinds):
    _with_index(lake, *kinds, live=False)
    assert _open(lake).append(rows(20, 1)).index_manifest == "index-manifest-0"
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12, 20]


@pytest.mark.parametrize("data", [None, b"", b"nonsense"], ids=["missing", "empty", "damaged"])
def test_an_index_manifest_that_cannot_be_read(lake, data):
    _edit(_root(lake) / "snapshot" / "snapshot-2", indexManifest="index-manifest-0")
    if data is not None:
        (_root(lake) / "manifest" / "index-manifest-0").write_bytes(data)
    for action in (lambda: _open(lake).scan().to_arrow(), lambda: _open(lake).append(rows(20, 1))):
        with pytest.raises(anabranch.CorruptTableError, match="index-manifest-0"):
            action()


def test_another_avro_file_is_no_index_manifest(lake):
    (path,), _ = _manifests(lake)
    _edit(_root(lake) / "snapshot" / "snapshot-2", indexManifest=path.name)
    with pytest.raises(anabranch.CorruptTableError, match="no index manifest"):
        _open(lake).scan().to_arrow()


# What manifests say


@pytest.mark.parametrize("version", [1, 3])
def test_manifest_lists_of_other_versions(lake, version):
    _, path = _manifests(lake)
    _edit_records(path, lambda record: record.update(_VERSION=version))
    _check_reading_is_refused(lake, "manifest-version")
    _check_writing_is_refused(lake, "manifest-version")


def _with_entries(lake, **changes):
    """Change the newest data file's record in its manifest."""
    (path,), list_path = _manifests(lake)
    _edit_records(path, lambda record: record["_FILE"].update(changes))
    _edit_records(list_path, lambda record: record.update(_FILE_SIZE=path.stat().st_size))


@pytest.mark.parametrize("version", [1, 3])
def test_manifests_of_other_versions(lake, version):
    (path,), _ = _manifests(lake)
    _edit_records(path, lambda record: record.update(_VERSION=version))
    _check_reading_is_refused(lake, "manifest-version")
    assert ids_of(_open(lake).at(1)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"_EXTERNAL_PATH": "s3://elsewhere/data-0.parquet"}, "data-file.external-paths"),
        ({"_WRITE_COLS": ["id"]}, "data-evolution"),
        ({"_FILE_NAME": "data-0.lance"}, "file-format"),
        ({"_FILE_NAME": "data-0"}, "file-format"),
    ],
    ids=str,
)
def test_data_files_that_cannot_be_read(lake, changes, feature):
    _with_entries(lake, **changes)
    _refused(lambda: _open(lake).scan().to_arrow(), feature)
    assert ids_of(_open(lake).at(1)) == [0, 1, 2]


def test_rows_split_over_files_are_refused_also_where_statistics_would_leave_the_file_out(lake):
    """Its statistics are about the columns it has; the rows it belongs to are in another file too."""
    _with_entries(lake, _WRITE_COLS=["id"])
    assert _open(lake).at(1).scan("id = 1").plan().files.height == 1
    _refused(lambda: _open(lake).scan("id = 1").plan(), "data-evolution")


def test_a_first_row_id_alone_is_nothing_to_a_reader(lake):
    _with_entries(lake, _FIRST_ROW_ID=0)
    assert ids_of(_open(lake)) == [0, 1, 2, 10, 11, 12]


def test_a_file_of_a_schema_that_is_not_there(lake):
    _with_entries(lake, _SCHEMA_ID=5)
    with pytest.raises(anabranch.CorruptTableError, match="schema-5"):
        _open(lake).scan().to_arrow()


# What is written differently by different engines


@pytest.mark.parametrize(
    ("column", "arrow", "values"),
    [
        ("TIMESTAMP(6)", pa.timestamp("us"), [None, 5, None, 7]),
        ("DECIMAL(30, 2)", pa.decimal128(30, 2), [None, 1, -128, 7]),
    ],
)
def test_bucket_keys_whose_hash_depends_on_the_engine_prune_nothing(tmp_path, column, arrow, values):
    """pypaimon puts null timestamps and some decimals into other buckets than Java: all must be read."""
    table = make_table(tmp_path, schema=f"id BIGINT, k {column}", options={"bucket": "5", "bucket-key": "k"})
    data = pa.table({"id": range(4), "k": pa.array(values, arrow)})
    table.append(data)
    moved = {split.bucket for split in table.scan().plan().splits}
    assert {split.bucket for split in table.scan("k IS NULL").plan().splits} <= moved
    steps = {step.name: step.files for step in table.scan("k IS NULL").plan().report.steps}
    assert steps["buckets"] == steps["entries"]
    assert table.scan("k IS NULL").to_arrow()["id"].to_pylist() == [
        i for i, v in enumerate(values) if v is None
    ]


def test_a_bucket_key_that_is_a_partition_key_is_not_written_to(tmp_path):
    table = make_table(tmp_path, schema="id BIGINT, dt STRING", partition_by=["dt"])
    _edit(_root(tmp_path) / "schema/schema-0", options=lambda old: {**old, "bucket": "2", "bucket-key": "dt"})
    with pytest.raises(CorruptTableError, match="'dt', which is a partition key"):
        _open(tmp_path).append(pa.table({"id": [1], "dt": ["a"]}))
    assert table.context.snapshots.head() is None
