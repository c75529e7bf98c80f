"""Rows of CSV and JSON files are stored as what they are, or refused."""

import datetime as dt
import io
import json
import math
import types
from decimal import Decimal

import pytest

import anabranch
from anabranch.cli.main import run
from tests.support.lengths import first_short


@pytest.fixture
def cli(tmp_path, capsys, monkeypatch):
    def call(*words, code=0, given=None):
        if given is not None:
            content = given if isinstance(given, bytes) else given.encode()
            monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
        assert run(["-w", str(tmp_path / "lake"), *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


@pytest.fixture
def stored(cli):
    """The rows of a new table with these columns, after text in a format was appended."""
    made = []

    def append(columns, text, file_format):
        name = f"db.t{len(made)}"
        made.append(name)
        cli("create-table", name, columns)
        cli("append", name, "-", "--format", file_format, given=text)
        return [json.loads(line) for line in cli("read", name, "--json").splitlines()]

    return append


@pytest.fixture
def refused(cli):
    """What is said to text of a format that is refused; nothing of it is stored."""
    made = []

    def append(columns, text, file_format):
        name = f"db.r{len(made)}"
        made.append(name)
        cli("create-table", name, columns)
        said = cli("append", name, "-", "--format", file_format, given=text, code=2)
        assert cli("read", name, "--json") == ""
        assert "not an error we know" not in said
        return said

    return append


NAMES = ["NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "NaN", "nan", "-nan", "None", "1.#QNAN"]


def test_only_an_empty_value_without_quotes_is_null_in_csv(stored):
    text = "s,n\n" + "".join(f'{name},1\n"{name}",1\n' for name in NAMES) + ',\n"",\n'
    rows = stored("s STRING, n INT", text, "csv")
    assert [row["s"] for row in rows] == [name for name in NAMES for _ in range(2)] + [None, ""]
    assert rows[-1]["n"] is None


def test_numbers_of_csv_that_are_none_or_infinite(stored):
    text = "d,f\nNaN,nan\n inf ,-Infinity\n1.5,\n,16777216\n1e39,3.4028234663852886e38\n"
    rows = stored("d DOUBLE, f FLOAT", text, "csv")
    assert [tuple(row.values()) for row in rows] == [
        ("NaN", "NaN"),
        ("Infinity", "-Infinity"),
        (1.5, None),
        (None, 16777216.0),
        (1e39, 3.4028234663852886e38),
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    [("INT", "NA"), ("INT", "NULL"), ("DOUBLE", "NA"), ("DOUBLE", "1e400"), ("FLOAT", "1e39"),
     ("FLOAT", "-1e39"), ("DOUBLE", "x"), ("DOUBLE", '""'), ("DATE", "null")],
)  # fmt: skip
def test_values_of_csv_that_fit_no_column(refused, column, value):
    said = refused(f"id INT, v {column}", f"id,v\n1,\n2,{value}\n", "csv")
    assert "cannot be read as csv" in said


UTC = dt.UTC
ROUND_TRIPS = [
    ("BYTES", [b"\x00\xff", b"", b"text", None]),
    ("BINARY(2)", [b"ab"]),
    ("DATE", [dt.date(2026, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    ("TIME(3)", [dt.time(12), dt.time(23, 59, 59, 999000), dt.time(0)]),
    ("DOUBLE", [math.nan, math.inf, -math.inf, 0.1, 5e-324, -0.0, 1e22, None]),
    ("FLOAT", [math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1e-45, 16777216.0]),
    ("DECIMAL(38, 10)", [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001")]),
    ("TIMESTAMP(0)", [dt.datetime(2026, 1, 1)]),
    ("TIMESTAMP(3)", [dt.datetime(2026, 1, 1, 0, 0, 0, 123000), dt.datetime(1, 1, 1)]),
    ("TIMESTAMP(6)", [dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 1)]),
    ("TIMESTAMP_LTZ(3)", [dt.datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)]),
    ("TIMESTAMP_LTZ(6)", [dt.datetime(1, 1, 1, tzinfo=UTC), None]),
    ("BIGINT", [2**63 - 1, -(2**63)]),
    ("BOOLEAN", [True, False, None]),
    ("STRING", ["", "NaN", 'a\u2028\n\r"b', "\U0010ffff", None]),
    ("ARRAY<BYTES>", [[b"\x00", None], [], None]),
    ("ARRAY<DATE>", [[dt.date(2026, 1, 1)]]),
    ("MAP<INT, STRING>", [{1: "a"}, {}, None]),
    ("MAP<DATE, ARRAY<DOUBLE>>", [{dt.date(2026, 1, 1): [math.inf, None]}]),
    ("MAP<BYTES, BYTES>", [{b"\x00": b"\xff"}]),
    ("MULTISET<STRING>", [{"a": 2}]),
    ("ROW<x BYTES, y ROW<z TIME(3)>>", [{"x": b"a", "y": {"z": dt.time(1)}}, {"x": None, "y": None}, None]),
]


@pytest.mark.parametrize(("column", "given"), ROUND_TRIPS, ids=[column for column, _ in ROUND_TRIPS])
def test_what_read_prints_can_be_appended(cli, tmp_path, column, given):
    lake = anabranch.connect(str(tmp_path / "lake"))
    source = lake.create_table("db.a", f"id INT, v {column}")
    copy = lake.create_table("db.b", f"id INT, v {column}")
    source.append([{"id": n, "v": value} for n, value in enumerate(given)])
    printed = cli("read", "db.a", "--json")
    cli("append", "db.b", "-", "--format", "json", given=printed)
    assert cli("read", "db.b", "--json") == printed
    assert repr(copy.scan().to_arrow().to_pylist()) == repr(source.scan().to_arrow().to_pylist())


def test_nanoseconds_can_be_appended_as_they_are_printed(stored):
    columns = "t TIMESTAMP(9), z TIMESTAMP_LTZ(9)"
    row = {"t": "2026-01-01T00:00:00.123456789", "z": "2026-01-01T00:00:00.123456789+00:00"}
    assert stored(columns, json.dumps(row), "json") == [row]


def test_forms_of_json_that_are_taken(stored):
    columns = "id INT, m MAP<INT, BOOLEAN>, d DECIMAL(10, 2), f DOUBLE, z TIMESTAMP_LTZ(3), day TIMESTAMP(0)"
    text = (
        '\ufeff{"id": 1, "m": {"1": true, "-2": null}, "d": "1e2", "f": 7, "z": "2026-01-01 01:30:00+01:30"}\r\n'
        '\n{}\r{"d": 1.5, "f": NaN, "z": "2026-01-01T00:00:00", "day": "2026-01-01"}\n'
    )
    assert [tuple(row.values()) for row in stored(columns, text, "json")] == [
        (1, [[1, True], [-2, None]], "100.00", 7.0, "2026-01-01T00:00:00+00:00", None),
        (None,) * 6,
        (None, None, "1.50", "NaN", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00"),
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    first_short([
        ("BYTES", '"zz!"'), ("BYTES", '"AP8"'), ("BYTES", "5"), ("DATE", "5"), ("DATE", '"2026-02-30"'),
        ("DATE", '"2026-01-01T12:00:00"'), ("DATE", '"20260101"'), ("TIME(3)", '"24:00:00"'), ("TIME(3)", "5"),
        ("TIME(3)", '"12:00:00.123456"'), ("TIME(3)", '"12:00:00Z"'), ("TIMESTAMP(3)", '"2026-01-01T00:00:00+05:00"'),
        ("TIMESTAMP(3)", '"2026-01-01T00:00:00.123456"'), ("TIMESTAMP(6)", '"2026-01-01T00:00:00.123456789"'),
        ("FLOAT", "1e39"), ("FLOAT", "-1e39"), ("DOUBLE", "1e400"), ("DOUBLE", "-1e400"), ("DOUBLE", "1" + "0" * 400),
        ("DOUBLE", '"1.5"'), ("DOUBLE", "true"), ("DOUBLE", '"inf"'),
        ("INT", "1.0"), ("INT", '"1"'), ("INT", "true"), ("INT", "2147483648"), ("BOOLEAN", "1"), ("STRING", "5"),
        ("STRING", "1.5"), ("STRING", '"\\ud800"'), ("DECIMAL(5, 2)", "1.234"), ("DECIMAL(5, 2)", '"1_0"'),
        ("DECIMAL(5, 2)", '"NaN"'), ("DECIMAL(5, 2)", "NaN"), ("DECIMAL(5, 2)", "1e99"), ("DECIMAL(5, 2)", '"x"'),
        ("MAP<STRING, INT>", '[["a"]]'), ("MAP<STRING, INT>", "[[null, 1]]"), ("MAP<INT, INT>", '{"x": 1}'),
        ("MAP<FLOAT, INT>", '{"1e39": 1}'), ("ARRAY<INT>", '"ab"'), ("ARRAY<INT>", "{}"), ("ROW<a INT>", "[1]"),
    ], 20),
)  # fmt: skip
def test_values_of_json_that_fit_no_column(refused, column, value):
    said = refused(f"id INT, v {column}", f'{{"id": 1}}\n{{"id": 2, "v": {value}}}\n', "json")
    assert "column 'v" in said
    assert "Decimal(" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    first_short([
        ('{"id": 1}\n{"id": 1e9999999999999999999}', "line 2"), ('{"id": 1}\n{"id": "x"}\n{"id": 3}', "line 2"),
        ("5", "line 1"), ("null", "line 1"), ('{"id": 1}\n[{"id": 2}]', "line 2"), ('{"id": 1} x', "line 1"),
        ('{"id": 1}\n\n{"id": 2', "line 3"), (b'{"s": "\xff"}', "utf-8"), ('{"s": ' + "[" * 100_000, "line 1"),
        ('{"ID": 5}', "no column 'ID'"), ('{"r": {"x": 1, "z": 2}}', "no column 'r.z'"),
    ], 4),
)  # fmt: skip
def test_what_is_no_row_of_json(refused, text, said):
    assert said in refused("id INT, s STRING, r ROW<x INT>", text, "json")


@pytest.mark.long
def test_hexadecimal_numbers_are_refused_in_csv(refused, stored):
    for kind in ("TINYINT", "INT", "BIGINT", "DOUBLE"):
        assert "0x10" in refused(f"a {kind}", "a\n1\n0x10\n", "csv")
    assert stored("a BIGINT, b INT", "b,a\n 7 ,9223372036854775807\n,-5\n", "csv") == [
        {"a": 9223372036854775807, "b": 7},
        {"a": -5, "b": None},
    ]
    assert "9223372036854775808" in refused("a BIGINT", "a\n9223372036854775808\n", "csv")
    assert "200" in refused("a TINYINT", "a\n200\n", "csv")


@pytest.mark.parametrize("end", first_short(["\n", "\r\n"]))
def test_an_empty_line_of_one_column_is_null_in_csv(stored, refused, end):
    assert stored("a STRING", end.join(["a", "x", "", '""', "y", ""]), "csv") == [
        {"a": "x"},
        {"a": None},
        {"a": ""},
        {"a": "y"},
    ]
    assert stored("a INT", end.join(["", "", "a", "1", "", "2", "", ""]), "csv") == [
        {"a": 1},
        {"a": None},
        {"a": 2},
        {"a": None},
    ]
    assert stored("a INT, b INT", end.join(["a,b", "1,2", "", "3,", ""]), "csv") == [
        {"a": 1, "b": 2},
        {"a": 3, "b": None},
    ]
    assert "a" in refused("a INT NOT NULL", end.join(["a", "1", "", "2"]), "csv")


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("id INT", '{"id": 1, "id": 2}'),
        ("id INT, r ROW<a INT>", '{"id": 1, "r": {"a": 1, "a": 1}}'),
        ("id INT, m MAP<STRING, INT>", '{"id": 1, "m": {"a": 1, "a": 2}}'),
    ],
)
def test_a_key_that_is_there_twice_is_refused_in_json(refused, columns, row):
    said = refused(columns, '{"id": 0}\n' + row + "\n", "json")
    assert "line 2" in said
    assert "twice" in said
