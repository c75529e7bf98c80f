"""Columns that tell where rows come from: only when asked by name, right whatever happened to the files."""

import datetime as dt

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import SchemaError
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

ALL = ["_file", "_row_position", "_partition", "_bucket", "_snapshot_added", "_commit_time"]


@pytest.fixture
def table(tmp_path):
    made = make_table(
        tmp_path,
        schema="id BIGINT NOT NULL, v STRING, dt DATE",
        partition_by="dt",
        options={"bucket": "2", "bucket-key": "id"},
    )
    for day in (1, 2):
        made.append([{"id": n, "v": f"v{n}", "dt": dt.date(2026, 1, day)} for n in range(20)])
    return made


def test_they_are_not_there_unless_they_are_named(table):
    assert table.scan().to_arrow().schema.names == ["id", "v", "dt"]
    scan = table.scan(columns=["_bucket", "id", "_file"])
    assert scan.to_arrow().schema == scan.arrow_schema
    assert scan.arrow_schema.names == ["_bucket", "id", "_file"]


def test_each_row_is_where_they_say(table):
    found = table.scan(columns=["id", "dt", *ALL]).to_arrow()
    files = {f["file_path"]: f for f in table.system("files").to_pylist()}
    assert set(found["_file"].to_pylist()) == set(files)
    times = {s.id: s.time_millis for s in table.snapshots()}
    for row in found.to_pylist():
        file = files[row["_file"]]
        assert (row["_partition"], row["_bucket"]) == (file["partition"], file["bucket"])
        assert row["_partition"] == f"dt={row['dt']}"
        assert row["_snapshot_added"] == row["dt"].day
        assert row["_commit_time"].timestamp() * 1000 == pytest.approx(times[row["_snapshot_added"]])
    for path, some in pl.DataFrame(found).group_by("_file", maintain_order=True):
        (name,) = path
        raw = pa.parquet.read_table(name.removeprefix("file://"), partitioning=None)
        assert some["_row_position"].to_list() == list(range(raw.num_rows))
        assert some["id"].to_list() == raw["id"].to_pylist()


@pytest.mark.parametrize(
    "asked",
    first_short([["_row_position"], ["_row_position", "id", "_file"], ["_file"], ["_bucket", "v"]], 2),
)
@pytest.mark.parametrize(
    "filter", [None, "id >= 15", "v = 'v3'", "dt = DATE '2026-01-02' AND id < 3", "id < 0"]
)
def test_filters_and_limits_keep_the_rows_and_their_places(table, asked, filter):
    whole = table.scan(columns=["id", "v", "dt", *ALL]).to_arrow()
    kept = {(row["id"], row["dt"]) for row in table.scan(filter).to_arrow().to_pylist()}
    expected = [row for row in whole.to_pylist() if (row["id"], row["dt"]) in kept]
    found = table.scan(filter, columns=asked)
    assert found.to_arrow().to_pylist() == [{name: row[name] for name in asked} for row in expected]
    assert found.count() == len(expected)
    for limit in (0, 1, 5):
        assert table.scan(filter, asked, limit).to_arrow().to_pylist() == [
            {name: row[name] for name in asked} for row in expected[:limit]
        ]


def test_after_a_compaction_it_is_the_compaction(table):
    table.append([{"id": n, "v": "x", "dt": dt.date(2026, 1, 1)} for n in range(20)])
    table.compact(full=True)
    found = table.scan(columns=["_snapshot_added", "_row_position"]).to_arrow()
    assert set(found["_snapshot_added"].to_pylist()) == {2, 4}, "the other partition was left as it is"
    assert table.at(2).scan(columns="_snapshot_added").to_arrow()["_snapshot_added"].unique().to_pylist() == [
        1,
        2,
    ]


def test_what_has_expired_is_not_known(table):
    table.append([{"id": 99, "v": "x", "dt": dt.date(2026, 1, 3)}])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=dt.datetime(2100, 1, 1))
    found = table.scan(columns=["id", "_snapshot_added", "_commit_time"]).to_arrow().to_pylist()
    left = {s.id for s in table.snapshots()}
    assert 1 not in left
    assert {row["_snapshot_added"] for row in found} == {None} | left
    assert {row["_commit_time"] is None for row in found if row["_snapshot_added"] is None} == {True}
    assert [row["_snapshot_added"] for row in found if row["id"] == 99] == [3]


def test_large_files_are_told_batch_by_batch(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 200_000))
    positions = table.scan("id % 50000 = 49999", columns=["_row_position", "id"]).to_arrow()
    assert (
        positions["_row_position"].to_pylist()
        == positions["id"].to_pylist()
        == [49999, 99999, 149999, 199999]
    )


def test_a_column_of_the_user_s_is_never_hidden(tmp_path):
    table = make_table(tmp_path, schema="id BIGINT, _file STRING, _row_position STRING")
    table.append([{"id": 1, "_file": "mine", "_row_position": "here"}])
    assert table.scan(columns=["_file", "_bucket", "_row_position"]).to_arrow().to_pylist() == [
        {"_file": "mine", "_bucket": 0, "_row_position": "here"}
    ]
    assert table.scan("_file = 'mine'").count() == 1


def test_other_forms_have_them_too(table):
    scan = table.scan("id = 3", columns=["id", "_bucket"])
    assert scan.to_polars()["_bucket"].n_unique() == 1
    assert scan.to_polars(lazy=True).select("_bucket").collect().height == 2
    assert scan.to_duckdb().aggregate("count(_bucket)").fetchall() == [(2,)]
    assert scan.head(1).schema.names == ["id", "_bucket"]


def test_who_cannot_have_them_is_told(table, tmp_path):
    with pytest.raises(SchemaError, match="_files"):
        table.scan(columns=["_files"])
    with pytest.raises(SchemaError, match="twice"):
        table.scan(columns=["_file", "_file"])
    with pytest.raises(SchemaError):
        table.changes(0, columns=["_file"])


def test_evolved_columns_and_branches(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 2))
    table.alter().add_column("n", "INT").rename_column("v", "w").apply()
    table.append([{"id": 5, "w": "x", "n": 1}])
    found = table.scan("n IS NULL", columns=["w", "_row_position", "_snapshot_added"]).to_arrow().to_pylist()
    assert found == [
        {"w": "v0", "_row_position": 0, "_snapshot_added": 1},
        {"w": "v1", "_row_position": 1, "_snapshot_added": 1},
    ]
    table.create_tag("good")
    table.create_branch("b", tag="good")
    branch = anabranch.connect(str(tmp_path)).table("db.t$branch_b")
    branch.append([{"id": 6}])
    assert branch.scan("id = 6", columns=["_snapshot_added"]).count() == 1
