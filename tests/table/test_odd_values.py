"""Values that a table cannot hold as they are, and what is said of them."""

import uuid

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.format.types.values import fixed_width


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


def test_rows_without_any_key_are_rows_of_nulls(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, v STRING")
    for given in ([{}], iter([{}, {}]), [{}, {"id": 1}]):
        table.append(given)
    assert table.scan().to_arrow().to_pylist() == [{"id": None, "v": None}] * 4 + [{"id": 1, "v": None}]
    strict = anabranch.connect(str(tmp_path)).create_table("db.u", "id BIGINT NOT NULL")
    with pytest.raises(anabranch.SchemaError, match="NOT NULL"):
        strict.append([{}])


def _no_text():
    """Bytes that are no UTF-8, as text: Arrow does not look."""
    ends = pa.array([0, 2], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("STRING", _no_text()),
        ("STRING", pa.DictionaryArray.from_arrays(pa.array([0]), _no_text())),
        ("ARRAY<STRING>", pa.ListArray.from_arrays([0, 1], _no_text())),
        ("ROW<a STRING>", pa.StructArray.from_arrays([_no_text()], ["a"])),
    ],
)
def test_text_that_is_no_utf8_is_refused(tmp_path, kind, values):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", f"id INT, v {kind}", options={"metadata.stats-mode": "none"})
    for work in (
        lambda: table.append(pa.table({"v": values})),
        lambda: table.append(pa.table({"v": values}), schema="merge"),
        lambda: lake.create_table("db.u", data=pa.table({"v": values})),
    ):
        with pytest.raises(
            anabranch.SchemaError, match="column 'v' has a value that is no valid text"
        ) as raised:
            work()
        assert "BYTES" in raised.value.hint
    assert table.scan().count() == 0
    assert lake.tables("db") == ["t"]


def test_integers_of_128_bits_name_their_column(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "i BIGINT")
    frame = pl.DataFrame({"i": [1]}, schema={"i": pl.Int128})
    for work in (lambda: table.append(frame), lambda: lake.create_table("db.u", data=frame)):
        with pytest.raises(
            anabranch.SchemaError, match="column 'i' has a type that Arrow does not know"
        ) as raised:
            work()
        assert "cast" in raised.value.hint


def test_a_key_that_comes_late_in_an_iterator(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "i BIGINT")
    late = ({"i": n} if n < 66_000 else {"i": n, "new": 1} for n in range(66_001))
    with pytest.raises(anabranch.SchemaError, match="'new' comes after the first 65,536 rows") as raised:
        table.append(late, schema="merge")
    assert "give a list" in raised.value.hint
    assert table.scan().count() == 0


def test_hints_for_nulls_and_uuids(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "i BIGINT, u STRING")
    with pytest.raises(anabranch.SchemaError, match="nothing but nulls") as raised:
        table.append([{"i": 1, "q": None}], schema="merge")
    assert "add_column('q', 'STRING')" in raised.value.hint
    with pytest.raises(anabranch.SchemaError, match="UUID") as raised:
        table.append([{"u": uuid.UUID(int=1)}])
    assert "str(value)" in raised.value.hint


@pytest.mark.parametrize("key", ["incremental-between", "incremental-between-timestamp"])
def test_a_view_of_rows_between_two_moments_is_not_written(tmp_path, key):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "i BIGINT")
    for n in (1, 2, 3):
        table.append([{"i": n}])
    view = table.with_options({key: "1,2"})
    for work in (
        lambda: view.append([{"i": 9}]),
        lambda: view.overwrite([{"i": 9}]),
        lambda: view.compact(full=True),
    ):
        with pytest.raises(anabranch.InvalidInputError, match=key):
            work()
    assert table.snapshot.id == 3


def test_a_check_that_is_not_there_cannot_be_dropped(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "i BIGINT, CONSTRAINT small CHECK (i < 9)")
    with pytest.raises(anabranch.SchemaError, match="no check 'nope'") as raised:
        table.alter().drop_check("nope")
    assert "small" in raised.value.hint
    table.alter().add_check("big", "i > 0").drop_check("big").drop_check("small").apply()
    table.append([{"i": 10}])


@pytest.mark.parametrize(
    ("text", "value"), [("-1e3", -1000.0), ("1E3", 1000.0), ("2.5e-1", 0.25), ("-1e+2", -100.0)]
)
def test_defaults_with_an_exponent(tmp_path, text, value):
    table = anabranch.connect(str(tmp_path)).create_table(
        "db.t", f"i INT, e DOUBLE DEFAULT {text} COMMENT 'x'"
    )
    table.append([{"i": 1}])
    assert table.scan().to_arrow().to_pylist() == [{"i": 1, "e": value}]


NESTED = (
    *("ARRAY<TIMESTAMP(9)>", "MAP<INT NOT NULL, TIMESTAMP_LTZ(9)>", "MAP<TIMESTAMP(9) NOT NULL, INT>"),
    *("ROW<a ARRAY<TIMESTAMP(9)>>", "ARRAY<ROW<a TIMESTAMP(9)>>", "ARRAY<DECIMAL(20, 2)>", "ARRAY<STRING>"),
)


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_rows_may_leave_out_a_column_of_any_type(tmp_path, kind, count):
    """Arrow shares one buffer among the parts of a column of nulls, of a length that is no multiple of their widths."""
    table = anabranch.connect(str(tmp_path)).create_table("db.t", f"k BIGINT, v {kind}")
    ids = pa.array(range(count), pa.int64())
    table.append(pa.table({"k": ids}))
    nulls = pa.nulls(count, table.scan().arrow_schema.field("v").type)
    table.append(pa.table({"k": ids, "v": nulls}))
    read = table.scan().to_arrow()
    assert sorted(read["k"].to_pylist()) == sorted([*range(count)] * 2)
    assert read["v"].null_count == 2 * count


def test_a_buffer_may_be_longer_than_its_values():
    data = pa.py_buffer(b"\x01" + bytes(7) + b"\x02" + bytes(7) + b"\xff")
    array = pa.Array.from_buffers(pa.timestamp("ns"), 2, [None, data])
    assert fixed_width(array, "i8").tolist() == [1, 2]
    assert fixed_width(array[1:], "i8").tolist() == [2]
    assert fixed_width(array[2:], "i8").tolist() == []
