"""What was added between two moments, as changes, as a scan and in SQL: the same rows by every way."""

import datetime as dt
import random

import polars as pl
import pytest

import anabranch
from anabranch.arrow import reader
from anabranch.errors import InvalidInputError, NotFoundError, OptionError, SqlError, UnsupportedFeatureError
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


@pytest.fixture
def table(lake):
    """Five commits of two rows, ids 0 to 9, the fourth of them a compaction; a tag and a savepoint."""
    made = make_table(lake.url, schema="id BIGINT NOT NULL, v STRING")
    for n in range(3):
        made.append(rows(2 * n, 2))
        if n == 0:
            made.create_tag("good")
    made.compact(full=True)
    made.append(rows(6, 2))
    made.create_savepoint()
    made.append(rows(8, 2))
    return made


def between(table, text, key="incremental-between"):
    return table.with_options({key: text})


RANGES = [
    ("0,1", [0, 1]),
    ("1,3", [2, 3, 4, 5]),
    ("2,6", list(range(4, 10))),
    ("3,4", []),
    ("4,4", []),
    ("good,5", list(range(2, 8))),
]


@pytest.mark.parametrize(("text", "expected"), first_short(RANGES, 3))
def test_every_way_gives_the_same_rows(lake, table, text, expected):
    start, end = (int(end) if end.isdecimal() else end for end in text.split(","))
    assert sorted(table.changes(start, end).to_arrow()["id"].to_pylist()) == expected
    view = between(table, text)
    assert ids_of(view) == expected
    assert view.scan().count() == len(expected)
    assert ids_of(view, filter="id >= 4 AND v <> 'v5'") == [i for i in expected if i >= 4 and i != 5]
    assert view.scan("id >= 4 AND v <> 'v5'").count() == len([i for i in expected if i >= 4 and i != 5])
    found = lake.sql(
        f"SELECT id FROM db.t /*+ OPTIONS('incremental-between' = '{text}') */ WHERE v LIKE 'v%' ORDER BY id"
    )
    assert [row["id"] for row in found.collect()] == expected
    call = f"paimon_incremental_query ('db.t', '{start}', {end if isinstance(end, int) else repr(end)})"
    assert sorted(row["id"] for row in lake.sql(f"SELECT x.id FROM {call} AS x").collect()) == expected
    assert sorted(view.scan().to_polars(lazy=True).select("id").collect()["id"]) == expected
    assert view.scan(limit=1).to_arrow().num_rows == min(1, len(expected))


@pytest.mark.parametrize(
    "call",
    first_short(
        [
            "('db.t', 1)",
            "(db.t, 1, 2)",
            "('db.t', 1 + 1, 2)",
            "('db..t', 1, 2)",
            "('', 1, 2)",
            "('db.t', 'it''s', 2)",
        ],
        2,
    ),
)
def test_a_function_that_is_not_understood_says_how(lake, table, call):
    with pytest.raises(SqlError, match="paimon_incremental_query") as found:
        lake.sql(f"SELECT * FROM paimon_incremental_query{call}")
    assert "incremental-between" in str(found.value)


def test_savepoints_and_names_name_moments(table):
    (savepoint,) = table.savepoints()
    assert ids_of(between(table, f"good,savepoint.{savepoint.id}")) == list(range(2, 8))
    assert sorted(table.changes("snapshot.2", "snapshot.5").to_arrow()["id"].to_pylist()) == [4, 5, 6, 7]
    assert sorted(table.changes("good").to_arrow()["id"].to_pylist()) == list(range(2, 10))


def test_times_stand_for_the_newest_snapshot_then(table):
    times = {s.id: s.time_millis for s in table.snapshots()}
    key = "incremental-between-timestamp"
    assert ids_of(between(table, f"{times[1]},{times[6]}", key)) == list(range(2, 10))
    assert ids_of(between(table, f"0,{times[6] + 1000}", key)) == list(range(10))
    assert ids_of(between(table, "1970-01-01 00:00:00,1970-01-02 00:00:00", key)) == []
    now = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert ids_of(between(table, f"1970-01-01 00:00:00, {now:%Y-%m-%d %H:%M:%S}", key)) == list(range(10))


def test_only_files_that_were_added_are_read(table, monkeypatch):
    opened = []
    read = reader._Scan._open
    monkeypatch.setattr(
        reader._Scan, "_open", lambda self, file: opened.append(file.path) or read(self, file)
    )
    assert ids_of(between(table, "5,6")) == [8, 9]
    assert len(opened) == 1
    assert between(table, "0,6").scan().count() == 10
    assert len(opened) == 1, "whole files are counted by metadata"
    assert ids_of(between(table, "0,6"), filter="id = 3") == [3]
    assert len(opened) == 2, "statistics leave out the others"


@pytest.mark.parametrize(
    "text",
    first_short(["5", "5,", "1,2,3", "3,1", "0,99", "-1,2", ""], 3),
)
def test_what_is_no_range(table, text):
    with pytest.raises((OptionError, NotFoundError)):
        between(table, text).scan()


def test_what_does_not_go_together(table):
    with pytest.raises(OptionError, match="one of them"):
        table.with_options({"incremental-between": "1,2", "scan.tag-name": "good"}).scan()
    with pytest.raises(OptionError, match="one of them"):
        table.with_options({"incremental-between": "1,2", "incremental-between-timestamp": "0,1"}).scan()
    with pytest.raises(NotFoundError):
        between(table, "nope,2").scan()
    with pytest.raises(InvalidInputError):
        table.changes(3, 1)
    with pytest.raises(InvalidInputError, match="knows no SparkSession"):
        between(table, "1,2").scan().to_spark()


def test_an_overwrite_in_between_is_said_or_passed_over(table):
    table.overwrite(rows(100, 1))
    table.append(rows(200, 1))
    with pytest.raises(OptionError, match="scan.on-overwrite"):
        between(table, "5,8").scan().to_arrow()
    options = {"incremental-between": "5,8"}
    assert ids_of(table.with_options({**options, "scan.on-overwrite": "skip"})) == [8, 9, 200]
    assert ids_of(table.with_options({**options, "scan.on-overwrite": "added"})) == [8, 9, 100, 200]
    with pytest.raises(OptionError, match=r"table.changes\(5, 8\)"):
        table.with_options({**options, "scan.on-overwrite": "changes"}).scan().to_arrow()


def test_what_has_expired_is_said_to_be_gone(table):
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=dt.datetime(2100, 1, 1))
    with pytest.raises(NotFoundError):
        between(table, "0,6").scan().to_arrow()


def test_columns_that_came_later_branches_and_where_rows_are(lake, table):
    table.alter().add_column("n", "INT").rename_column("v", "w").apply()
    table.append([{"id": 50, "w": "x", "n": 1}])
    found = (
        between(table, "5,7")
        .scan("n IS NULL OR id = 50", columns=["id", "w", "n", "_snapshot_added"])
        .to_arrow()
    )
    assert found.to_pylist() == [
        {"id": 8, "w": "v8", "n": None, "_snapshot_added": 6},
        {"id": 9, "w": "v9", "n": None, "_snapshot_added": 6},
        {"id": 50, "w": "x", "n": 1, "_snapshot_added": 7},
    ]
    table.create_branch("b", tag="good")
    table.branch("b").append(rows(70, 1), schema="merge")
    assert ids_of(between(table.branch("b"), "1,2")) == [70]
    text = "SELECT * FROM db.t /*+ OPTIONS('branch' = 'b', 'incremental-between' = '1,2') */ AS x"
    assert [row["id"] for row in lake.sql(text).collect()] == [70]


def test_hints_that_are_not_understood_are_spark_s(lake, table):
    for text in (
        "SELECT /*+ OPTIONS('a' = 'b') */ * FROM db.t",
        "SELECT * FROM db.t /*+ BROADCAST(t) */",
        "SELECT * FROM db.t /*+ OPTIONS('incremental-between') */",
        "SELECT * FROM db.t /*+ OPTIONS() */",
        "SELECT * FROM db.t /*+ OPTIONS('scan.tag-name' = 'good'",
    ):
        with pytest.raises(UnsupportedFeatureError, match="hints"):
            lake.sql(text)
    with pytest.raises(OptionError, match="scan.tag-name"):
        lake.sql("SELECT * FROM db.t /*+ OPTIONS('scan.tagname' = 'good') */")
    assert lake.sql("SELECT * FROM db.t /*+ OPTIONS('scan.tag-name' = 'good') */").to_arrow().num_rows == 2


@pytest.mark.long
def test_by_chance_the_same_rows_as_changes(lake):
    chance = random.Random(25)
    table = lake.create_table(
        "db.r", "id BIGINT, p INT", partition_by="p", options={"bucket": "2", "bucket-key": "id"}
    )
    for n in range(8):
        table.append([{"id": 10 * n + i, "p": chance.randrange(3)} for i in range(chance.randrange(1, 6))])
        if chance.random() < 0.3:
            table.compact(full=True)
    newest = table.snapshot.id
    for _ in range(8):
        start = chance.randrange(newest + 1)
        end = chance.randrange(start, newest + 1)
        asked = chance.choice([None, "p = 1", "id % 2 = 0", "p = 1 AND id > 50"])
        expected = sorted(table.changes(start, end, filter=asked).to_arrow()["id"].to_pylist())
        scan = between(table, f"{start},{end}").scan(asked)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
        assert scan.count() == len(expected)
        assert sorted(pl.DataFrame(scan)["id"]) == expected
