"""Tables made of rows: by values, wholly or not at all."""

import datetime as dt
from contextlib import suppress
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    AlreadyExistsError,
    InvalidInputError,
    SchemaError,
    StorageError,
)
from anabranch.lake import Lake
from anabranch.storage.local import LocalStorage
from tests.support.faults import FaultyStorage, lose_answer, no_space
from tests.support.tables import make_table, rows
from tests.table.data import ARROW, breaking, columns_of, files_below


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path / "w"))


class OneShot:
    """What has nothing but a stream of Arrow, to be taken once."""

    def __init__(self, table):
        self._reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        reader, self._reader = self._reader, None
        return reader.__arrow_c_stream__(requested_schema)


SOURCES = {
    "table": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": ARROW.to_reader,
    "batches": lambda: [ARROW.slice(0, 1).to_batches()[0], ARROW.slice(1).to_batches()[0]],
    "iterator of batches": lambda: iter(ARROW.to_batches(1)),
    "stream": lambda: OneShot(ARROW),
    "polars": lambda: pl.DataFrame(ARROW),
    "pandas": lambda: pd.DataFrame({"id": [1, 2], "v": ["a", None]}),
    "duckdb": lambda: duckdb.connect().from_arrow(ARROW),
    "rows": lambda: [{"id": 1, "v": "a"}, {"id": 2}],
    "iterator of rows": lambda: iter([{"id": 1, "v": "a"}, {"id": 2, "v": None}]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_table_is_made_of_whatever_has_rows(lake, kind):
    table = lake.create_table("db.t", data=SOURCES[kind]())
    assert columns_of(table) == {"id": "BIGINT", "v": "STRING"}
    assert table.scan().to_arrow().to_pylist() == ARROW.to_pylist()
    assert [s.commit_kind.value for s in table.snapshots()] == ["APPEND"]
    assert lake.table("db.t").schema == table.schema


def test_it_has_partitions_options_and_a_comment(lake):
    data = pl.DataFrame({"dt": [dt.date(2026, 1, 1), dt.date(2026, 1, 2)], "v": [1, 2]})
    table = lake.create_table(
        "db.t", data=data, partition_by="dt", options={"target-file-size": "1 MB"}, comment="made"
    )
    assert table.schema.partition_keys == ("dt",)
    assert (table.options["target-file-size"], table.schema.comment) == ("1 MB", "made")
    assert table.system("partitions").num_rows == 2
    queue = lake.create_table("db.q", data=data, options={"bucket": "2", "bucket-key": "v"})
    assert queue.scan("v = 2").to_arrow()["v"].to_pylist() == [2]


def test_a_schema_beside_the_data_is_the_one_of_the_table(lake):
    table = lake.create_table("db.t", "id INT NOT NULL, v STRING COMMENT 'text', more DOUBLE", data=ARROW)
    assert columns_of(table) == {"id": "INT NOT NULL", "v": "STRING", "more": "DOUBLE"}
    assert table.scan().to_arrow()["more"].to_pylist() == [None, None]


def test_types_hold_what_the_data_holds(lake):
    data = pa.table({
        "u8": pa.array([255], pa.uint8()),
        "u32": pa.array([2**32 - 1], pa.uint32()),
        "u64": pa.array([2**64 - 1], pa.uint64()),
        "half": pa.array(np.array([1.5], np.float16)),
        "words": pa.array(["a"]).dictionary_encode(),
        "views": pa.array(["x"], pa.string_view()),
        "large": pa.array([["x"]], pa.large_list(pa.large_string())),
        "inside": pa.array([{"n": 7}], pa.struct([("n", pa.uint16())])),
        "day": pa.array([dt.date(2026, 1, 1)], pa.date64()),
        "needed": pa.array([1], pa.int32()),
    }).cast(pa.schema([
        ("u8", pa.uint8()), ("u32", pa.uint32()), ("u64", pa.uint64()), ("half", pa.float16()),
        ("words", pa.dictionary(pa.int32(), pa.string())), ("views", pa.string_view()),
        ("large", pa.large_list(pa.large_string())), ("inside", pa.struct([("n", pa.uint16())])),
        ("day", pa.date64()), pa.field("needed", pa.int32(), nullable=False),
    ]))  # fmt: skip
    table = lake.create_table("db.t", data=data)
    assert columns_of(table) == {
        "u8": "SMALLINT",
        "u32": "BIGINT",
        "u64": "DECIMAL(20, 0)",
        "half": "FLOAT",
        "words": "STRING",
        "views": "STRING",
        "large": "ARRAY<STRING>",
        "inside": "ROW<n INT>",
        "day": "DATE",
        "needed": "INT NOT NULL",
    }
    (row,) = table.scan().to_arrow().to_pylist()
    assert row["u64"] == Decimal(2**64 - 1)
    assert (row["u8"], row["words"], row["inside"]) == (255, "a", {"n": 7})


def test_python_values_say_what_they_are(lake):
    zone = dt.timezone(dt.timedelta(hours=1))
    given = {
        "flag": True,
        "n": 2**40,
        "x": 1.5,
        "price": Decimal("12.50"),
        "raw": b"\0",
        "day": dt.date(2026, 1, 1),
        "at": dt.datetime(2026, 1, 1, 12),
        "seen": dt.datetime(2026, 1, 1, 12, tzinfo=zone),
        "tags": ["a"],
        "place": {"city": "Bonn", "zip": 53111},
    }
    table = lake.create_table("db.t", data=[given, dict.fromkeys(given)])
    assert columns_of(table) == {
        "flag": "BOOLEAN",
        "n": "BIGINT",
        "x": "DOUBLE",
        "price": "DECIMAL(4, 2)",
        "raw": "BYTES",
        "day": "DATE",
        "at": "TIMESTAMP(6)",
        "seen": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "tags": "ARRAY<STRING>",
        "place": "ROW<city STRING, zip BIGINT>",
    }
    first, second = table.scan().to_arrow().to_pylist()
    assert first == given
    assert set(second.values()) == {None}


def test_pandas_gives_its_index_and_times_that_lose_nothing(lake):
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2026-01-01 12:00:00.000001"]),
            "exact": pd.to_datetime(["2026-01-01 12:00:00.000000001"]),
            "kind": pd.Categorical(["a"]),
            "n": pd.array([None], dtype="Int32"),
        },
        index=pd.Index([7], name="key"),
    )
    table = lake.create_table("db.t", data=frame)
    assert columns_of(table) == {
        "key": "BIGINT",
        "at": "TIMESTAMP(6)",
        "exact": "TIMESTAMP(9)",
        "kind": "STRING",
        "n": "INT",
    }


BAD = {
    "nothing but nulls": lambda: [{"a": None}],
    "values of two kinds": lambda: [{"a": dt.date(2026, 1, 1)}, {"a": dt.datetime(2026, 1, 1)}],
    "text and numbers": lambda: [{"a": 1}, {"a": "x"}],
    "no column": list,
    "no rows": lambda: 7,
    "durations": lambda: pa.table({"a": pa.array([1], pa.duration("s"))}),
    "two of one name": lambda: pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
    "a later value": lambda: iter([{"a": 1}] * (1 << 16) + [{"a": "x"}]),
    "a reader that breaks": lambda: pa.RecordBatchReader.from_batches(ARROW.schema, breaking()),
}


@pytest.mark.parametrize("kind", BAD)
def test_nothing_is_left_of_a_table_of_bad_rows(tmp_path, kind):
    lake = anabranch.connect(str(tmp_path / "w"))
    lake.create_table("db.other", "a INT")
    before = sorted(files_below(tmp_path))
    with pytest.raises((SchemaError, pa.ArrowInvalid)):
        lake.create_table("new.t", data=BAD[kind]())
    assert lake.databases() == ["db"]
    with pytest.raises(SchemaError):
        lake.create_table("db.t", "a INT NOT NULL", data=[{"a": 1}, {"a": None}])
    assert lake.tables("db") == ["other"]
    assert sorted(files_below(tmp_path)) == before
    assert not (tmp_path / "w" / "db.db" / "t").exists()
    assert lake.create_table("db.t", data=ARROW).scan().count() == 2


@pytest.mark.parametrize(
    ("call", "where"),
    [("open_output", "*.parquet"), ("put_if_absent", "*schema-0"), ("put_many", "*"), ("put_if_absent", "*snapshot-1")],
)  # fmt: skip
def test_nothing_is_left_of_a_table_whose_rows_find_no_space(tmp_path, call, where):
    storage = LocalStorage(tmp_path)
    anabranch.connect(str(tmp_path)).create_table("db.other", "a INT")
    before = sorted(files_below(tmp_path))
    disk = FaultyStorage(storage, [no_space(call, where=where, times=10**6)])
    for name in ("db.t", "new.t"):
        with pytest.raises(StorageError, match="space"):
            Lake(disk).create_table(name, data=ARROW)
        assert sorted(files_below(tmp_path)) == before
    assert Lake(storage).databases() == ["db"]
    assert Lake(storage).create_table("db.t", data=ARROW).scan().count() == 2


def test_a_table_whose_rows_may_be_in_stays(tmp_path):
    storage = LocalStorage(tmp_path)
    lost = FaultyStorage(storage, [lose_answer("put_if_absent", where="*snapshot-1", times=10**6)])
    with suppress(anabranch.AnabranchError):
        Lake(lost).create_table("db.t", data=ARROW)
    assert Lake(storage).table("db.t").scan().count() == 2


def test_a_warehouse_that_is_a_table_takes_none(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    lake.create_table("db.t", "a INT")
    inside = anabranch.connect(str(tmp_path / "db.db" / "t"))
    before = files_below(tmp_path)
    with pytest.raises(InvalidInputError):
        inside.create_table("db.u", data=ARROW)
    assert files_below(tmp_path) == before


def test_an_existing_table_is_not_touched(lake):
    first = lake.create_table("db.t", data=ARROW)
    with pytest.raises(AlreadyExistsError):
        lake.create_table("db.t", data=ARROW)
    again = lake.create_table("db.t", data=ARROW, if_not_exists=True)
    assert again.snapshot == first.snapshot


def test_who_is_overtaken_takes_nothing_away(lake):
    def late():
        yield from ARROW.to_batches()
        lake.create_table("db.t", "id BIGINT").append([{"id": 7}])

    def stream():
        return pa.RecordBatchReader.from_batches(ARROW.schema, late())

    with pytest.raises(AlreadyExistsError):
        lake.create_table("db.t", data=stream())
    assert lake.table("db.t").scan().to_arrow().to_pylist() == [{"id": 7}]
    assert lake.table("db.t").verify(deep=True).problems == ()
    lake.drop_table("db.t")
    found = lake.create_table("db.t", data=stream(), if_not_exists=True)
    assert found.scan().to_arrow().to_pylist() == [{"id": 7}]


def test_without_columns_and_rows_there_is_no_table(lake):
    with pytest.raises(InvalidInputError, match="data=frame"):
        lake.create_table("db.t")


def test_a_commit_says_what_the_rows_were_read_from(lake):
    source = lake.create_table("db.s", data=ARROW)
    with lake.job("copy"):
        made = lake.create_table("db.t", data=source.scan())
    assert "db.s" in str(made.lineage.upstream())


# Columns that rows bring along


def test_memory_and_object_like_stores_make_tables_of_rows_too():
    lake = anabranch.connect("memory://data-in")
    assert lake.create_table("db.t", data=rows(0, 3)).scan().count() == 3


@pytest.mark.parametrize("last", [None, {"a": 1}], ids=["none", "one"])
def test_nested_values_that_are_missing_in_thousands_of_rows(tmp_path, last):
    columns = "id BIGINT, l ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x DOUBLE, l ARRAY<FLOAT>>"
    table = make_table(tmp_path, schema=columns)
    empty = {"l": None, "m": None, "r": None}
    wanted = [{"id": n, **empty} for n in range(6000)]
    wanted[-1]["m"] = None if last is None else [*last.items()]
    table.append(wanted)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == wanted
    for start in range(0, 6000, 2000):
        table.append(wanted[start : start + 2000])
    table.compact(full=True)
    assert table.scan().count() == 12_000
    assert table.scan(columns=["l"]).to_arrow()["l"].null_count == 12_000
