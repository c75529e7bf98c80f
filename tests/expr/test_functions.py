"""Functions, arithmetic and casts in filters, against DuckDB and by hand."""

import datetime as dt
import math
import pickle
import random
import re
import sys
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import PredicateError
from anabranch.expr import parse
from anabranch.expr.bind import bind
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.arrow_types import to_arrow_schema

COLUMNS = """
    i INT, j BIGINT, t TINYINT, x DOUBLE, f FLOAT, d DECIMAL(10, 2), v STRING, w STRING, dt DATE, ts TIMESTAMP(6), z TIMESTAMP(3) WITH LOCAL TIME ZONE,
    b BOOLEAN, raw BYTES, r ROW<n INT, s STRING>
"""
FIELDS = parse_columns(COLUMNS)


def _some(chance, values):
    return None if chance.random() < 0.15 else chance.choice(values)


def made(seed, count=200):
    chance = random.Random(seed)
    days = [dt.date(1969, 12, 31), dt.date(2026, 1, 31), dt.date(2024, 2, 29), dt.date(1, 1, 1)]
    times = [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2026, 1, 31, 12, 30),
        dt.datetime(2024, 2, 29),
    ]
    texts = ["", "a", "Ab", "Straße", "Ünïc", "x_%y", " pad ", "日本語テキスト", "0"]
    rows = [
        {
            "i": _some(chance, [0, 1, -1, 7, 2**31 - 1, -(2**31)]),
            "j": _some(chance, [0, 3, -3, 10, 2**40]),
            "t": _some(chance, [0, 1, 127, -128]),
            "x": _some(chance, [0.0, -0.0, 1.5, -2.75, math.nan, math.inf, 1e300]),
            "f": _some(chance, [0.0, 0.5, -1.25, math.nan]),
            "d": _some(chance, [Decimal("0.00"), Decimal("1.50"), Decimal("-99999.99")]),
            "v": _some(chance, texts),
            "w": _some(chance, texts),
            "dt": _some(chance, days),
            "ts": _some(chance, times),
            "z": _some(chance, [m.replace(microsecond=0, tzinfo=dt.UTC) for m in times]),
            "b": _some(chance, [True, False]),
            "raw": _some(chance, [b"", b"ab", b"\xff\x00\x01"]),
            "r": _some(chance, [{"n": 1, "s": "A"}, {"n": None, "s": None}]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(FIELDS))


CONDITIONS = [
    "upper(v) = 'AB'",
    "lower(v) <> lower(w)",
    "length(v) > 2 AND length(v) < 8",
    "substr(v, 2) = 'b'",
    "substr(v, 2, 3) LIKE '%t%'",
    "substr(v, -2) = lower(substr(v, -2))",
    "substring(v, 1, 1) IN ('A', 'a', 'x')",
    "substr(upper(v), 1, 1) NOT IN ('A')",
    "trim(v) = 'pad'",
    "year(dt) = 2026 OR month(dt) = 2",
    "day(ts) = 31 AND year(ts) >= 1969",
    "hour(ts) = 12 OR minute(ts) = 59",
    "year(z) + 1 = 2025",
    "date(ts) = DATE '1969-12-31'",
    "date(z) < dt",
    "date(ts) > cast('2024-01-01' AS DATE)",
    "i + 1 > 0",
    "i + j = 3",
    "j * 2 - t >= i",
    "-j < 0",
    "abs(j) = 3",
    "j % 3 = 1",
    "j % 3 = -1",
    "x * 2 > 3",
    "x + f < 1",
    "f = -f",
    "x - 1 = 0.5",
    "d * 2 = 3",
    "d + i > 1.25",
    "-d > 0",
    "cast(i AS BIGINT) * 4 > 8589934588",
    "cast(d AS DOUBLE) < x",
    "cast(t AS STRING) = '127'",
    "cast(b AS INT) = 1",
    "cast(ts AS DATE) = dt",
    "cast(dt AS TIMESTAMP) = ts",
    "coalesce(v, w, 'none') = 'none'",
    "coalesce(i, j) = 7",
    "coalesce(x, 0) = 0",
    "coalesce(v, '') IS NOT NULL",
    "upper(v) IS NULL",
    "NOT (upper(v) = 'A')",
    "NOT (i + j > 3 AND length(v) = 1)",
    "upper(v) IS NOT DISTINCT FROM upper(w)",
    "length(v) BETWEEN 1 AND 2",
    "length(v) NOT BETWEEN 1 AND 2",
    "upper(v) LIKE 'A%' OR i = 7",
    "i = 7 AND upper(v) = 'A'",
    "r.n + 1 = 2",
    "lower(r.s) = 'a'",
    "2 < length(v)",
    "i + j = cast(t AS INT) + 1",
    "upper(v) IN ('AB', NULL)",
    "upper(v) NOT IN ('AB', NULL)",
    "upper(v) NOT LIKE 'A%'",
    "lower(v) LIKE '%!_!%%' ESCAPE '!'",
    "lower(v) NOT LIKE '%!_!%%' ESCAPE '!'",
    "coalesce(b, b) IS NOT FALSE",
    "ifnull(v, 'A') = 'A' AND char_length(w) = 1",
]


@pytest.fixture(scope="module")
def sides():
    """The same rows as a table of ours, and of DuckDB's."""
    rows = made(seed=25)
    numbered = rows.append_column("n_", pa.array(range(rows.num_rows), pa.int32()))
    table = anabranch.connect("memory://functions").create_table("db.t", f"{COLUMNS}, n_ INT")
    for start in range(0, 200, 50):
        table.append(numbered.slice(start, 50))
    return table, duckdb_of(numbered)


def duckdb_of(rows):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # Not as a view of Arrow's: filters that DuckDB hands to Arrow lose rows with NaN.
    connection.register("given", rows)
    connection.execute("CREATE TABLE rows AS SELECT * FROM given")
    return connection


def kept_by(connection, condition):
    found = connection.execute(f"SELECT n_ FROM rows WHERE {condition} ORDER BY n_").fetchall()
    return [n for (n,) in found]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_same_rows_as_duckdb(condition, sides):
    table, connection = sides
    expected = kept_by(connection, condition)
    assert sorted(table.scan(condition, columns="n_").to_arrow()["n_"].to_pylist()) == expected
    assert table.scan(condition).count() == len(expected)
    again = str(parse(condition))
    assert parse(again) == parse(condition)
    bound = bind(parse(condition), FIELDS)
    assert pickle.loads(pickle.dumps(bound)) == bound
    assert bind(parse(str(bound)), FIELDS) == bound


class Conditions:
    """Conditions by chance, of kinds of which DuckDB means the same."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def whole(self, depth):
        pick = self.chance.randrange(9 if depth else 3)
        match pick:
            case 0 | 1:
                return f"CAST({self.chance.choice(['i', 'j', 't', 'r.n'])} AS BIGINT)"
            case 2:
                return str(self.chance.choice([-3, 0, 1, 7]))
            case 3:
                return f"({self.whole(depth - 1)} {self.chance.choice('+-')} {self.whole(depth - 1)})"
            case 4:
                return f"({self.whole(depth - 1)} * 2)"
            case 5:
                return f"length({self.text(depth - 1)})"
            case 6:
                day = self.chance.choice(["dt", "ts", "z", "date(ts)", "CAST(z AS DATE)"])
                return f"{self.chance.choice(['year', 'month', 'day'])}({day})"
            case 7:
                return f"coalesce({self.whole(depth - 1)}, {self.whole(depth - 1)})"
            case _:
                return f"({self.whole(depth - 1)} % 5)"

    def real(self, depth):
        pick = self.chance.randrange(5 if depth else 2)
        match pick:
            case 0:
                return self.chance.choice(["x", "CAST(f AS DOUBLE)", "CAST(d AS DOUBLE)"])
            case 1:
                return self.chance.choice(["x", "CAST('NaN' AS DOUBLE)", "CAST(0.5 AS DOUBLE)"])
            case 2:
                return f"({self.real(depth - 1)} {self.chance.choice('+-')} {self.real(depth - 1)})"
            case 3:
                return f"(- {self.real(depth - 1)})"
            case _:
                return f"coalesce({self.real(depth - 1)}, {self.real(depth - 1)})"

    def text(self, depth):
        pick = self.chance.randrange(6 if depth else 2)
        match pick:
            case 0 | 1:
                return self.chance.choice(["v", "w", "r.s"])
            case 2:
                return f"{self.chance.choice(['upper', 'lower', 'trim'])}({self.text(depth - 1)})"
            case 3:
                return f"substr({self.text(depth - 1)}, {self.chance.choice([1, 2, 3])})"
            case 4:
                return f"substr({self.text(depth - 1)}, {self.chance.choice([1, 2])}, {self.chance.choice([0, 1, 4])})"
            case _:
                return f"coalesce({self.text(depth - 1)}, {self.text(depth - 1)})"

    def one(self, depth):
        pick = self.chance.randrange(9 if depth else 5)
        sign = self.chance.choice(["=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM"])
        match pick:
            case 0:
                return f"{self.whole(2)} {sign} {self.whole(2)}"
            case 1:
                return f"{self.real(2)} {sign} {self.real(2)}"
            case 2:
                return f"{self.text(2)} {sign} {self.text(2)}"
            case 3:
                return f"{self.whole(2)} {self.chance.choice(['IN', 'NOT IN'])} (0, 1, 7, 2026)"
            case 4:
                left = self.chance.choice([self.text, self.whole, self.real])(2)
                return f"{left} IS {self.chance.choice(['', 'NOT '])}NULL"
            case 5:
                return f"{self.text(2)} {self.chance.choice(['LIKE', 'NOT LIKE'])} '%a_%'"
            case 6:
                return f"NOT ({self.one(depth - 1)})"
            case _:
                return f"({self.one(depth - 1)} {self.chance.choice(['AND', 'OR'])} {self.one(depth - 1)})"


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 60))]
)
def test_conditions_by_chance_keep_the_rows_that_duckdb_keeps(seed):
    conditions = Conditions(seed)
    rows = made(seed)
    table = anabranch.connect(f"memory://chance{seed}").create_table("db.t", f"n_ INT, {COLUMNS}")
    numbered = rows.append_column("n_", pa.array(range(rows.num_rows), pa.int32()))
    for start in range(0, 200, 100):
        table.append(numbered.slice(start, 100))
    connection = duckdb_of(numbered)
    for _ in range(40):
        condition = conditions.one(2)
        try:
            bind(parse(condition), FIELDS)
        except PredicateError as error:
            assert re.search(
                "compares two values|same for all rows|expected a column|DISTINCT", str(error)
            ), condition
            continue
        expected = kept_by(connection, condition)
        found = sorted(table.scan(condition, columns="n_").to_arrow()["n_"].to_pylist())
        assert found == expected, condition


def one(condition, **row):
    lake = anabranch.connect(f"memory://one{abs(hash((condition, str(row))))}")
    table = lake.create_table("db.t", COLUMNS)
    table.append([row])
    return table.scan(condition).count() == 1


def test_division_is_of_doubles_and_by_zero_is_null():
    assert one("i / 2 = 3.5", i=7)
    assert one("i / j IS NULL", i=7, j=0)
    assert one("x / 0 IS NULL", x=1.0)
    assert one("i % j IS NULL", i=7, j=0)
    assert not one("i / j > 0", i=7, j=0)


def test_lengths_and_signs_of_the_smallest():
    assert one("length(raw) = 3", raw=b"\xff\x00\x01")
    assert one("abs(t) = 128 AND -t = 128", t=-128)
    assert one("t + 1 = 128", t=127)


def test_casts_cut_off_digits_as_spark_does():
    assert one("CAST(x AS INT) = 2", x=2.9)
    assert one("CAST(x AS INT) = -2", x=-2.9)
    assert one("CAST(d AS BIGINT) = 1", d=Decimal("1.99"))
    assert one("CAST(v AS BIGINT) = 12", v=" 12 ")
    assert one("CAST(v AS DECIMAL(10, 2)) = 1.5", v="1.50")
    assert one("CAST(v AS DATE) = dt", v="2026-01-31", dt=dt.date(2026, 1, 31))


def test_nan_is_what_it_is_to_any_column():
    assert one("x + 1 = CAST('NaN' AS DOUBLE)", x=math.nan)
    assert one("x + 1 > 1e308", x=math.nan)
    assert not one("x + 1 < 0", x=math.nan)


@pytest.mark.parametrize(
    ("condition", "row", "message"),
    [
        ("CAST(v AS INT) = 1", {"v": "x"}, "cannot be computed"),
        ("j * j > 0", {"j": 2**40}, "cannot be computed"),
        ("CAST(x AS INT) = 1", {"x": 1e300}, "cannot be computed"),
        ("CAST(x AS INT) = 1", {"x": math.nan}, "cannot be computed"),
    ],
)
def test_what_cannot_be_computed_is_an_error_and_no_guess(condition, row, message):
    with pytest.raises(PredicateError, match=message):
        one(condition, **row)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("upper(i) = 'A'", "upper does not take int32"),
        ("upper(v) = 1", "cannot be compared"),
        ("upper(nope) = 'A'", "there is no column nope"),
        ("year(v, w) = 1", "number of provided arguments"),
        ("v + 1 = 2", "does not take string"),
        ("substr(v, 0) = 'a'", "counts from 1"),
        ("substr(v, i) = 'a'", "whole numbers"),
        ("foo(v) = 1", "function foo"),
        ("CASE WHEN b THEN i END + 1 = 1", "is not understood|expected"),
        ("(SELECT 1) = length(v)", "expected"),
        ("x % 2 = 1", "whole numbers"),
        ("length(v) BETWEEN SYMMETRIC 2 AND 1", "expected a|not understood|function"),
        ("trim(BOTH 'x' FROM v) = ''", "expected|function"),
        ("upper(DISTINCT v) = 'A'", "expected|function"),
        ("TRY_CAST(v AS INT) = 1", "function TRY_CAST"),
        ("length(v) IN (SELECT 1)", "expected|function"),
        ("i / j ILIKE 'x'", "no meaning"),
        ("CAST(v AS BYTES) = X'00'", "cannot be cast"),
        ("CAST(r AS STRING) = 'x'", "nothing is computed"),
        ("upper(v) = ", "cannot be read"),
        ("length('abc') = 3", "compares two values"),
        ("upper(v", "cannot be read"),
        ("CAST(i AS NOTHING) = 1", "cannot be read|NOTHING"),
        ("(" * 3_000 + "i + 1 = 1" + ")" * 3_000, "nests|cannot be read"),
        ("length(v) = 1 AND " * 20_000 + "i = 1", "characters"),
    ],
)
def test_what_is_wrong_is_said_clearly(condition, message):
    with pytest.raises(PredicateError, match=message):
        bind(parse(condition), FIELDS)


def test_partitions_are_pruned_by_what_is_computed_of_them_and_values_are_folded():
    lake = anabranch.connect("memory://pruned")
    table = lake.create_table("db.t", "id INT, dt DATE", partition_by="dt")
    for year in (2024, 2025, 2026):
        table.append([{"id": year, "dt": dt.date(year, 1, 1)}])
    assert [s.partition for s in table.scan("year(dt) = 2025").plan().splits] == [
        s.partition for s in table.scan("dt = DATE '2025-01-01'").plan().splits
    ]
    assert len(table.scan("year(dt) = 2025").plan().splits) == 1
    assert len(table.scan("id = 2000 + 25").plan().splits) == 1, "statistics of files tell"
    assert table.scan("id = 2000 + 25").count() == 1


def test_old_columns_and_columns_that_were_renamed(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "id INT, v STRING")
    table.append([{"id": 1, "v": "a"}])
    table.alter().rename_column("v", "w").widen_column("id", "BIGINT").add_column("n", "INT").apply()
    table.append([{"id": 2**40, "w": "A", "n": 1}])
    assert table.scan("upper(w) = 'A' AND id * 2 > 1").count() == 2
    assert table.scan("coalesce(n, 5) = 5").to_arrow()["id"].to_pylist() == [1]
    assert table.scan("n + 1 IS NULL", columns=["w"]).to_arrow()["w"].to_pylist() == ["a"]


def test_without_sqlglot_other_filters_need_nothing(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sqlglot"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    assert one("i > -1 AND v LIKE 'a%' AND x = CAST('NaN' AS DOUBLE) OR i IN (1)", i=1)
    with pytest.raises(PredicateError, match=r"anabranch\[filters\]"):
        parse("upper(v) = 'A'")
    with pytest.raises(PredicateError) as caught:
        parse("v = ")
    assert "filters]" not in str(caught.value)
