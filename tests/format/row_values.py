"""Types and physical values to try BinaryRows with."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.format.types.data_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.values import from_physical

_INTEGERS = {TinyIntType: 8, SmallIntType: 16, IntType: 32, BigIntType: 64, DateType: 32}


@st.composite
def decimal_types(draw: st.DrawFn) -> DecimalType:
    precision = draw(st.integers(1, 38))
    return DecimalType(precision, draw(st.integers(0, precision)))


def atomic_types() -> st.SearchStrategy[DataType]:
    plain = (
        BooleanType(),
        *(t() for t in _INTEGERS),
        FloatType(),
        DoubleType(),
        VarCharType(),
        VarBinaryType(),
    )
    return st.one_of(
        st.sampled_from((*plain, CharType(3), BinaryType(3), TimeType(3))),
        decimal_types(),
        st.builds(TimestampType, st.integers(0, 9)),
        st.builds(LocalZonedTimestampType, st.integers(0, 9)),
    )


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values, never None, that the Arrow type can hold."""
    match data_type:
        case BooleanType():
            return st.booleans()
        case FloatType():
            return st.floats(width=32, allow_nan=False) | st.just(float("nan"))
        case DoubleType():
            return st.floats(allow_nan=False) | st.just(float("nan"))
        case TimeType():
            return st.integers(0, 86_399_999)
        case TimestampType(precision=precision) | LocalZonedTimestampType(precision=precision):
            unit, limit = {0: (10**9, 2**63 // 1000), 3: (10**6, 2**63), 6: (10**3, 2**63), 9: (1, 2**63)}[
                -(-precision // 3) * 3
            ]
            return st.one_of(st.integers(-limit, limit - 1), st.integers(-(10**7), 10**7)).map(
                lambda n: n * unit
            )
        case DecimalType(precision=precision, scale=scale):
            limit = 10**precision - 1
            edges = [sign * 2**bits + d for bits in range(7, 127, 8) for sign in (1, -1) for d in (-1, 0, 1)]
            small = st.sampled_from([edge for edge in edges if abs(edge) <= limit] or [0])
            unscaled = st.one_of(st.integers(-limit, limit), small)
            return unscaled.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))
        case CharType() | VarCharType():
            return st.text(max_size=9) | st.text(max_size=80)
        case BinaryType() | VarBinaryType():
            return st.binary(max_size=9) | st.binary(max_size=80)
        case _:
            bits = _INTEGERS[type(data_type)]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def tables(draw: st.DrawFn, max_columns: int = 4) -> tuple[list[DataType], list[tuple[Any, ...]]]:
    """Types of some columns and rows of values, None among them; sometimes many rows."""
    types = draw(st.lists(atomic_types(), min_size=1, max_size=max_columns))
    rows = draw(st.lists(st.tuples(*(st.none() | values_of(t) for t in types)), min_size=1, max_size=6))
    return types, rows * draw(st.sampled_from((1, 1, 40)))


def columns_of(types: list[DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    """The columns of the rows, each a slice that does not begin where its memory does."""
    columns = zip(*rows, strict=True)
    return [
        from_physical([values[-1], *values], t).slice(1) for t, values in zip(types, columns, strict=True)
    ]


def same(left: Any, right: Any) -> bool:
    """Equality that tells zeros apart and takes NaN for equal to itself."""
    return _bits(left) == _bits(right)


def _bits(value: Any) -> Any:
    match value:
        case list() | tuple():
            return [_bits(v) for v in value]
        case float():
            return struct.pack("<d", value)
        case _:
            return (type(value), value)
