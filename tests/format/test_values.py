"""Physical values from Arrow and back, without loss."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SchemaError
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    DataType,
    DateType,
    DecimalType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarCharType,
)
from anabranch.format.types.values import from_physical, physical_value, physical_values
from tests.format.row_values import atomic_types, same, values_of


@given(st.data())
def test_round_trip(data: st.DataObject):
    data_type = data.draw(atomic_types())
    values = data.draw(st.lists(st.none() | values_of(data_type), max_size=6))
    array = from_physical(values, data_type)
    assert array.type == to_arrow_type(data_type)
    array.validate(full=True)
    assert same(physical_values(array, data_type), values)
    assert same([physical_value(scalar, data_type) for scalar in array], values)
    assert same(physical_values(pa.chunked_array([array, array]), data_type), values * 2)


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize(("unit", "nanos"), [("s", -(10**9)), ("ms", -(10**6)), ("us", -(10**3)), ("ns", -1)])
def test_timestamps_before_1970_are_exact(unit: str, nanos: int, zone: str | None):
    array = pa.array([-1, None], pa.int64()).view(pa.timestamp(unit, zone))
    for data_type in (TimestampType(6), LocalZonedTimestampType(9)):
        assert physical_values(array, data_type) == [nanos, None]


def test_timestamps_round_towards_the_past():
    assert from_physical([-1, 1], TimestampType(3)).cast(pa.int64()).to_pylist() == [-1, 0]
    assert from_physical([-1, 1], TimestampType(0)).cast(pa.int64()).to_pylist() == [-1, 0]


def test_columns_of_fitting_types_are_taken():
    assert physical_values(pa.array([Decimal("1.5")], pa.decimal128(3, 1)), DecimalType(10, 2)) == [
        Decimal("1.50")
    ]
    assert physical_values(pa.array(["a"]).dictionary_encode(), VarCharType()) == ["a"]
    assert physical_values(pa.nulls(2), DateType()) == [None, None]
    assert physical_value(pa.scalar(3, pa.int8()), BigIntType()) == 3


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (pa.array([2**40]), IntType()),
        (pa.array(["x"]), BigIntType()),
        (pa.array([Decimal("1.555")]), DecimalType(5, 2)),
        (pa.array([[1]]), ArrayType(IntType())),
    ],
)
def test_columns_that_do_not_fit_are_refused(array: pa.Array, data_type: DataType):
    with pytest.raises(SchemaError):
        physical_values(array, data_type)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (2**31, IntType()),
        ("x", IntType()),
        (2**63, TimestampType(9)),
        (Decimal("1.555"), DecimalType(5, 2)),
        (Decimal(1000), DecimalType(5, 2)),
        ("\ud800", VarCharType()),
        (2**31, TimeType()),
        ([1], ArrayType(IntType())),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any, data_type: DataType):
    with pytest.raises(SchemaError):
        from_physical([value], data_type)
