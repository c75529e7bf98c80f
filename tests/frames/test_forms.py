"""Rows in the forms of other libraries, and questions that metadata answers."""

import datetime as dt
import sys
from decimal import Context, Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import anabranch
from anabranch.arrow import reader
from anabranch.frames.dataset import for_duckdb
from tests.support.lengths import first_short

_names = iter(range(1_000))


@pytest.fixture
def table(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    made = lake.create_table("db.t", "id BIGINT NOT NULL, x DOUBLE, v STRING, dt DATE", partition_by="dt")
    for day in range(1, 5):
        made.append(
            [
                {
                    "id": day * 10 + i,
                    "x": [1.5, None, float("nan")][i],
                    "v": f"v{i}",
                    "dt": dt.date(2026, 1, day),
                }
                for i in range(3)
            ]
        )
    return made


@pytest.fixture
def opened(monkeypatch):
    """Data files that are opened."""
    paths = []
    read = reader._Scan._open
    monkeypatch.setattr(reader._Scan, "_open", lambda self, file: paths.append(file.path) or read(self, file))
    return paths


def test_others_take_a_scan_as_it_is(table):
    scan = table.scan("id < 30", columns=["id", "v"])
    ids = [10, 11, 12, 20, 21, 22]
    assert pa.table(scan)["id"].to_pylist() == ids
    assert pl.DataFrame(scan)["id"].to_list() == ids
    assert pa.RecordBatchReader.from_stream(scan).read_all() == scan.to_arrow()
    assert sorted(row[0] for row in duckdb.sql("SELECT id FROM scan").fetchall()) == ids
    assert pa.table(scan)["id"].to_pylist() == ids, "as often as it is asked for"
    assert pa.schema(scan) == scan.arrow_schema


def test_changes_diffs_and_system_tables_too(table):
    changes = table.changes(3)
    assert pa.table(changes)["id"].to_pylist() == [40, 41, 42]
    assert changes.to_polars()["id"].to_list() == [40, 41, 42]
    diff = table.diff("main@snapshot.3")
    assert sorted(pa.table(diff)["id"].to_pylist()) == [40, 41, 42]
    assert set(pl.DataFrame(diff.rows())["_change"]) == {"insert"}
    assert diff.rows().to_duckdb().aggregate("count(*)").fetchall() == [(3,)]
    assert pl.from_arrow(table.system("snapshots")).height == 4


@pytest.mark.parametrize("digits", [28, 29, 38])
def test_a_lazy_frame_compares_decimals_of_any_length(tmp_path, digits):
    value = Decimal("123456789" * 5)
    value = Decimal(str(value)[:digits]).scaleb(-3, Context(prec=38))
    rows = pa.table({"d": pa.array([value, -value, Decimal(5)], pa.decimal128(38, 3))})
    table = anabranch.connect(str(tmp_path)).create_table("db.d", data=rows)
    frame, column = table.scan().to_polars(lazy=True), pl.col("d")
    for condition in (column == value, column == -value, column.is_between(value, value), column < value):
        eager = table.scan().to_polars().filter(condition)
        assert frame.filter(condition).collect().equals(eager), condition


def test_a_lazy_frame_reads_what_its_query_needs(table, opened):
    frame = table.scan().to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    assert opened == []
    found = frame.filter(pl.col("dt") == dt.date(2026, 1, 2), pl.col("id") > 20).select("v").collect()
    assert found["v"].to_list() == ["v1", "v2"]
    assert len(opened) == 1
    assert "dt=" in opened[0]
    opened.clear()
    assert frame.head(2).collect()["id"].to_list() == [10, 11]
    assert len(opened) == 1
    opened.clear()
    assert frame.filter(pl.col("v").str.to_uppercase() == "V2").collect()["id"].to_list() == [12, 22, 32, 42]
    assert len(opened) == 4, "this is filtered by Polars"
    assert frame.head(3).filter(pl.col("id") > 10).collect().height == 2, "first rows, then the filter"
    assert frame.filter(pl.col("id") > 1_000).select("id").collect().schema == {"id": pl.Int64}
    assert frame.select(pl.len()).collect().item() == 12
    assert ("PYTHON[db.t]" if pl.__version__ >= "2" else "PYTHON SCAN") in frame.explain()


def test_duckdb_reads_what_its_query_needs(table, opened):
    relation = table.scan().to_duckdb()
    assert opened == []
    assert relation.filter("dt = DATE '2026-01-03' AND v IN ('v0', 'v2')").order("id").fetchall()[0][0] == 30
    assert len(set(opened)) == 1
    with duckdb.connect() as connection:
        rows = table.scan("id < 20").to_duckdb(connection)
        assert rows.filter("x > 1").count("*").fetchall() == [(2,)], "NaN is above all numbers in SQL"


def test_filters_of_duckdb_on_fields_of_rows_and_first_rows_know_that_nan_is_largest(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.n", "id BIGINT, x DOUBLE, r ROW<x DOUBLE, y INT>")
    values = [1.0, float("nan"), 2.0, None]
    table.append([{"id": n, "x": x, "r": {"x": x, "y": n}} for n, x in enumerate(values)])
    with duckdb.connect() as connection:
        rows = table.scan().to_duckdb(connection)
        for condition in ("r.x > 1", "x > 1 AND r.y > 0", "x > 1 AND r.x > 1", "x BETWEEN 1.5 AND 'nan'"):
            assert rows.filter(condition).order("id").project("id").fetchall() == [(1,), (2,)], condition
        assert rows.filter("r.x = 'nan'").project("id").fetchall() == [(1,)]
        first = table.scan(limit=2).to_duckdb(connection)
        assert first.filter("x > 1").project("id").fetchall() == [(1,)]
        assert first.filter("r.x > 1 AND id > 0").project("id").fetchall() == [(1,)]
    with pytest.raises(anabranch.UnsupportedFeatureError, match="is not understood"):
        for_duckdb(table.scan()).to_table(filter=(ds.field("x") > 1) & (pc.abs(ds.field("id")) > 0))


def test_a_list_as_duckdb_2_asks_for_it_does_not_know_of_null(table):
    table.append([{"id": 99}])
    listed = pc.if_else(
        ds.field("v").is_valid(), ds.field("v").isin(["v0", "v2"]), pa.scalar(None, pa.bool_())
    )
    asked = for_duckdb(table.scan())
    assert set(asked.to_table(filter=listed)["v"].to_pylist()) == {"v0", "v2"}
    assert set(asked.to_table(filter=~listed)["v"].to_pylist()) == {"v1"}
    assert set(asked.to_table(filter=listed & (ds.field("id") > 20))["id"].to_pylist()) == {
        22,
        30,
        32,
        40,
        42,
    }


def test_a_data_set_of_pyarrow_leaves_null_out_of_every_list(table):
    table.append([{"id": 99}])
    data, in_memory = table.scan().to_dataset(), ds.dataset(table.scan().to_arrow())
    some = ds.field("x").isin([1.5])
    other = ds.field("v").isin(["v1"]) & ds.field("id").isin([11, 12])
    no_day = ~ds.field("dt").isin([dt.date(2026, 1, 1)])
    for condition in (
        some,
        ~some,
        ~other,
        ~(some | other),
        ~~some,
        no_day,
        ds.scalar(True),
        ~ds.scalar(True),
    ):
        expected = in_memory.to_table(filter=condition)["id"].to_pylist()
        assert data.to_table(filter=condition)["id"].to_pylist() == expected, str(condition)


def test_lists_and_short_numbers_of_polars_mean_here_what_they_mean_there(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.p", "f FLOAT, n INT")
    table.append([{"f": f, "n": n} for f in (None, 0.1, 2.5) for n in (None, 1, 2)])
    frame, lazy = table.scan().to_polars(), table.scan().to_polars(lazy=True)
    f, n = pl.col("f"), pl.col("n")
    for condition in (
        ~n.is_in([1], nulls_equal=True),
        n.is_in([1], nulls_equal=True),
        ~n.is_in([1]),
        ~n.is_in([1, None], nulls_equal=True),
        *(f == 0.1, f <= 0.1, f > 0.1, f.is_in([0.1]), f.is_between(0.1, 1)),
    ):
        expected = frame.filter(condition)
        assert lazy.filter(condition).collect().equals(expected), str(condition)


def test_a_data_set_of_pyarrow(table, opened):
    data = table.scan().to_dataset()
    assert isinstance(data, ds.Dataset)
    assert data.schema == table.scan().arrow_schema
    found = data.to_table(columns=["id"], filter=ds.field("dt") == dt.date(2026, 1, 2))
    assert found["id"].to_pylist() == [20, 21, 22]
    assert len(opened) == 1
    assert data.to_table(filter=ds.field("x") > 1)["id"].to_pylist() == [10, 20, 30, 40], "as Arrow compares"
    assert data.to_table(filter=~(ds.field("x") > 1))["id"].to_pylist() == [12, 22, 32, 42]
    assert data.to_table(filter=pc.utf8_upper(ds.field("v")) == "V1", columns=["id"]).num_rows == 4
    assert data.to_table(columns={"twice": pc.multiply(ds.field("id"), 2)})["twice"][0].as_py() == 20
    assert (data.count_rows(), data.head(2).num_rows, data.count_rows(filter=ds.field("id") > 30)) == (
        12,
        2,
        5,
    )
    assert pl.scan_pyarrow_dataset(data).filter(pl.col("id") == 11).collect().height == 1
    with pytest.raises(anabranch.UnsupportedFeatureError, match="does not offer"):
        data.get_fragments()
    with pytest.raises(anabranch.UnsupportedFeatureError, match="does not offer"):
        data.join(data, "id")


def test_what_metadata_answers_opens_no_file(table, opened):
    assert table.scan().count() == 12
    assert table.scan("dt >= '2026-01-03'").count() == 6
    assert table.scan("dt >= '2026-01-03' OR dt IS NULL", limit=4).count() == 4
    assert (table.scan().min("dt"), table.scan().max("dt")) == (dt.date(2026, 1, 1), dt.date(2026, 1, 4))
    assert table.scan("dt < '2026-01-03'").max("dt") == dt.date(2026, 1, 2)
    counted = table.scan("dt <> '2026-01-03'").count_by("dt").sort_by("dt").to_pylist()
    assert counted == [{"dt": dt.date(2026, 1, day), "count": 3} for day in (1, 2, 4)]
    assert opened == []


def test_what_it_does_not_answer_is_read(table, opened):
    assert table.scan("v = 'v1'").count() == 4
    assert table.scan("id = 11").count() == 1
    assert table.scan("id = 11 OR dt = '2026-01-04'").count() == 4
    counted = table.scan().count_by(["v"]).sort_by("v").to_pylist()
    assert counted == [{"v": f"v{i}", "count": 4} for i in range(3)]
    assert table.scan("v = 'v9'").count_by("v").num_rows == 0
    assert (table.scan().min("id"), table.scan().max("v")) == (10, "v2")
    assert table.scan().min("x") == 1.5
    assert str(table.scan().max("x")) == "nan"
    assert table.scan("v = 'v1'").max("x") is None
    assert table.scan("v = 'v9'").min("id") is None
    assert table.scan(limit=2).max("dt") == dt.date(2026, 1, 1), "of the rows that are asked for"


@pytest.mark.parametrize("layout", [{}, {"partition_by": "x"}])
def test_both_zeros_are_one_group(tmp_path, layout):
    table = anabranch.connect(str(tmp_path)).create_table("db.z", "x DOUBLE, v INT", **layout)
    table.append([{"x": value} for value in (0.0, -0.0, 1.0, float("nan"), None)])
    counted = table.scan().count_by("x").to_pylist()
    assert sorted((str(row["x"]), row["count"]) for row in counted) == [
        ("0.0", 2),
        ("1.0", 1),
        ("None", 1),
        ("nan", 1),
    ]


def test_after_changes_of_the_schema_metadata_still_says_what_reading_says(table):
    table.alter().rename_column("v", "dt_text").add_column("n", "INT").apply()
    table.append([{"id": 99, "dt": None, "n": 7}])
    scan = table.scan()
    assert scan.count() == scan.to_arrow().num_rows == 13
    assert scan.count_by("dt").num_rows == 5
    assert (scan.max("n"), scan.min("dt")) == (7, dt.date(2026, 1, 1))
    assert table.scan("n IS NULL").count() == 12


def test_first_rows_and_rows_by_chance(table, opened):
    assert table.scan().head(2)["id"].to_pylist() == [10, 11]
    assert len(opened) == 1
    assert table.scan("id > 15", limit=1).head()["id"].to_pylist() == [20]
    opened.clear()
    one = table.scan().sample(1)
    assert one.num_rows == 1
    assert len(opened) == 1
    assert table.scan().sample(1) == one
    drawn = {table.scan(columns=["id"]).sample(1, seed=seed)["id"][0].as_py() for seed in range(60)}
    assert len(drawn) > 8
    assert table.scan().sample(100).num_rows == 12
    assert table.scan("v = 'v1'").sample(2)["v"].to_pylist() == ["v1", "v1"]


def test_a_library_that_is_missing_is_named_with_its_extra(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(anabranch.UnsupportedFeatureError, match=r"pip install 'anabranch\[duckdb\]'"):
        table.scan().to_duckdb()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(anabranch.UnsupportedFeatureError, match=r"pip install 'anabranch\[pandas\]'"):
        table.scan().to_pandas()


def test_pandas_takes_a_scan(table):
    assert isinstance(table.scan().to_pandas(), pd.DataFrame)


def test_a_pandas_frame_is_what_arrow_makes_of_the_rows(tmp_path):
    """Some text is the same in many rows, some never, and equal text of a column shares one object."""
    table = anabranch.connect(str(tmp_path)).create_table(
        "db.t", "id BIGINT, often STRING, never STRING, bytes BYTES, day DATE, x DECIMAL(9, 2)"
    )
    for start in (0, 3_000):
        numbers = range(start, start + 3_000)
        table.append(
            pa.table(
                {
                    "id": numbers,
                    "often": [None if n % 7 == 0 else f"word {n % 5}" for n in numbers],
                    "never": [None if n % 9 == 0 else f"text {n}" for n in numbers],
                    "bytes": pa.array([b"%d" % n for n in numbers]),
                    "day": [dt.date(2024, 1, 1 + n % 31) for n in numbers],
                    "x": [Decimal(n).scaleb(-2) for n in numbers],
                }
            )
        )
    for columns in (None, ["never", "id"], ["often"], ["bytes", "never"]):
        scan = table.scan(columns=columns)
        pd.testing.assert_frame_equal(scan.to_pandas(), scan.to_arrow().to_pandas())
    often = table.scan().to_pandas()["often"]
    if often.dtype == object:  # pandas 3 keeps text as Arrow does, and makes an object of it when it is asked
        assert len({id(value) for value in often if value is not None}) <= 10
    pd.testing.assert_frame_equal(
        table.scan("id < 0").to_pandas(), table.scan("id < 0").to_arrow().to_pandas()
    )


@pytest.mark.parametrize("precision", first_short([0, 3, 6]))
def test_an_instant_is_compared_with_finer_ones_by_duckdb(tmp_path, precision):
    """DuckDB cuts what it compares with to milliseconds, where the column has these."""
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", f"z TIMESTAMP({precision}) WITH LOCAL TIME ZONE")
    table.append([{"z": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, {"z": None}])
    for condition, count in (
        ("z < {}", 1),
        ("z = {}", 0),
        ("z + INTERVAL 0 DAY < {}", 1),
        ("z <> {}", 1),
        ("z > {}", 0),
    ):
        asked = condition.format("TIMESTAMPTZ '2026-01-01 00:00:00.000500+00'")
        assert lake.sql(f"SELECT count(*) AS n FROM db.t WHERE {asked}").to_arrow()["n"].to_pylist() == [
            count
        ], asked
        assert table.scan().to_duckdb().filter(asked).count("*").fetchall() == [(count,)], asked
    found = table.scan().to_duckdb().filter("z IS NOT NULL").fetchall()
    assert [row[0].timestamp() for row in found] == [dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("d < 'infinity'::date", [1, 2, 3]),
        ("d > '-infinity'::date", [1, 2, 3]),
        ("d < DATE '10000-01-01'", [1, 2]),
        ("d >= DATE '10000-01-01'", [3]),
        ("d = DATE '10000-01-01' OR d = DATE '2020-01-01'", [1, 3]),
        ("ts < 'infinity'::timestamp AND d < DATE '2021-06-01'", [1, 2]),
    ],
)
def test_sql_compares_with_dates_that_python_does_not_have(tmp_path, condition, ids):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "id INT, x DOUBLE, d DATE, ts TIMESTAMP")
    days = pa.array([18262, 18628, 2932897], pa.int32()).cast(pa.date32())
    moments = pa.array([0, 1, 2], pa.timestamp("us"))
    table.append(
        pa.table({"id": pa.array([1, 2, 3], pa.int32()), "x": [1.0, 2.0, 3.0], "d": days, "ts": moments})
    )
    wanted = [(number,) for number in ids]
    assert table.scan().to_duckdb().filter(condition).select("id").order("id").fetchall() == wanted
    found = lake.sql(f"SELECT id FROM db.t WHERE {condition} ORDER BY id").to_arrow()
    assert found["id"].to_pylist() == ids


def test_names_that_polars_takes_for_patterns(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    numbers = pa.table({"*": [1, 2], "^a.*$": [3, 4], "a1": [5, 6], "b": [7, 8]})
    table = lake.create_table("db.t", data=numbers)
    wanted = pl.from_arrow(numbers)
    assert table.scan(columns=["*"]).to_polars().equals(pl.DataFrame({"*": [1, 2]}))
    assert table.scan(columns=["^a.*$"]).to_polars().equals(pl.DataFrame({"^a.*$": [3, 4]}))
    lazy = table.scan().to_polars(lazy=True)
    assert lazy.drop("b").collect().equals(wanted.drop("b"))
    assert lazy.select(pl.nth(1)).collect().equals(wanted.select(pl.nth(1)))


def test_counting_by_columns_of_any_name_and_type(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "count INT, count_sum INT, c1 STRING, l ARRAY<INT>")
    for column in ("count_sum", "c1", ["c1", "count_sum"]):
        empty = table.scan().count_by(column)
        assert empty.num_rows == 0
        assert empty.schema.field("count").type == pa.int64()
    table.append([{"count": 1, "count_sum": n % 2, "c1": "x", "l": [n]} for n in range(5)])
    found = table.scan().count_by(["c1", "count_sum"]).sort_by("count_sum")
    assert found.to_pydict() == {"c1": ["x", "x"], "count_sum": [0, 1], "count": [3, 2]}
    assert found.schema.field("count_sum").type == pa.int32()
    with pytest.raises(anabranch.SchemaError, match="ARRAY"):
        table.scan().count_by("l")
    with pytest.raises(anabranch.SchemaError, match="'count'") as error:
        table.scan().count_by("count")
    assert "lake.sql" in error.value.hint
