"""Partitions that share a folder: null, an empty text and blanks all lie in the one of the default name."""

import logging

import pytest

from anabranch.spark.native.frame import native_frame
from tests.spark.native_cases import check, files_read, v2_frame

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


@pytest.mark.parametrize("made", [native_frame, v2_frame])
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
