"""Tables whose columns have changed, by Spark's own reader: what Spark gets wrong by itself."""

import logging
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from anabranch.arrow import parquet_encode
from anabranch.spark.native.frame import native_frame
from tests.spark.native_cases import check, files_read, v2_frame

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture
def checked(spark):
    """Both ways in give what the embedded engine gives; the second, often portable and slow, to one question."""

    def check_both(table, asked):
        scan = table.scan()
        check(spark, native_frame(spark, scan), scan, ["true", *asked])
        check(spark, v2_frame(spark, scan), scan, asked[:1])

    return check_both


@pytest.fixture
def portable(caplog):
    caplog.set_level(logging.WARNING, "anabranch.spark.native.door")
    return lambda: [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]


def rows(**columns):
    return pa.table(columns)


def ints(*values):
    return pa.array(values, pa.int32())


def test_a_name_that_is_used_again_is_another_column(spark, lake, checked):
    """Found by name in old files, and filters by it in their footers, Spark would lose rows and find others."""
    table = lake.create_table("db.t", "id INT, a INT, b INT")
    table.append(rows(id=ints(1, 2), a=ints(10, 11), b=ints(1, 1)))
    table.alter().rename_column("a", "c").rename_column("b", "a").apply()
    table.append(rows(id=ints(3), c=ints(20), a=ints(2)))
    table.alter().drop_column("a").add_column("a", "STRING").apply()
    table.append(rows(id=ints(4), c=ints(30), a=["x"]))
    asked = [
        "c = 10",
        "c IN (11, 20)",
        "a IS NULL",
        "a = 'x'",
        "c > 10 AND a IS NULL",
        "id < 3 AND c < 11",
    ]
    checked(table, asked)


@pytest.mark.long
def test_only_the_files_of_older_schemas_are_read_apart(spark, lake, portable):
    table = lake.create_table("db.t", "id INT, a INT")
    table.append(rows(id=ints(1), a=ints(1)))
    table.alter().add_column("n", "INT").apply()
    table.append(rows(id=ints(2), a=ints(2), n=ints(2)))
    frame = native_frame(spark, table.scan())
    assert frame.inputFiles()
    assert frame._jdf.queryExecution().optimizedPlan().collectLeaves().length() == 1
    table.alter().rename_column("a", "b").apply()
    table.append(rows(id=ints(3), b=ints(3), n=ints(3)))
    frame = native_frame(spark, table.scan()).filter("b >= 2 AND n > 1")
    assert sorted(row.b for row in frame.collect()) == [2, 3]
    assert files_read(frame) == 2
    assert portable() == []
    assert v2_frame(spark, table.scan()).select("id", "n").filter("n > 2").count() == 1
    assert portable() == []  # the columns that it reads were never renamed
    assert v2_frame(spark, table.scan()).filter("b > 2").count() == 1
    assert "before columns were renamed" in portable()[0]


@pytest.mark.long
def test_fields_inside_of_values_are_found_by_what_they_are(spark, lake, checked):
    """Spark leaves fields out inside of arrays, by name."""
    table = lake.create_table("db.t", "id INT, l ARRAY<ROW<a INT, b INT>>, r ROW<a INT, b ROW<c INT>>")
    item, row = [{"a": 1, "b": 2}, None], {"a": 5, "b": {"c": 6}}
    table.append(pa.table({"id": [1, 2], "l": [item, []], "r": [row, None]}))
    table.alter().rename_column(("l", "element", "b"), "c").rename_column(("r", "b", "c"), "d").apply()
    table.alter().add_column(("l", "element", "b"), "STRING").add_column(("r", "b", "c"), "STRING").apply()
    later = {"id": 3, "l": [{"a": 7, "c": 8, "b": "x"}], "r": {"a": 9, "b": {"d": 1, "c": "y"}}}
    table.append(pa.Table.from_pylist([later], table.writer().schema))
    asked = [
        "get(l, 0).c = 2",
        "r.b.d = 6",
        "r.b.c IS NULL",
        "r.b.c = 'y'",
        "exists(l, x -> x.b = 'x')",
        "r IS NULL",
    ]
    checked(table, asked)
    narrow = native_frame(spark, table.scan()).selectExpr("l.b AS b", "l.c AS c", "r.b.c AS y").collect()
    assert sorted(map(repr, map(tuple, narrow))) == sorted(
        map(repr, [([None, None], [2, None], None), ([], [], None), (["x"], [8], "y")])
    )


@pytest.mark.long
def test_widened_columns(spark, lake, checked):
    table = lake.create_table("db.t", "i INT, f FLOAT, d DECIMAL(4, 2), v VARCHAR(2), l ARRAY<INT>, n INT")
    old = {"i": 2**31 - 1, "f": 0.1, "d": Decimal("99.99"), "v": "ab", "l": [1, None], "n": -5}
    table.append(pa.Table.from_pylist([old, dict.fromkeys(old)], table.writer().schema))
    change = (
        table.alter()
        .widen_column("i", "BIGINT")
        .widen_column("f", "DOUBLE")
        .widen_column("d", "DECIMAL(20, 4)")
    )
    change.widen_column("v", "STRING").widen_column(("l", "element"), "BIGINT").widen_column(
        "n", "DOUBLE"
    ).apply()
    new = {"i": 2**40, "f": 0.5, "d": Decimal("99.9999"), "v": "abc", "l": [2**40], "n": 0.5}
    table.append(pa.Table.from_pylist([new], table.writer().schema))
    asked = ["i = 2147483647", "i > 2147483647", "f = 0.1", "f < 0.2", "d = 99.99", "v > 'ab'", "n < 0",
             "l[0] = 1", "i IS NULL", "i = 5000000000 OR d > 99.99", "i IN (2147483647, 1099511627776)"]  # fmt: skip
    checked(table, asked)


def test_not_null_is_believed_only_where_it_is_so(spark, lake, checked):
    """Spark leaves out the test of what it believes not to be null."""
    table = lake.create_table("db.t", "id INT NOT NULL, v INT NOT NULL")
    table.append(rows(id=ints(1), v=ints(1)))
    table.alter().drop_not_null("v").apply()
    table.append(rows(id=ints(2), v=ints(None)))
    checked(table, ["v IS NULL", "v IS NOT NULL", "v = 1"])
    frame = native_frame(spark, table.scan())
    assert [field.nullable for field in frame.schema] == [False, True]


@pytest.mark.long
def test_footers_without_nan_are_not_believed(spark, lake, checked, monkeypatch):
    """As pypaimon has them: Arrow leaves NaN out of bounds, and Spark would skip what is greater than all."""
    monkeypatch.setattr(parquet_encode, "_ordered", lambda table, leaves: True)
    table = lake.create_table("db.t", "g DOUBLE, f FLOAT, r ROW<g DOUBLE>")
    nan = float("nan")
    table.append(
        pa.Table.from_pylist([{"g": x, "f": x, "r": {"g": x}} for x in (1.0, nan)], table.writer().schema)
    )
    asked = ["g > 5", "f > 5", "r.g > 5", "g = double('NaN')", "g >= 1 AND f >= 1", "NOT (r.g <= 1)"]
    checked(table, asked)


def test_what_must_not_be_null_and_is_missing_is_an_error(spark, lake, portable):
    """Of who reads on in the columns of before; Spark would take nulls for values."""
    table = lake.create_table("db.t", "id INT, v INT NOT NULL")
    table.append(rows(id=ints(1), v=ints(1)))
    before = table.schema
    table.alter().drop_column("v").apply()
    table.append(rows(id=ints(2)))
    with pytest.raises(PySparkException, match="'v' is NOT NULL"):
        native_frame(spark, replace(table.scan(), schema=before)).collect()
    assert "column 'v' is NOT NULL, and files of schema 1 lack it" in portable()[0]
