"""Rows kept by Arrow are the rows for which a slow reading of the predicate says TRUE."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.expr import bind, col, filter_mask, parse, to_arrow
from anabranch.spec.types import BigIntType, DoubleType, Field, IntType, RowType, VarCharType

from .model import FIELDS, SCHEMA, predicates, rows, table_of, truth

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


@pytest.mark.long
@settings(max_examples=5_000, deadline=None)
@given(predicates(), tables)
def test_agrees_with_the_slow_reading_long(predicate, data):
    expected = [truth(predicate, row) is True for row in data]
    assert filter_mask(bind(predicate, SCHEMA), table_of(data)).to_pylist() == expected
