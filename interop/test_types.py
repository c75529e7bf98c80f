"""Every type with its edge values and nulls: written here and read there, written there and read here."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerError, PeerSession

JAVA, PYPAIMON = "java-0.9", "pypaimon-2.1"
LONG_TEXT = "a string value longer than any statistics keep"

SCALARS = (
    "n INT, b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, "
    "text STRING, raw BYTES, on_day DATE, at TIME"
)
SCALAR_ROWS: Rows = [
    [0, True, -128, -32768, -(2**31), -(2**63), -3.4028234663852886e38, -1.7976931348623157e308,
     "", "", "0001-01-01", "00:00:00.000000000"],
    [1, False, 127, 32767, 2**31 - 1, 2**63 - 1, 3.4028234663852886e38, 1.7976931348623157e308,
     LONG_TEXT, "00ff" * 20, "9999-12-31", "23:59:59.999000000"],
    [2, True, 0, 0, 0, 0, 1.401298464324817e-45, 5e-324,
     "\U0001f600 é \n\t\u0000 ¥ 漢字", "00", "1970-01-01", "12:34:56.789000000"],
    [3, False, -1, -1, -1, -1, 0.10000000149011612, 0.1, "'\"\\%_", "ff", "1969-12-31", "00:00:00.001000000"],
    [4, None, None, None, None, None, None, None, None, None, None, None],
]  # fmt: skip
SPECIAL_FLOATS: Rows = [
    [0, "NaN", "NaN"],
    [1, "Infinity", "Infinity"],
    [2, "-Infinity", "-Infinity"],
    [3, -0.0, -0.0],
    [4, 0.0, 0.0],
    [5, None, None],
]
BOUNDED = "n INT NOT NULL, c CHAR(3), v VARCHAR(5), b BINARY(4), vb VARBINARY(6)"
BOUNDED_ROWS: Rows = [
    [0, "abc", "", "00010203", ""],
    [1, "äöü", "漢字かなx", "ffffffff", "ffffffffffff"],
    [2, None, None, None, None],
]

DECIMALS = [(p, s) for p in range(1, 39) for s in sorted({0, p // 2, p})]


def decimal_rows() -> tuple[str, Rows]:
    """One column of each precision with three scales; largest, smallest, one, minus one, zero, null."""
    columns = ", ".join(f"d{p}_{s} DECIMAL({p}, {s})" for p, s in DECIMALS)
    unscaled = [[10**p - 1 for p, _ in DECIMALS], [1 - 10**p for p, _ in DECIMALS]]
    unscaled += [[value for _ in DECIMALS] for value in (1, -1, 0)]
    rows: Rows = [[digits(v, s) for v, (_, s) in zip(row, DECIMALS, strict=True)] for row in unscaled]
    return columns, [*rows, [None for _ in DECIMALS]]


def digits(unscaled: int, scale: int) -> str:
    """The canonical text of a decimal."""
    text = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return sign + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)


def timestamp_rows(precisions: range, moments: tuple[str, ...]) -> tuple[str, Rows]:
    """TIMESTAMP and TIMESTAMP_LTZ of each precision; moments are cut to what the precision can hold."""
    kinds = [(kind, p) for p in precisions for kind in ("TIMESTAMP", "TIMESTAMP_LTZ")]
    columns = ", ".join(f"{kind.lower()}{p} {kind}({p})" for kind, p in kinds)
    rows: Rows = [
        [cut(moment, p) + ("Z" if kind == "TIMESTAMP_LTZ" else "") for kind, p in kinds] for moment in moments
    ]
    return columns, [*rows, [None for _ in kinds]]


def cut(moment: str, precision: int) -> str:
    """Zero the digits that a precision does not keep."""
    seconds, _, fraction = moment.partition(".")
    return f"{seconds}.{fraction[:precision].ljust(9, '0')}"


ORDINARY = (
    "1970-01-01T00:00:00.000000000",
    "2024-02-29T23:59:59.999999999",
    "2262-04-11T23:47:16.854775807",
    "1999-12-31T12:34:56.123456789",
)
BEFORE_1970 = ("1969-12-31T23:59:59.999999999", "1900-01-01T00:00:00.000000001")
FAR = ("0001-01-01T00:00:00.000001000", "9999-12-31T23:59:59.999999000")

NESTED = (
    "n INT, ints ARRAY<INT>, texts ARRAY<STRING>, counts MAP<STRING, BIGINT>, prices MAP<INT, DECIMAL(20, 3)>, "
    "one ROW<x INT, y STRING, at TIMESTAMP(3)>, grid ARRAY<ARRAY<DOUBLE>>, days MAP<STRING, ARRAY<DATE>>, "
    "maps ARRAY<MAP<STRING, INT>>"
)
NESTED_ROWS: Rows = [
    [0, [1, None, -3], ["", None, LONG_TEXT], [["a", 2**40], ["b", None]], [[-1, "12345678901234567.123"]],
     {"x": 1, "y": "z", "at": "2024-02-29T12:00:00.123000000"}, [[1.5, None], [], None], [["k", ["1970-01-01", None]]],
     [[["p", 1], ["q", None]], [], None]],
    [1, [], [], [], [], {"x": None, "y": "", "at": None}, [], [], []],
    [2, None, None, None, None, None, None, None, None],
]  # fmt: skip
ROWS_IN_LISTS = (
    "n INT, items ARRAY<ROW<a BIGINT, b DATE>>, "
    "deep ROW<tags ARRAY<STRING>, kv MAP<STRING, INT>, inner_row ROW<z BOOLEAN>>"
)
ROWS_IN_LISTS_ROWS: Rows = [
    [0, [{"a": 1, "b": "2024-01-01"}, None, {"a": None, "b": None}],
     {"tags": ["t", None], "kv": [["k", 1]], "inner_row": {"z": True}}],
    [1, [], {"tags": [], "kv": [], "inner_row": None}],
    [2, None, None],
]  # fmt: skip

ROW_OF_NULLS: Rows = [[0, {"x": None, "y": None}], [1, None]]


def exchange(warehouse: Path, peer: PeerSession, columns: str, rows: Rows) -> None:
    """The peer reads what we wrote and appends the same; we read both, and the peer reads both."""
    ours = Ours(warehouse, columns)
    ours.append(rows)
    same(ours.read(), rows)
    same(peer.read(warehouse, NAME), rows)
    peer.append(warehouse, NAME, rows)
    same(ours.read(), rows * 2)
    same(peer.read(warehouse, NAME), rows * 2)


def test_scalars(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, SCALARS, SCALAR_ROWS)


def test_floats_that_are_not_numbers(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, "n INT, f FLOAT, d DOUBLE", SPECIAL_FLOATS)


def test_bounded_text_and_bytes(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, BOUNDED, BOUNDED_ROWS)


def test_decimals_of_every_precision(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, *decimal_rows())


def test_timestamps_to_microseconds(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, *timestamp_rows(range(7), (*ORDINARY, *BEFORE_1970, *FAR)))


def test_timestamps_to_nanoseconds(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, *timestamp_rows(range(7, 10), ORDINARY))


def test_timestamps_of_every_precision_in_one_file(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, *timestamp_rows(range(10), ORDINARY))


def test_nanoseconds_before_1970_from_us(tmp_path: Path, peer: PeerSession) -> None:
    """Java 0.9 writes such values in a form that it cannot read back, so only our files are exchanged."""
    columns, rows = timestamp_rows(range(7, 10), BEFORE_1970)
    Ours(tmp_path, columns).append(rows)
    same(peer.read(tmp_path, NAME), rows)


def test_nanoseconds_before_1970_from_java(tmp_path: Path, java: PeerSession) -> None:
    """We read what Java 0.9 itself refuses."""
    columns, rows = timestamp_rows(range(7, 10), BEFORE_1970)
    ours = Ours(tmp_path, columns)
    java.append(tmp_path, NAME, rows)
    same(ours.read(), rows)
    with pytest.raises(PeerError, match="IllegalArgumentException"):
        java.read(tmp_path, NAME)


def test_nested(tmp_path: Path, peer: PeerSession) -> None:
    exchange(tmp_path, peer, NESTED, NESTED_ROWS)


def test_rows_in_lists(tmp_path: Path, pypaimon: PeerSession) -> None:
    exchange(tmp_path, pypaimon, ROWS_IN_LISTS, ROWS_IN_LISTS_ROWS)


def test_rows_in_lists_from_java(tmp_path: Path, java: PeerSession) -> None:
    """Java 0.9 writes rows inside lists but fails to read them, from whomever they come."""
    ours = Ours(tmp_path, ROWS_IN_LISTS)
    java.append(tmp_path, NAME, ROWS_IN_LISTS_ROWS)
    same(ours.read(), ROWS_IN_LISTS_ROWS)
    with pytest.raises(PeerError):
        java.read(tmp_path, NAME)


def test_multisets(tmp_path: Path, java: PeerSession) -> None:
    """The type that pypaimon knows but cannot open a table with."""
    exchange(tmp_path, java, "n INT, bag MULTISET<STRING>", [[0, [["x", 2], ["y", 1]]], [1, []], [2, None]])


def test_a_row_of_nulls(tmp_path: Path, pypaimon: PeerSession) -> None:
    exchange(tmp_path, pypaimon, "n INT, r ROW<x INT, y STRING>", ROW_OF_NULLS)


def test_a_row_of_nulls_from_java(tmp_path: Path, java: PeerSession) -> None:
    """Java 0.9 writes a row of nulls but reads it back as null; we read what it wrote."""
    ours = Ours(tmp_path, "n INT, r ROW<x INT, y STRING>")
    java.append(tmp_path, NAME, ROW_OF_NULLS)
    same(ours.read(), ROW_OF_NULLS)
    same(java.read(tmp_path, NAME), [[0, None], [1, None]])


def test_not_null_columns(tmp_path: Path, peer: PeerSession) -> None:
    columns = "n BIGINT NOT NULL, s STRING NOT NULL, d DECIMAL(10, 2) NOT NULL, t TIMESTAMP(6) NOT NULL"
    exchange(tmp_path, peer, columns, [[1, "x", "-1.50", "2024-01-01T00:00:00.000001000"]])


def test_a_table_of_the_peer(tmp_path: Path, peer: PeerSession) -> None:
    """Created by the peer, written by both."""
    fields = [{"id": 0, "name": "n", "type": "INT NOT NULL"}, {"id": 1, "name": "s", "type": "STRING"}]
    peer.call(
        "create_table", warehouse=str(tmp_path), table=NAME, fields=fields, partition_keys=[], options={}
    )
    ours = Ours.open(tmp_path)
    assert ours.read() == []
    ours.append([[1, "ours"]])
    peer.append(tmp_path, NAME, [[2, "theirs"]])
    ours.append([[3, None]])
    expected: Rows = [[1, "ours"], [2, "theirs"], [3, None]]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
