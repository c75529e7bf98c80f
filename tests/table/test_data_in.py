"""Tables made of rows, and rows that bring columns along: by values, wholly or not at all."""

import datetime as dt
import os
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
    CommitConflictError,
    InvalidInputError,
    OptionError,
    SchemaError,
)
from tests.support.tables import make_table, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path / "w"))


def columns_of(table):
    return {f.name: str(f.type) for f in table.schema.fields}


def files_below(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


ARROW = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", None]})


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
    "a reader that breaks": lambda: pa.RecordBatchReader.from_batches(ARROW.schema, _breaking()),
}


def _breaking():
    yield from ARROW.to_batches()
    raise SchemaError("the source broke")


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
    assert sorted(os.listdir(tmp_path / "w" / "db.db")) == sorted(os.listdir(tmp_path / "w" / "db.db"))
    assert not (tmp_path / "w" / "db.db" / "t").exists()
    assert lake.create_table("db.t", data=ARROW).scan().count() == 2


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


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "w", schema="id INT NOT NULL, v VARCHAR(3), x FLOAT")


def test_columns_are_added_and_widened(table):
    table.append([{"id": 1, "v": "a"}])
    table.append(
        pa.table({"id": [2**40], "v": ["longer"], "x": pa.array([0.1], pa.float64()), "more": [[1]]}),
        schema="merge",
    )
    assert columns_of(table) == {
        "id": "BIGINT NOT NULL",
        "v": "STRING",
        "x": "DOUBLE",
        "more": "ARRAY<BIGINT>",
    }
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "v": "a", "x": None, "more": None},
        {"id": 2**40, "v": "longer", "x": 0.1, "more": [1]},
    ]
    assert len(table.schemas()) == 2, "one version for all of it"
    assert table.verify(deep=True).problems == ()


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"id": [7], "v": ["abc"]}),
        pd.DataFrame({"id": [7], "v": ["abc"]}),
        pl.DataFrame({"id": [7], "v": ["abc"]}),
        [{"id": 7, "v": "abc"}],
    ],
)
def test_nothing_is_widened_for_values_that_fit(table, data):
    before = table.schema
    table.append(data, schema="merge")
    assert table.schema == before
    assert table.scan().to_arrow()["id"].to_pylist() == [7]


def test_no_rows_need_no_columns(table):
    before = table.schema
    for nothing in ([], iter(()), pa.table({"id": pa.array([], pa.int64())})):
        table.append(nothing, schema="merge")
    assert (table.schema, table.scan().count()) == (before, 0)


def test_of_a_stream_the_types_count(table):
    table.append(pa.table({"id": [7], "new": ["x"]}).to_reader(), schema="merge")
    assert columns_of(table)["id"] == "BIGINT NOT NULL"
    assert table.scan().to_arrow()["new"].to_pylist() == ["x"]


def test_rows_that_lack_a_nullable_column_append_as_they_are(table):
    table.append([{"id": 1}])
    table.append(pl.DataFrame({"id": [2]}), schema="merge")
    assert table.scan().to_arrow()["v"].to_pylist() == [None, None]
    with pytest.raises(SchemaError, match="NOT NULL"):
        table.append([{"v": "x"}], schema="merge")


def test_inner_fields_are_merged_too(lake):
    table = lake.create_table("db.t", "id INT, place ROW<city STRING, n INT>, l ARRAY<ROW<a INT>>")
    table.append(
        [{"id": 1, "place": {"city": "Bonn", "n": 2**40, "zip": "5"}, "l": [{"a": 1, "b": True}]}],
        schema="merge",
    )
    assert columns_of(table) == {
        "id": "INT",
        "place": "ROW<city STRING, n BIGINT, zip STRING>",
        "l": "ARRAY<ROW<a INT, b BOOLEAN>>",
    }


REFUSED = [
    (pa.table({"id": ["x"]}), "add_column\\('id_2', 'STRING'\\)"),
    (pa.table({"id": [1.5]}), "widen_column\\('id', 'DOUBLE'\\)"),
    (pa.table({"ID": [1]}), "rename the column of the data to 'id'"),
    (pa.table({"id": pa.array([1], pa.int32()), "gone": pa.nulls(1)}), "leave it out"),
    (pa.table({"id": pa.array([1], pa.int32()), "new": [1], "NEW": [2]}), "upper and lower case"),
]


@pytest.mark.parametrize(("data", "mends"), REFUSED)
def test_what_would_surprise_is_refused_with_the_call_that_does_it(table, data, mends):
    before = table.schema
    with pytest.raises(SchemaError, match=mends):
        table.append(data, schema="merge")
    assert (table.schema, table.snapshot) == (before, None)


def test_keys_keep_their_types(lake):
    table = lake.create_table(
        "db.t", "p INT, k INT, v INT", partition_by="p", options={"bucket": "2", "bucket-key": "k"}
    )
    table.append(pl.DataFrame({"p": [1], "k": [2], "v": [2**40]}).lazy().collect(), schema="merge")
    table.append(pa.table({"p": [1], "k": [3], "v": [4]}).to_reader(), schema="merge")
    assert columns_of(table) == {"p": "INT", "k": "INT", "v": "BIGINT"}
    with pytest.raises(SchemaError):
        table.append(pa.table({"p": [2**40], "k": [3], "v": [4]}), schema="merge")


def test_bad_rows_leave_the_schema_as_it_was(table, tmp_path):
    before, files = table.schema, files_below(tmp_path)
    broken = pa.RecordBatchReader.from_batches(ARROW.schema, _breaking())
    with pytest.raises((SchemaError, pa.ArrowInvalid)):
        table.append(broken, schema="merge")
    with pytest.raises(SchemaError):
        table.append([{"id": 1, "new": 1}, {"id": None, "new": 2}], schema="merge")
    assert (table.schema, table.snapshot) == (before, None)
    assert sorted(files_below(tmp_path)) == sorted(files)


def test_others_who_change_the_schema_meanwhile(table, monkeypatch, tmp_path):
    from anabranch.table import writing

    other = anabranch.connect(str(tmp_path / "w")).table("db.t")
    once = iter([1])
    convert = writing.convert

    def meanwhile(data, fields):
        yield from convert(data, fields)
        for _ in once:
            other.alter().add_column("new", "STRING").add_column("theirs", "INT").apply()

    monkeypatch.setattr(writing, "convert", meanwhile)
    table.append([{"id": 1, "new": "x"}], schema="merge")
    assert list(columns_of(table)) == ["id", "v", "x", "new", "theirs"]
    assert table.scan(columns=["id", "new"]).to_arrow().to_pylist() == [{"id": 1, "new": "x"}]
    once = iter([1])
    monkeypatch.setattr(
        writing,
        "convert",
        lambda data, fields: _then(convert(data, fields), once, other.alter().add_column("q", "INT")),
    )
    with pytest.raises(CommitConflictError, match="append the rows again"):
        table.append(pa.table({"id": pa.array([2], pa.int32()), "q": [1]}).to_reader(), schema="merge")
    assert table.scan().count() == 1
    assert table.verify(deep=True).problems == ()


def _then(batches, once, alter):
    yield from batches
    for _ in once:
        alter.apply()


def test_options_of_others_do_not_stand_in_the_way(table, tmp_path, monkeypatch):
    from anabranch.table import writing

    alter = table.alter().set_option("target-file-size", "1 MB")
    convert = writing.convert
    monkeypatch.setattr(writing, "convert", lambda d, f: _then(convert(d, f), iter([1]), alter))
    table.append(pa.table({"id": pa.array([2], pa.int32()), "q": [1]}).to_reader(), schema="merge")
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": None, "x": None, "q": 1}]
    assert table.options["target-file-size"] == "1 MB"


def test_on_a_branch_the_columns_are_the_branch_s(table):
    table.append([{"id": 1}])
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").append([{"id": 2, "note": "x"}], schema="merge")
    assert "note" not in columns_of(table)
    assert table.branch("fix").scan("note = 'x'").count() == 1


def test_the_past_takes_no_columns_and_the_word_is_merge(table):
    table.append([{"id": 1}])
    with pytest.raises(InvalidInputError, match="the past cannot be written"):
        table.at(1).append([{"id": 2, "n": 1}], schema="merge")
    with pytest.raises(InvalidInputError, match="schema='merge'"):
        table.append([{"id": 2}], schema="overwrite")
    with pytest.raises(OptionError, match="schema='merge'"):
        table.with_options({"mergeSchema": "true"})


def test_memory_and_object_like_stores_make_tables_of_rows_too():
    lake = anabranch.connect("memory://data-in")
    assert lake.create_table("db.t", data=rows(0, 3)).scan().count() == 3


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [{1, 2}]}, schema={"a": pl.Object}),
        pd.DataFrame({"a": pd.period_range("2026-01", periods=1, freq="M")}),
        pd.DataFrame({"a": pd.interval_range(0, 1)}),
    ],
    ids=["objects", "periods", "intervals"],
)
def test_what_would_lose_its_meaning_is_refused(tmp_path, frame):
    """Polars gives addresses of objects, pandas ordinals of periods."""
    lake = anabranch.connect(str(tmp_path))
    with pytest.raises(anabranch.SchemaError, match="'a'"):
        lake.create_table("db.t", data=frame)
    assert lake.databases() == []
    if isinstance(frame, pl.DataFrame):
        with pytest.raises(anabranch.SchemaError, match="'a'"):
            lake.create_table("db.t", "a BINARY(8)").append(frame)
