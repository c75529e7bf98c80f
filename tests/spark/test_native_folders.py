"""Partitions by the folders they lie in: values of all types, and those that share the folder of the default name."""

import logging
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from anabranch.spark.native.frame import native_frame
from tests.spark.native_cases import check, files_read, v2_frame
from tests.support.lengths import first_short

pytestmark = [pytest.mark.spark, pytest.mark.versions]

VALUES = [None, "", "  ", "a"]


@pytest.fixture
def blanks(lake):
    """A file of one row for each value, and again."""
    table = lake.create_table("db.t", "id BIGINT NOT NULL, p STRING", partition_by=["p"])
    for number in range(2):
        for value in VALUES:
            table.append([{"id": number, "p": value}])
    assert len(set(table.scan().plan().folders)) == 2
    return table


@pytest.mark.parametrize("made", first_short([native_frame, v2_frame]))
def test_rows_are_read_once_and_have_the_value_of_their_own_partition(spark, blanks, made, caplog):
    caplog.set_level(logging.WARNING, "anabranch.spark.native.door")
    scan = blanks.scan()
    conditions = ["true", "p IS NULL", "p IS NOT NULL", "p = ''", "p <=> ''", "p IN ('', 'a')", "p = '  '",
                  "length(p) = 0", "NOT (length(p) = 1)", "p <=> '' OR length(p) > 0", "id = 1", "id = 1 AND length(p) = 2"]  # fmt: skip
    check(spark, made(spark, scan), scan, conditions)
    check(spark, made(spark, scan), scan, conditions, ["p"])
    assert not caplog.records


def test_files_are_left_out_by_the_value_of_their_partition(spark, blanks):
    frame = v2_frame(spark, blanks.scan()).filter("p = '  '")
    assert len(frame.collect()) == 2
    assert files_read(frame) == 2


@pytest.mark.long
def test_a_join_leaves_out_those_of_another_value(spark, blanks):
    few = spark.createDataFrame([("", 1), ("none", 2)], "q STRING, n INT").filter("n > 0")
    for made in (native_frame, v2_frame):
        frame = made(spark, blanks.scan())
        joined = frame.join(few.hint("broadcast"), frame.p == few.q)
        assert [row.p for row in joined.collect()] == ["", ""]
        assert files_read(joined, "dynamicpruning") == 2


def test_a_self_join_pairs_each_row_once(spark, blanks):
    frame = v2_frame(spark, blanks.scan())
    pairs = frame.alias("a").join(frame.alias("b"), "id").selectExpr("a.p", "b.p")
    assert pairs.count() == 2 * len(VALUES) ** 2


ODD = ["", " ", "__DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__", "a=b", "é", "\U0001f600", "%", "null", "a\nb", "a\tb ",
       ".", "..", "_x", ".x", "a:b", "a\\b", "\x7f", "'"]  # fmt: skip
BY_TYPE = {
    "STRING": ODD,
    "VARCHAR(30)": ODD[:6],
    "CHAR(3)": ["   ", "ab ", "abc"],
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "BIGINT": [1 - 2**63, 0, 2**63 - 1],
    "FLOAT": [0.0, -0.0, math.inf, 1.5, 0.1, math.nan],
    "DOUBLE": [0.0, -0.0, -math.inf, 1e300, 5e-324, math.nan],
    "DECIMAL(5, 2)": [Decimal("-0.50"), Decimal("0.00"), Decimal("999.99")],
    "DECIMAL(20, 4)": [Decimal("-0.5000"), Decimal("9999999999999999.9999")],
    "DATE": [date(1582, 10, 4), date(1970, 1, 1), date(2026, 3, 8), date(9999, 12, 31)],
    "TIMESTAMP(3)": [datetime(1900, 1, 1), datetime(2026, 3, 8, 2, 30), datetime(2026, 11, 1, 1, 30, 0, 123000)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 3, 8, 7, 30, 0, 1, UTC)],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "VARCHAR(30)" else pytest.mark.long) for kind in BY_TYPE]
)
@pytest.mark.parametrize("made", first_short([native_frame, v2_frame]))
def test_values_of_partitions_are_compared_as_those_of_rows(spark, lake, made, kind):
    table = lake.create_table("db.t", f"id BIGINT NOT NULL, p {kind}, q STRING", partition_by=["p", "q"])
    values = [*BY_TYPE[kind], None]
    table.append([{"id": n, "p": v, "q": q} for n, v in enumerate(values) for q in (None, "", "x")])
    conditions = ["true", "p IS NULL", "p IS NOT NULL AND q <=> ''"]
    for text in (in_sql(kind, value) for value in BY_TYPE[kind]):
        conditions += [f"p = {text}", f"p > {text} OR q IS NULL", f"NOT (p >= {text})", f"p IN ({text}, NULL)",
                       f"CAST(p AS STRING) = CAST({text} AS STRING) AND q <> ''"]  # fmt: skip
    scan = table.scan()
    check(spark, made(spark, scan), scan, conditions)


def in_sql(kind, value):
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bool() | Decimal():
            return str(value) + "BD" * isinstance(value, Decimal)
        case datetime():
            return f"{'TIMESTAMP_NTZ' if value.tzinfo is None else 'TIMESTAMP'} '{value}'"
        case date():
            return f"DATE '{value}'"
    return f"{kind}('{value}')"
