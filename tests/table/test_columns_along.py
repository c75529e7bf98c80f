"""Rows that bring columns along: added and widened by values, wholly or not at all."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    CommitConflictError,
    InvalidInputError,
    OptionError,
    SchemaError,
)
from tests.support.tables import make_table
from tests.table.data import ARROW, breaking, columns_of, files_below


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path / "w"))


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
    broken = pa.RecordBatchReader.from_batches(ARROW.schema, breaking())
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
