"""Rows kept by Arrow are the rows for which a slow reading of the predicate says TRUE."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.expr import any_of, bind, col, filter_mask, for_footers, parse, to_arrow
from anabranch.format.types.data_types import BigIntType, DoubleType, Field, IntType, RowType, VarCharType
from tests.support.lengths import first_short

from .model import CASES, SCHEMA, every_row, every_test, predicates, rows, table_of, truth


def test_every_test_on_every_value_agrees_with_the_slow_reading():
    data = every_row()
    table = table_of(data)
    for predicate in every_test(list(CASES)):
        expected = [truth(predicate, row) is True for row in data]
        assert filter_mask(bind(predicate, SCHEMA), table).to_pylist() == expected, str(predicate)


tables = st.lists(rows, max_size=12)


@settings(max_examples=100, deadline=None)
@given(st.lists(predicates(), min_size=1, max_size=6), tables)
def test_agrees_with_the_slow_reading(many, data):
    table = table_of(data)
    numbered = table.append_column("n", pa.array(range(len(data)), pa.int64()))
    for predicate in many:
        expected = [i for i, row in enumerate(data) if truth(predicate, row) is True]
        bound = bind(predicate, SCHEMA)
        assert numbered.filter(to_arrow(bound))["n"].to_pylist() == expected, str(predicate)
        assert filter_mask(bound, table).to_pylist() == [i in expected for i in range(len(data))]


def test_agrees_when_arrow_skips_row_groups_by_their_statistics(tmp_path):
    # Arrow's writer leaves NaN out of Parquet statistics, and its reader believes them.
    path = tmp_path / "one-row-a-group.parquet"
    groups = [[math.nan], [1.0, math.nan], [1.0], [None], [-0.0], [0.0], [7.0, math.nan, None]]
    data = [{"d": v, "n": i} for i, group in enumerate(groups) for v in group]
    table = pa.Table.from_pylist(data, pa.schema([("d", pa.float64()), ("n", pa.int32())]))
    with pq.ParquetWriter(path, table.schema) as writer:
        for i in range(len(groups)):
            writer.write_table(table.filter(pa.compute.equal(table["n"], i)))
    fields = (Field(0, "d", DoubleType()), Field(1, "n", IntType()))
    column = col("d")
    for value in (1.0, 0.0, -0.0, 7.0, 100.0, math.nan, -math.inf):
        for test in (
            column == value,
            column < value,
            column <= value,
            column.is_in([value, 55]),
            column.same_as(value),
        ):
            for predicate in (test, ~test):
                bound = bind(predicate, fields)
                read = pq.read_table(path, filters=to_arrow(for_footers(bound))).filter(to_arrow(bound))
                expected = table.filter(filter_mask(bound, table))
                assert read["n"].to_pylist() == expected["n"].to_pylist(), str(bound)


FEW = (
    Field(0, "i", IntType()),
    Field(1, "d", DoubleType()),
    Field(
        2,
        "r",
        RowType((Field(3, "x", IntType()), Field(4, "deep", RowType((Field(5, "y", VarCharType()),))))),
    ),
    Field(6, "b", BigIntType()),
)


def test_columns_can_have_other_names_in_the_data():
    table = pa.table({"old.name": pa.array([1, 2, None], pa.int32()), "i": ["not", "this", "one"]})
    bound = bind(parse("i >= 2 or i is null"), FEW)
    assert table.filter(to_arrow(bound, {0: "old.name"})).num_rows == 2
    assert filter_mask(bound, table, {0: "old.name"}).to_pylist() == [False, True, True]


def test_fields_of_null_rows_are_null_whatever_lies_beneath():
    inner = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "a"])], ["y"], mask=pa.array([False, False, True])
    )
    xs = pa.array([1, 2, 3], pa.int32())
    outer = pa.StructArray.from_arrays([xs, inner], ["x", "deep"], mask=pa.array([False, True, False]))
    table = pa.table({"r": outer})
    for sql, expected in [
        ("r.x > 0", [True, False, True]),
        ("r.x is null", [False, True, False]),
        ("r.deep.y = 'a'", [True, False, False]),
        ("r.deep.y is null", [False, True, True]),
        ("not r.deep.y = 'b'", [True, False, False]),
        ("r.deep is null", [False, True, True]),
    ]:
        bound = bind(parse(sql), FEW)
        assert filter_mask(bound, table).to_pylist() == expected, sql
        assert table.filter(to_arrow(bound)).num_rows == sum(expected), sql


def test_masks_of_constants_chunks_batches_and_nothing():
    table = pa.concat_tables(
        [pa.table({"i": pa.array(part, pa.int32())}) for part in ([1, 2], [], [3, None])]
    )
    assert filter_mask(bind(parse("i > 1"), FEW), table).to_pylist() == [False, True, True, False]
    assert filter_mask(bind(parse("true"), FEW), table).to_pylist() == [True] * 4
    assert filter_mask(bind(parse("i > 5000000000"), FEW), table).to_pylist() == [False] * 4
    assert table.filter(to_arrow(bind(parse("true"), FEW))).num_rows == 4
    assert table.filter(to_arrow(bind(parse("false"), FEW))).num_rows == 0
    assert filter_mask(bind(parse("i > 1"), FEW), table.to_batches()[0]).to_pylist() == [False, True]
    assert filter_mask(bind(parse("i > 1"), FEW), table.slice(0, 0)).to_pylist() == []


def test_large_integers_next_to_doubles_are_rounded_as_in_spark():
    table = pa.table({"b": pa.array([2**53 + 1, 2**53], pa.int64()), "d": [2.0**53, math.nan]})
    assert filter_mask(bind(parse("b = d"), FEW), table).to_pylist() == [True, False]
    assert table.filter(to_arrow(bind(parse("b < d"), FEW))).num_rows == 1


@pytest.mark.parametrize("count", first_short([33, 1_100, 3_000], 2))
def test_wide_predicates_do_not_overflow_the_stack(count):
    last = 2 * count - 2
    table = pa.table({"i": pa.array([0, 4, 5, last, last + 2], pa.int32()), "d": [1e9, 1e9, 1e9, 1e9, 1e9]})
    either = any_of((col("i") == 2 * i) & (col("d") > i) for i in range(count))
    for predicate, expected in [(either, [0, 4, last]), (~either, [5, last + 2])]:
        bound = bind(predicate, FEW)
        assert table.filter(to_arrow(bound))["i"].to_pylist() == expected
        assert table.filter(filter_mask(bound, table))["i"].to_pylist() == expected


@pytest.mark.long
@settings(max_examples=5_000, deadline=None)
@given(predicates(), tables)
def test_agrees_with_the_slow_reading_long(predicate, data):
    expected = [truth(predicate, row) is True for row in data]
    assert filter_mask(bind(predicate, SCHEMA), table_of(data)).to_pylist() == expected
