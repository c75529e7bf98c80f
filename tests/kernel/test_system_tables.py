"""System tables: fixed columns, and what they say of tables with a known past."""

import datetime as dt
import itertools
import json
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    InvalidInputError,
    NotFoundError,
    PredicateError,
    SchemaError,
    UnsupportedFeatureError,
)
from anabranch.format.records.data_file import DataFileMeta, SimpleStats
from anabranch.format.records.refs import Consumer
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.consumers import record_consumer
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput, TableInput
from anabranch.streaming.offsets import Position
from anabranch.system_tables import LAKE_TABLES, SYSTEM_TABLES, View, read_system_table, select, system_table
from tests.kernel.expiring import through
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows, written

FIXTURES = Path(__file__).parents[1] / "data" / "paimon"
PAIMON = {
    "snapshots": "snapshot_id schema_id commit_user commit_identifier commit_kind commit_time base_manifest_list "
    "delta_manifest_list changelog_manifest_list total_record_count delta_record_count changelog_record_count "
    "watermark",
    "schemas": "schema_id fields partition_keys primary_keys options comment update_time",
    "options": "key value",
    "files": "partition bucket file_path file_format schema_id level record_count file_size_in_bytes min_key "
    "max_key null_value_counts min_value_stats max_value_stats min_sequence_number max_sequence_number "
    "creation_time",
    "manifests": "file_name file_size num_added_files num_deleted_files schema_id min_partition_stats "
    "max_partition_stats",
    "partitions": "partition record_count file_size_in_bytes file_count last_update_time",
    "buckets": "partition bucket record_count file_size_in_bytes file_count last_update_time",
    "tags": "tag_name snapshot_id schema_id commit_time record_count create_time time_retained",
    "branches": "branch_name create_time",
    "consumers": "consumer_id next_snapshot_id",
    "savepoints": "savepoint_id saved_snapshot_id schema_id save_time record_count",
}
_names = itertools.count()


@pytest.fixture
def url():
    return f"memory://system{next(_names)}"


@pytest.fixture
def table(url):
    return make_table(url, options={"write-only": "true"})


def _column(table, name, column):
    return table.system(name)[column].to_pylist()


def _json(table, name, column):
    return [json.loads(text) for text in _column(table, name, column)]


# Columns


def test_columns_are_those_of_paimon_and_then_ours():
    for name, columns in PAIMON.items():
        wanted = columns.split()
        assert [f.name for f in SYSTEM_TABLES[name].fields][: len(wanted)] == wanted
    assert set(SYSTEM_TABLES) == {*PAIMON, "branches_log", "only_on_main", "lineage"}


def test_savepoints_have_the_types_of_the_proposal():
    first = SYSTEM_TABLES["savepoints"].fields[:5]
    assert {f.type.with_nullable(True).spelling for f in first} == {"BIGINT"}


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_a_table_that_was_never_written(table, name):
    found = table.system(name)
    assert found.schema.names == [f.name for f in SYSTEM_TABLES[name].fields]
    assert found.num_rows == {"schemas": 1, "options": 2}.get(name, 0)


def test_the_page_names_every_column():
    page = (Path(__file__).parents[2] / "docs" / "system-tables.md").read_text()
    for name, columns in [
        *((n, t.fields) for n, t in SYSTEM_TABLES.items()),
        *((f"sys.{name}", fields) for name, fields in LAKE_TABLES.items()),
    ]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert [f"`{f.name}`" for f in columns] == row.split("|")[2].replace(";", "").replace(",", "").split()


def test_unknown_names(table, url):
    with pytest.raises(NotFoundError, match="there is no system table 'fles'") as caught:
        table.system("fles")
    assert "did you mean 'files'?" in caught.value.hint
    lake = anabranch.connect(url)
    with pytest.raises(NotFoundError) as caught:
        lake.system("table")
    assert "did you mean 'sys.tables'" in caught.value.hint
    assert "sys.snapshot_lineage" in caught.value.hint
    with pytest.raises(InvalidInputError) as named:
        lake.table("db.t$files")
    assert "the system table 'files' of 'db.t'" in named.value.message
    assert "`table.system`" in named.value.hint
    with pytest.raises(InvalidInputError) as named:
        lake.table("sys.tables")
    assert "`lake.system`" in named.value.hint
    with pytest.raises(NotFoundError, match="no system table 'None'"):
        table.system(None)


# History


def test_snapshots(table):
    for start in (0, 3):
        table.append(rows(start, 3))
    table.overwrite(rows(9, 1))
    found = table.system("snapshots").to_pylist()
    assert [(r["snapshot_id"], r["commit_kind"], r["total_record_count"]) for r in found] == [
        (3, "OVERWRITE", 1),
        (2, "APPEND", 6),
        (1, "APPEND", 3),
    ]
    newest = table.snapshot
    assert found[0]["commit_time"] == dt.datetime.fromtimestamp(newest.time_millis / 1000, dt.UTC)
    assert found[0]["stamp"] == newest.stamp
    assert json.loads(found[0]["properties"]) == dict(newest.properties)


def test_snapshots_of_many_end_at_the_first_gap(table):
    for start in range(12):
        table.append(rows(start, 1))
    assert _column(table, "snapshots", "snapshot_id") == list(range(12, 0, -1))
    table.context.storage.delete("snapshot/snapshot-7")
    assert _column(table, "snapshots", "snapshot_id") == [12, 11, 10, 9, 8]


def test_schemas_and_options(table):
    table.append(rows(0, 1))
    table.alter().add_column("n", "INT").set_option("x", "1").apply()
    assert _column(table, "schemas", "schema_id") == [0, 1]
    fields = _json(table, "schemas", "fields")[1]
    assert [(f["name"], f["type"]) for f in fields] == [
        ("id", "BIGINT NOT NULL"),
        ("v", "STRING"),
        ("n", "INT"),
    ]
    assert _json(table, "schemas", "options")[1]["x"] == "1"
    assert _json(table, "schemas", "partition_keys") == [[], []]
    options = dict(table.system("options").select(["key", "value"]).to_pandas().itertuples(index=False))
    assert options["x"] == "1"
    past = table.at(1)
    assert "x" not in _column(past, "options", "key")
    assert _column(past, "schemas", "schema_id") == [0]


def test_lineage(table):
    start, end = Position(0, None), Position(4, "abcd")
    entry = LineageEntry(
        job="clean",
        run="r1",
        code="c0ffee",
        engine=Engine("spark", "4.3.0", None, "q", 7),
        inputs=(
            TableInput("db.src", "table-uuid", "branch-uuid", start, end),
            SourceInput("kafka", "0", None, {"t": {"0": 5}}),
        ),
        problems=("late",),
    )
    table.append(rows(0, 1))
    table.commit(Append(written(table, 1, 1)), properties={LINEAGE_PROPERTY: entry.to_json()})
    bare = replace(entry, inputs=(), problems=())
    table.commit(Append(written(table, 2, 1)), properties={LINEAGE_PROPERTY: bare.to_json()})
    found = table.system("lineage").to_pylist()
    assert [(r["snapshot_id"], r["input_kind"], r["input_name"]) for r in found] == [
        (3, None, None),
        (2, "table", "db.src"),
        (2, "kafka", "t"),
    ]
    first = found[1]
    assert (first["job"], first["query"], first["batch"], first["engine_version"]) == (
        "clean",
        "q",
        7,
        "4.3.0",
    )
    assert (first["input_table"], first["input_after"], first["input_through"]) == ("table-uuid", 0, 4)
    assert json.loads(found[2]["input_to"]) == {"t": {"0": 5}}
    assert json.loads(found[2]["problems"]) == ["late"]


# Files


def test_files_of_a_partitioned_queue(url):
    table = make_table(
        url,
        schema="id BIGINT, dt DATE, h INT",
        partition_by=["dt", "h"],
        options={"bucket": "2", "bucket-key": "id", "write-only": "true"},
    )
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
    for _ in range(2):
        table.append(
            pa.table(
                {"id": [1, 2, 3, 4], "dt": [days[0]] * 2 + [days[1]] * 2, "h": pa.array([5] * 4, pa.int32())}
            )
        )
    files = table.system("files")
    planned = [f for split in table.scan().plan().splits for f in split.files]
    root = table.context.storage.url
    assert sorted(files["file_path"].to_pylist()) == sorted(f"{root.rstrip('/')}/{f.path}" for f in planned)
    assert set(files["partition"].to_pylist()) == {"dt=2026-01-01/h=5", "dt=2026-01-02/h=5"}
    assert sum(files["record_count"].to_pylist()) == 8
    assert set(files["file_source"].to_pylist()) == {"APPEND"}
    assert set(files["total_buckets"].to_pylist()) == {2}
    partitions = table.system("partitions").to_pylist()
    assert [(p["partition"], p["record_count"], p["total_buckets"]) for p in partitions] == [
        ("dt=2026-01-01/h=5", 4, 2),
        ("dt=2026-01-02/h=5", 4, 2),
    ]
    buckets = table.system("buckets").to_pylist()
    assert sum(b["file_count"] for b in buckets) == len(planned)
    assert sum(b["file_size_in_bytes"] for b in buckets) == sum(f.size for f in planned)
    assert max(b["last_update_time"] for b in buckets) == max(files["creation_time"].to_pylist())
    manifests = table.system("manifests").to_pylist()
    assert [m["list"] for m in manifests] == ["base", "delta"]
    assert json.loads(manifests[0]["max_partition_stats"]) == {"dt": "2026-01-02", "h": 5}


def test_only_live_files(table):
    table.append(rows(0, 3))
    table.overwrite(rows(5, 2))
    assert _column(table, "files", "record_count") == [2]
    assert _column(table, "files", "partition") == [""]
    assert _column(table, "partitions", "file_count") == [1]
    assert _column(table.at(1), "files", "record_count") == [3]
    assert _column(table, "manifests", "num_deleted_files") == [0, 1]


def test_statistics_are_json_whatever_the_type(url):
    table = make_table(
        url,
        schema="s STRING, d DECIMAL(20, 2), day DATE, t TIMESTAMP(6), z TIMESTAMP(3) WITH LOCAL TIME ZONE, b BYTES, "
        "f DOUBLE, ok BOOLEAN, l ARRAY<INT>",
    )
    row = {
        "s": 'a "\\\n\u00e9',
        "d": "-12.50",
        "day": dt.date(2026, 1, 31),
        "t": dt.datetime(2026, 1, 31, 12, 0, 0, 5),
        "z": dt.datetime(2026, 1, 31, 12, 0, tzinfo=dt.UTC),
        "b": b"\x01",
        "f": 1.5,
        "ok": True,
        "l": [1],
    }
    table.append([{**row, "d": Decimal(row["d"])}])
    (low,) = _json(table, "files", "min_value_stats")
    assert low == {
        "s": row["s"],
        "d": "-12.50",
        "day": "2026-01-31",
        "t": "2026-01-31 12:00:00.000005",
        "z": "2026-01-31 12:00:00.000+00:00",
        "b": None,
        "f": 1.5,
        "ok": True,
        "l": None,
    }
    (nulls,) = _json(table, "files", "null_value_counts")
    assert nulls == {**dict.fromkeys(low, 0), "l": nulls["l"]}


def test_statistics_follow_the_columns_through_schema_changes(table):
    table.append(rows(0, 2))
    table.alter().rename_column("v", "w").add_column("n", "INT").apply()
    table.append(pa.table({"id": [7], "w": ["x"], "n": pa.array([1], pa.int32())}))
    table.append(pa.table({"id": [8], "w": ["y"]}))
    assert _json(table, "files", "min_value_stats") == [
        {"id": 0, "w": "v0", "n": None},
        {"id": 7, "w": "x", "n": 1},
        {"id": 8, "w": "y", "n": None},
    ]
    assert [counts["n"] for counts in _json(table, "files", "null_value_counts")] == [2, 0, 1]


def test_chosen_columns_and_a_filter(table):
    for start in (0, 3):
        table.append(rows(start, 1 + start))
    view = View(table.context, table.snapshot, table.schema)
    assert read_system_table(view, "files", ["bucket", "record_count"]).to_pydict() == {
        "bucket": [0, 0],
        "record_count": [1, 4],
    }
    with pytest.raises(SchemaError, match="file_pat"):
        read_system_table(view, "files", ["file_pat"])
    fields, files = system_table("files").fields, table.system("files")
    assert select(files, fields, filter="record_count > 1", columns=["record_count"]).to_pylist() == [
        {"record_count": 4}
    ]
    assert select(files, fields, limit=1).num_rows == 1
    with pytest.raises(PredicateError):
        select(files, fields, filter="nothing = 1")


# What refers to it


def test_tags(table):
    table.append(rows(0, 2))
    table.create_tag("good")
    table.create_tag("short", retained="36 h")
    table.create_savepoint()
    found = table.system("tags").to_pylist()
    assert [(t["tag_name"], t["snapshot_id"], t["record_count"]) for t in found] == [
        ("good", 1, 2),
        ("short", 1, 2),
    ]
    assert [t["time_retained"] for t in found] == [None, "PT36H"]
    assert found[0]["create_time"] is None
    assert abs(found[1]["create_time"] - dt.datetime.now()) < dt.timedelta(minutes=5)


def test_savepoints_and_consumers(table):
    table.append(rows(0, 2))
    first = table.create_savepoint()
    table.append(rows(2, 1))
    table.create_savepoint()
    table.delete_savepoint(2)
    assert table.system("savepoints").to_pylist() == [
        {
            "savepoint_id": 1,
            "saved_snapshot_id": 1,
            "schema_id": 0,
            "save_time": first.save_time,
            "record_count": 2,
            "full_manifest_list": first.full_manifest_list,
            "problem": None,
        }
    ]
    record_consumer(table.context, "etl", Consumer(2))
    (etl,) = table.system("consumers").to_pylist()
    assert (etl["consumer_id"], etl["next_snapshot_id"], etl["snapshots_behind"], etl["rows_behind"]) == (
        "etl",
        2,
        1,
        1,
    )


def test_branches(table):
    for start in range(3):
        table.append(rows(start, 1))
    storage = table.context.storage
    storage.put("branch/branch-fix/schema/schema-0", storage.get("schema/schema-0"))
    storage.put("branch/branch-fix/snapshot/snapshot-2", storage.get("snapshot/snapshot-2"))
    (fix,) = table.system("branches").to_pylist()
    assert (fix["branch_name"], fix["first_snapshot_id"], fix["latest_snapshot_id"]) == ("fix", 2, 2)
    assert fix["record_count"] == 2
    assert _column(table.branch("fix"), "snapshots", "snapshot_id") == [2]
    assert len(_column(table.branch("fix"), "files", "file_path")) == 2


@pytest.mark.parametrize("name", ["tags", "savepoints", "branches", "consumers"])
def test_what_is_of_now_has_no_past(table, name):
    table.append(rows(0, 1))
    with pytest.raises(InvalidInputError, match=f"'{name}' tells what there is now"):
        table.at(1).system(name)


# Tables of others, and all tables


def _foreign():
    for place in sorted(FIXTURES.glob("*/*/warehouse/*.db/*")):
        yield pytest.param(place, id="/".join(place.parts[-5:-3]))


@pytest.mark.parametrize("place", first_short(_foreign(), 10))
def test_tables_that_others_wrote(place):
    lake = anabranch.connect(str(place.parents[1]))
    try:
        table = lake.table(f"{place.parent.name.removesuffix('.db')}.{place.name}")
        expected = table.scan().plan()
    except UnsupportedFeatureError:
        return
    for name in SYSTEM_TABLES:
        table.system(name)
    assert table.system("files").num_rows == expected.files.height
    assert sum(_column(table, "partitions", "record_count")) == expected.row_count
    for column in ("null_value_counts", "min_value_stats", "max_value_stats"):
        for found in _json(table, "files", column):
            assert set(found) == {f.name for f in table.schema.fields}


def test_all_tables_of_a_lake(url):
    lake = anabranch.connect(url)
    empty = lake.create_table("a.empty", "id BIGINT", partition_by=())
    table = lake.create_table("b.full", "id BIGINT, dt DATE", partition_by=["dt"])
    for start in range(2):
        table.append(pa.table({"id": [start, start], "dt": [dt.date(2026, 1, 1)] * 2}))
    table.overwrite(pa.table({"id": [9], "dt": [dt.date(2026, 1, 1)]}))
    lake.create_table("b.broken", "id BIGINT").context.storage.put("schema/schema-0", b"{")
    found = {r["table_name"]: r for r in lake.system("tables").to_pylist()}
    assert list(found) == ["empty", "broken", "full"]
    full = found["full"]
    assert (full["database_name"], full["partitioned"], full["primary_key"]) == ("b", True, False)
    assert (full["record_count"], full["file_count"], full["latest_snapshot_id"]) == (1, 1, 3)
    assert full["file_size_in_bytes"] == sum(_column(table, "files", "file_size_in_bytes"))
    assert abs(full["last_file_creation_time"] - table.snapshot.time_millis) < 300_000
    assert full["uuid"] == table.table_uuid
    assert (found["empty"]["record_count"], found["empty"]["uuid"]) == (0, empty.table_uuid)
    assert found["broken"]["record_count"] is None
    assert "schema-0" in found["broken"]["problem"]


@pytest.mark.long
def test_200_000_files_take_less_than_two_seconds(url):
    table = make_table(url, schema="id BIGINT NOT NULL, v STRING, x DOUBLE, p INT", partition_by=["p"])
    types = [f.type for f in table.schema.fields]
    for part in range(20):
        files = []
        for k in range(part * 10_000, (part + 1) * 10_000):
            low, high = (
                with_arity(4, encode_row(types, (k * 1000 + n, "abc", 0.5, k % 200))) for n in (0, 999)
            )
            meta = DataFileMeta(
                f"data-{k}-0.parquet", 4_000_000, 1000, SimpleStats(low, high, (0,) * 4), 0, 999, 0
            )
            files.append(CommitMessage(with_arity(1, encode_row(types[3:], (k % 200,))), 0, -1, (meta,)))
        table.commit(Append(files))
    cold = anabranch.Table(replace(table.context, cache=MetadataCache()))
    started = time.perf_counter()
    assert cold.system("files").num_rows == 200_000
    assert time.perf_counter() - started < 2


class TestInParts:
    """Many files are handed out in parts: the rows are those of the whole, whatever was deleted or came back."""

    @pytest.fixture
    def moved(self, url):
        """A table with files that were compacted, overwritten, rolled back and added again, in many manifests."""
        options = {"manifest.merge-min-count": "1000", "write-only": "true"}
        table = anabranch.connect(url).create_table(
            "db.moved", "id BIGINT, p STRING", partition_by="p", options=options
        )
        for number in range(12):
            table.append(pa.table({"id": [number, number], "p": ["a", "b"]}))
        table.overwrite(pa.table({"id": [100], "p": ["a"]}), {"p": "a"})
        table.rollback(6)
        table.append(pa.table({"id": [200], "p": ["c"]}))
        return table

    @pytest.mark.parametrize("part", [1, 2, 5, 1000])
    @pytest.mark.parametrize("columns", [None, ["file_path", "record_count"], ["min_value_stats"]])
    def test_parts_are_the_whole(self, moved, monkeypatch, part, columns):
        monkeypatch.setattr("anabranch.system_tables.files._PART", part)
        whole = moved.system("files") if columns is None else moved.system("files").select(columns)
        assert moved.system_batches("files", columns=columns).read_all().equals(whole.combine_chunks())
        assert whole.num_rows == 13

    def test_filter_and_limit(self, moved, monkeypatch):
        monkeypatch.setattr("anabranch.system_tables.files._PART", 2)
        paths = moved.system("files")["file_path"].to_pylist()
        few = moved.system_batches("files", columns=["file_path"], limit=4).read_all()
        assert few["file_path"].to_pylist() == paths[:4]
        in_c = moved.system_batches("files", "partition = 'p=c'", ["partition"]).read_all()
        assert in_c["partition"].to_pylist() == ["p=c"]
        assert moved.system_batches("files", limit=0).read_all().num_rows == 0
        assert moved.system_batches("snapshots", limit=2).read_all().num_rows == 2

    def test_a_limit_reads_few_manifests(self, url):
        options = {"manifest.merge-min-count": "1000", "write-only": "true"}
        table = anabranch.connect(url).create_table("db.many", "id BIGINT", options=options)
        for number in range(40):
            table.append(pa.table({"id": [number]}))
        with pytest.MonkeyPatch.context() as patch, anabranch.requests() as asked:
            patch.setattr("anabranch.system_tables.files._PART", 4)
            assert through(table).system_batches("files", limit=3).read_all().num_rows == 3
        assert asked.counts["read"] < 15

    def test_what_is_refused(self, moved):
        with pytest.raises(SchemaError):
            moved.system_batches("files", columns=["none"])
        with pytest.raises(NotFoundError):
            moved.system_batches("file")
