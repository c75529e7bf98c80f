"""Rows of any kind become rows of the table, exactly, or are refused."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from anabranch.arrow.convert import convert
from anabranch.errors import SchemaError
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.arrow_types import to_arrow_schema

BERLIN = dt.timezone(dt.timedelta(hours=1))


def converted(data, columns):
    fields = parse_columns(columns)
    batches = list(convert(data, fields))
    for batch in batches:
        assert batch.schema.equals(to_arrow_schema(fields))
        batch.validate(full=True)
    return pa.Table.from_batches(batches, to_arrow_schema(fields))


def values(data, columns):
    return converted(data, columns).to_pylist()


def refusal(data, columns):
    with pytest.raises(SchemaError) as caught:
        converted(data, columns)
    return str(caught.value)


def test_columns_that_fit_are_not_copied():
    fields = parse_columns("a BIGINT NOT NULL, s STRING, l ARRAY<DOUBLE>")
    given = pa.table(
        [pa.array([1, 2]), pa.array(["x", None]), pa.array([[1.0], None])], schema=to_arrow_schema(fields)
    )
    (batch,) = convert(given, fields)
    for position in range(3):
        before, after = given.column(position).chunk(0), batch.column(position)
        assert [b and b.address for b in before.buffers()] == [b and b.address for b in after.buffers()]


def test_columns_go_by_name_whatever_their_order():
    given = pa.table({"b": ["x"], "a": pa.array([1], pa.int32())})
    assert values(given, "a INT, b STRING, c DOUBLE") == [{"a": 1, "b": "x", "c": None}]


def test_an_unknown_column_is_refused_with_the_one_that_may_be_meant():
    message = refusal(pa.table({"Price": [1.0], "zip": ["1"]}), "price DOUBLE")
    assert "'Price', 'zip'" in message
    assert "'price'" in message


def test_a_missing_column_must_be_nullable():
    assert "'b'" in refusal(pa.table({"a": [1]}), "a BIGINT, b INT NOT NULL")


def test_a_column_given_twice_is_refused():
    given = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert "more than one column named 'a'" in refusal(given, "a BIGINT")


def test_nulls_in_a_column_that_is_not_null_are_counted():
    message = refusal(pa.table({"a": [1, None, None]}), "a BIGINT NOT NULL")
    assert "'a'" in message
    assert "2 of 3" in message


EXACT = [
    (pa.array([1, None], pa.int8()), "BIGINT", [1, None]),
    (pa.array([7], pa.uint8()), "SMALLINT", [7]),
    (pa.array([300], pa.int64()), "SMALLINT", [300]),
    (pa.array([2**63], pa.uint64()), "DECIMAL(20, 0)", [Decimal(2**63)]),
    (pa.array([5], pa.int32()), "DECIMAL(5, 2)", [Decimal("5.00")]),
    (pa.array([5], pa.int32()), "DOUBLE", [5.0]),
    (pa.array([0.5], pa.float16()), "FLOAT", [0.5]),
    (pa.array([0.1], pa.float32()), "DOUBLE", [0.10000000149011612]),
    (pa.array(["é"], pa.large_string()), "STRING", ["é"]),
    (pa.array(["é"], pa.string_view()), "STRING", ["é"]),
    (pa.array(["a", "b", "a", None]).dictionary_encode(), "STRING", ["a", "b", "a", None]),
    (pa.array(["a"], pa.large_string()).dictionary_encode(), "VARCHAR(1)", ["a"]),
    (pa.array([b"\0\1"], pa.binary(2)), "BYTES", [b"\0\1"]),
    (pa.array([b"\0"], pa.binary_view()), "BINARY(1)", [b"\0"]),
    (pa.array([Decimal("1.20")], pa.decimal128(10, 2)), "DECIMAL(5, 1)", [Decimal("1.2")]),
    (pa.array([Decimal("1.2")], pa.decimal256(60, 1)), "DECIMAL(5, 3)", [Decimal("1.200")]),
    (pa.array([86_400_000]).view(pa.date64()), "DATE", [dt.date(1970, 1, 2)]),
    (pa.array([dt.time(1, 2, 3, 4000)]), "TIME(3)", [dt.time(1, 2, 3, 4000)]),
    (pa.array([1_500_000], pa.timestamp("us")), "TIMESTAMP(3)", [dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)]),
    (pa.array([1], pa.timestamp("s")), "TIMESTAMP(6)", [dt.datetime(1970, 1, 1, 0, 0, 1)]),
    (pa.array([[1], None, []], pa.large_list(pa.int8())), "ARRAY<INT>", [[1], None, []]),
    (pa.array([[1], None, [2, None], []], pa.list_view(pa.int64())), "ARRAY<BIGINT>", [[1], None, [2, None], []]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "ARRAY<BIGINT NOT NULL>", [[1, 2], None]),
    (pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.int8())), "MAP<STRING, INT>", [[("a", 1)], None]),
    (pa.array([[{"key": "a", "value": 1}], None]), "MAP<STRING, INT>", [[("a", 1)], None]),
    (pa.array([[("a", 2)]], pa.map_(pa.string(), pa.int64())), "MULTISET<STRING>", [[("a", 2)]]),
    (pa.array([{"y": 1}, None]), "ROW<x STRING, y INT NOT NULL>", [{"x": None, "y": 1}, None]),
    (pa.nulls(2), "ROW<x INT NOT NULL>", [None, None]),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16))), "BINARY(16)", [bytes(16)]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "sql_type", "expected"), EXACT)
def test_what_a_type_expresses_exactly_is_taken(array, sql_type, expected):
    assert values(pa.table({"c": array}), f"c {sql_type}") == [{"c": value} for value in expected]


def test_instants_keep_their_moment_whatever_their_zone():
    given = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    column = converted(pa.table({"c": given}), "c TIMESTAMP_LTZ(6)").column("c")
    assert column.type == pa.timestamp("us", "UTC")
    assert column.cast(pa.int64()).to_pylist() == [0]


REFUSED = [
    (pa.array([300]), "TINYINT", "does not fit"),
    (pa.array([2**53 + 1]), "DOUBLE", "does not fit"),
    (pa.array([1.0]), "BIGINT", "double"),
    (pa.array([0.5]), "FLOAT", "digits were lost"),
    (pa.array([0.5]), "DECIMAL(5, 2)", "digits were lost"),
    (pa.array([True]), "INT", "bool"),
    (pa.array(["1"]), "INT", "string"),
    (pa.array([1]), "STRING", "int64"),
    (pa.array(["a"]), "BYTES", "string"),
    (pa.array([Decimal("1.25")]), "DECIMAL(5, 1)", "does not fit"),
    (pa.array([Decimal(12345)]), "DECIMAL(5, 1)", "does not fit"),
    (pa.array([1]), "DECIMAL(2, 2)", "does not fit"),
    (pa.array([1]).view(pa.date64()), "DATE", "does not fit"),
    (pa.array([dt.time(0, 0, 0, 1)]), "TIME(3)", "does not fit"),
    (pa.array([1], pa.timestamp("us")), "TIMESTAMP(3)", "does not fit"),
    (pa.array([2**60], pa.timestamp("s")), "TIMESTAMP(9)", "does not fit"),
    (pa.array([0], pa.timestamp("us")), "TIMESTAMP_LTZ(6)", "assume_timezone"),
    (pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP(6)", "local_timestamp"),
    (pa.array([0], pa.timestamp("us")), "DATE", "timestamp"),
    (pa.array([1], pa.duration("s")), "BIGINT", "duration"),
    (
        pa.array(["abc", "é" * 4, "éé"]),
        "VARCHAR(3)",
        "1 of 3 values are longer, the longest has 4 characters",
    ),
    (pa.array(["abc"]), "CHAR(2)", "longer"),
    (pa.array([b"abc"]), "BINARY(2)", "3 bytes"),
    (pa.array([1]), "ARRAY<BIGINT>", "int64"),
    (pa.array([[1, None]]), "ARRAY<BIGINT NOT NULL>", "'c.element' is NOT NULL"),
    (pa.array([["abc"]]), "ARRAY<VARCHAR(2)>", "'c.element'"),
    (
        pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
        "MAP<STRING, BIGINT NOT NULL>",
        "'c.value'",
    ),
    (pa.array([{"x": 1, "z": 2}]), "ROW<x BIGINT>", "'c.z'"),
    (pa.array([{"x": 1}]), "ROW<x BIGINT, y INT NOT NULL>", "'c.y'"),
    (pa.array([{"x": None}, None]), "ROW<x BIGINT NOT NULL>", "1 of 1 values are null"),
    (pa.array([[{"key": "a", "value": 1}, None]]), "MAP<STRING, BIGINT>", "keys are null"),
    (pa.array([[{"key": None, "value": 1}]]), "MAP<BIGINT, BIGINT>", "keys are null"),
    (pa.array([[{"k": "a", "v": 1}]]), "MAP<STRING, BIGINT>", "list<"),
    (pa.array([[{"k": {"x": "1"}}]]), "ARRAY<ROW<k ROW<x INT>>>", "'c.element.k.x'"),
]


@pytest.mark.parametrize(("array", "sql_type", "part"), REFUSED)
def test_what_does_not_fit_exactly_is_refused(array, sql_type, part):
    message = refusal(pa.table({"c": array}), f"c {sql_type}")
    assert "'c" in message
    assert part in message


def test_values_below_nulls_are_nobodys():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), pa.array([1, None, 999, 2]), mask=pa.array([False, True, False])
    )
    assert values(pa.table({"c": lists}), "c ARRAY<TINYINT NOT NULL>") == [
        {"c": [1]},
        {"c": None},
        {"c": [2]},
    ]
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 999]), pa.array(["a", "too long"])], ["x", "s"], mask=pa.array([False, True])
    )
    assert values(pa.table({"c": rows}), "c ROW<x TINYINT NOT NULL, s VARCHAR(1)>") == [
        {"c": {"x": 1, "s": "a"}},
        {"c": None},
    ]


def test_slices_are_read_where_they_are():
    whole = pa.array([[9], [1, 2], None, [3], [9]], pa.list_(pa.int64()))
    assert values(pa.table({"c": whole.slice(1, 3)}), "c ARRAY<INT>") == [
        {"c": [1, 2]},
        {"c": None},
        {"c": [3]},
    ]


def test_nan_and_both_zeros_are_kept():
    found = converted(pa.table({"c": [math.nan, -0.0, 0.0, None]}), "c DOUBLE").column("c")
    nan, minus, plus, null = found.to_pylist()
    assert math.isnan(nan)
    assert [math.copysign(1, minus), math.copysign(1, plus)] == [-1, 1]
    assert null is None


def test_batches_readers_and_iterables_of_them():
    table = pa.table({"a": [1, 2, 3]})
    expected = [{"a": 1}, {"a": 2}, {"a": 3}]
    batches = table.to_batches(max_chunksize=2)
    reader = pa.RecordBatchReader.from_batches(table.schema, batches)
    for data in (batches, iter(batches), (table,), reader, batches[0]):
        assert values(data, "a BIGINT") == (expected[:2] if data is batches[0] else expected)
    assert values([], "a BIGINT") == []
    assert values(table.slice(0, 0), "a BIGINT") == []


def test_polars_frames():
    frame = pl.DataFrame(
        {
            "s": ["a", None],
            "c": pl.Series(["x", "y"], dtype=pl.Categorical),
            "l": [[1], None],
            "r": [{"x": 1}, {"x": None}],
            "t": [dt.datetime(2020, 1, 1), None],
            "d": [Decimal("1.5"), None],
        }
    )
    columns = "s STRING, c STRING, l ARRAY<BIGINT>, r ROW<x INT>, t TIMESTAMP(6), d DECIMAL(5, 2)"
    assert values(frame, columns) == frame.with_columns(pl.col("d").cast(pl.Decimal(5, 2))).to_dicts()
    assert "collect" in refusal(frame.lazy(), columns)


def test_pandas_frames():
    frame = pd.DataFrame(
        {
            "f": [1.5, math.nan],
            "i": pd.array([1, None], dtype="Int64"),
            "s": ["a", None],
            "c": pd.Categorical(["x", "y"]),
            "t": pd.to_datetime(["2020-01-01 00:00:00.123456789", None]),
            "z": pd.to_datetime(["2020-01-01", None]).tz_localize("Europe/Berlin"),
            "m": [{"k": 1}, None],
            "d": [Decimal("1.5"), None],
        },
        index=[7, 3],
    )
    columns = (
        "f DOUBLE, i BIGINT, s STRING, c STRING, t TIMESTAMP(9), z TIMESTAMP_LTZ(6), m MAP<STRING, INT>, "
        "d DECIMAL(4, 1)"
    )
    first, second = values(frame, columns)
    assert second == {name: ("y" if name == "c" else None) for name in frame.columns}
    assert first["t"] == pd.Timestamp("2020-01-01 00:00:00.123456789")
    assert first["z"] == dt.datetime(2019, 12, 31, 23, tzinfo=dt.UTC)
    assert (first["m"], first["d"], first["f"]) == ([("k", 1)], Decimal("1.5"), 1.5)
    assert "'i'" in refusal(pd.DataFrame({"i": [1.0, math.nan]}), "i BIGINT")


def test_named_levels_of_a_pandas_index_are_columns():
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index(["a", "b"], name="k"))
    assert values(frame, "k STRING, v BIGINT") == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    assert "'k'" in refusal(frame, "v BIGINT")


def test_dictionaries():
    columns = (
        "i INT NOT NULL, f FLOAT, d DECIMAL(6, 2), s STRING, b BYTES, o BOOLEAN, day DATE, t TIME(3), ts TIMESTAMP(3), "
        "z TIMESTAMP_LTZ(6), l ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y ARRAY<STRING>>, u MULTISET<STRING>"
    )
    row = {
        "i": 1,
        "f": 0.1,
        "d": Decimal("1.5"),
        "s": "é",
        "b": b"\0",
        "o": True,
        "day": dt.date(2020, 2, 29),
        "t": dt.time(1, 2, 3, 4000),
        "ts": dt.datetime(2020, 1, 1, 0, 0, 0, 5000),
        "z": dt.datetime(2020, 1, 1, tzinfo=BERLIN),
        "l": [1, None],
        "m": {"a": 1},
        "r": {"y": ["a"]},
        "u": {"a": 2},
    }
    full, empty = values([row, {"i": np.int64(2)}], columns)
    assert empty == {name: (2 if name == "i" else None) for name in row}
    assert full == row | {
        "f": np.float32(0.1),
        "d": Decimal("1.50"),
        "m": [("a", 1)],
        "r": {"x": None, "y": ["a"]},
        "u": [("a", 2)],
    }


@pytest.mark.parametrize(
    ("value", "sql_type"),
    [
        (True, "INT"),
        (1.0, "INT"),
        ("1", "INT"),
        (2**40, "INT"),
        (1, "BOOLEAN"),
        (1, "STRING"),
        ("a", "BYTES"),
        (1.5, "DECIMAL(5, 2)"),
        (Decimal("1.234"), "DECIMAL(5, 2)"),
        (dt.datetime(2020, 1, 1), "DATE"),
        (dt.date(2020, 1, 1), "TIMESTAMP(6)"),
        (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "TIMESTAMP(6)"),
        (dt.datetime(2020, 1, 1), "TIMESTAMP_LTZ(6)"),
        (dt.datetime(2020, 1, 1, 0, 0, 0, 1), "TIMESTAMP(3)"),
        (dt.time(0, tzinfo=dt.UTC), "TIME(3)"),
        ("ab", "ARRAY<STRING>"),
        ([1, "a"], "ARRAY<INT>"),
        ({"x": 1, "y": 2}, "ROW<x INT>"),
        ([1], "ROW<x INT>"),
        ({None: 1}, "MAP<STRING, INT>"),
        ([1, 2], "MAP<STRING, INT>"),
        ("abcd", "VARCHAR(3)"),
        (1e39, "FLOAT"),
        (-3.4028235677973366e38, "FLOAT"),
        (10**39, "FLOAT"),
        (10**400, "DOUBLE"),
        ([1.0, 1e39], "ARRAY<FLOAT>"),
        ({"a": -1e39}, "MAP<STRING, FLOAT>"),
        (np.float64(1e39), "FLOAT"),
        (np.longdouble("1e400"), "DOUBLE"),
    ],
)
def test_python_values_of_another_type_are_refused(value, sql_type):
    assert "'c" in refusal([{"c": None}, {"c": value}], f"c {sql_type}")


def test_infinite_numbers_and_the_largest_of_a_float_are_kept():
    given = [math.inf, -math.inf, 3.4028234663852886e38, np.float32("inf"), None]
    for sql_type in ("FLOAT", "DOUBLE"):
        assert values([{"c": value} for value in given], f"c {sql_type}") == [{"c": value} for value in given]
    (nan,) = values([{"c": math.nan}], "c FLOAT")
    assert math.isnan(nan["c"])


def test_unknown_keys_of_any_row_are_refused():
    assert "'b'" in refusal([{"a": 1}, {"a": 2, "b": None}], "a INT")


@pytest.mark.parametrize("data", ["text", 5, {"a": [1]}, [1, 2], None])
def test_what_holds_no_rows_is_refused(data):
    assert "cannot take rows" in refusal(data, "a INT")


def test_columns_that_share_their_memory_come_in_batches_of_a_bounded_size(monkeypatch):
    monkeypatch.setattr("anabranch.arrow.convert._MAX_BATCH_BYTES", 10_000)
    shared = pa.array(range(100), pa.int64())
    batches = list(
        convert(
            pa.table({f"c{i}": shared for i in range(50)}),
            parse_columns(", ".join(f"c{i} BIGINT" for i in range(50))),
        )
    )
    assert max(batch.num_rows for batch in batches) * 50 * 8 <= 10_000
    assert pa.Table.from_batches(batches).column("c49").to_pylist() == shared.to_pylist()


def test_text_beyond_the_offsets_of_arrow_comes_in_several_batches(monkeypatch):
    monkeypatch.setattr("anabranch.arrow.convert._MAX_BATCH_BYTES", 100)
    given = pa.table({"s": pa.array(["x" * 40] * 7, pa.large_string())})
    fields = parse_columns("s STRING")
    batches = list(convert(given, fields))
    assert [b.num_rows for b in batches] == [1, 2, 2, 2]
    assert pa.Table.from_batches(batches).num_rows == 7
