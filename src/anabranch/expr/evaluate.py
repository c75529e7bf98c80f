"""Evaluating bound predicates on rows, by Arrow.

A row is kept when the predicate is TRUE for it. Comparisons are Spark's: strings by their UTF-8 bytes, NaN equal
to NaN and above all other numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.expr import bound as b
from anabranch.expr.functions import ComputedColumn
from anabranch.expr.like import join_pattern
from anabranch.expr.nodes import Operator


def to_arrow(predicate: b.BoundPredicate, rename: Mapping[int, str] | None = None) -> pc.Expression:
    """The predicate as an Arrow expression, for datasets, Parquet readers and `pyarrow.Table.filter`.

    It is exact for rows. A reader that skips row groups by the statistics in Parquet footers must be given the
    expression of `for_footers(predicate)` and filter what it returns once more.

    Args:
        predicate: what rows must satisfy. Its values have the Arrow types of its columns, and so must the rows.
        rename: names of top-level columns in the data, by field id, where they are not the names of the fields.
    """
    names = rename or {}
    expression: pc.Expression = _truth(predicate, lambda column: pc.field(*_path(column, names)), pc.scalar)
    return expression


def filter_mask(
    predicate: b.BoundPredicate, table: pa.Table | pa.RecordBatch, rename: Mapping[int, str] | None = None
) -> pa.BooleanArray:
    """For each row whether the predicate is TRUE, without nulls. `rename` is as in `to_arrow`."""
    names = rename or {}

    def values_of(column: b.BoundColumn) -> Any:
        top, *inner = _path(column, names)
        values = table.column(top)
        return pc.struct_field(values, inner) if inner else values

    mask = _truth(predicate, values_of, lambda value: pa.repeat(pa.scalar(value), table.num_rows))
    whole: Any = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    kept: pa.BooleanArray = whole.fill_null(False)
    return kept


_Data: TypeAlias = Any
"""An Arrow expression or array: the compute functions take both, so one translation serves both."""


def _path(column: b.BoundColumn, names: Mapping[int, str]) -> tuple[str, ...]:
    top, *inner = column.path
    return names.get(top.id, top.name), *(field.name for field in inner)


def _truth(
    predicate: b.BoundPredicate, data_of: Callable[[b.BoundColumn], _Data], constant: Callable[[bool], _Data]
) -> _Data:
    match predicate:
        case b.BoundConstant(value=value):
            return constant(value)
        case b.AllOf(children=children):
            return _all_of([_truth(c, data_of, constant) for c in children])
        case b.AnyOf(children=children):
            return _any_of([_truth(c, data_of, constant) for c in children])
        case b.CompareColumns(left=left, right=right, op=op, domain=domain):
            converted = [_converted(data_of(column), column, domain) for column in (left, right)]
            return _columns(op, converted[0], converted[1], domain)
        case b.Computed(test=test):
            return _truth(test, lambda column: _computed(column, data_of), constant)
        case b.NullTest(column=column, negated=negated):
            return pc.is_valid(data_of(column)) if negated else pc.is_null(data_of(column))
        case b.NaNTest(column=column, negated=negated):
            return _unless(negated, pc.is_nan(data_of(column)))
        case b.Compare(column=column, op=op, value=value):
            data = data_of(column)
            result = _COMPARE[op](data, column.scalar(value))
            nan_too = column.is_floating and op in {Operator.GT, Operator.GE}
            return pc.or_kleene(result, pc.is_nan(data)) if nan_too else result
        case b.OneOf(column=column):
            return _membership(predicate, data_of(column))
        case b.PrefixTest(column=column, prefix=prefix, negated=negated):
            return _unless(negated, pc.starts_with(data_of(column), pattern=prefix))
        case b.LikeTest(column=column, pattern=pattern, negated=negated):
            return _unless(negated, pc.match_like(data_of(column), pattern=join_pattern(pattern)))
    raise AssertionError(predicate)


def _computed(column: b.BoundColumn, data_of: Callable[[b.BoundColumn], _Data]) -> _Data:
    if isinstance(column, ComputedColumn):
        return column.call.computed(data_of).cast(column.arrow_type)
    return data_of(column)


_COMPARE: dict[Operator, Callable[[_Data, _Data], _Data]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}


def _unless(negated: bool, result: _Data) -> _Data:
    return pc.invert(result) if negated else result


def _membership(test: b.OneOf, data: _Data) -> _Data:
    values = test.values
    if test.column.is_floating and 0.0 in values:
        # Arrow's set tells the zeros apart, equality does not.
        values = (*(v for v in values if v != 0.0), 0.0, -0.0)
    found = pc.is_in(data, value_set=test.column.array(values))
    if not test.negated:
        return found
    # Null is in no set, and not outside of one either.
    return pc.and_kleene(pc.invert(found), pc.is_valid(data))


def _converted(data: _Data, column: b.BoundColumn, domain: pa.DataType) -> _Data:
    if column.arrow_type == domain:
        return data
    # Large integers are rounded when they meet doubles; every other conversion is exact.
    safe = not pa.types.is_floating(domain)
    return data.cast(domain, safe=safe)


def _columns(op: Operator, left: _Data, right: _Data, domain: pa.DataType) -> _Data:
    result = _COMPARE[op](left, right)
    if not pa.types.is_floating(domain):
        return result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    match op:
        case Operator.EQ:
            return pc.or_kleene(result, pc.and_kleene(left_nan, right_nan))
        case Operator.NE:
            return pc.and_kleene(result, pc.invert(pc.and_kleene(left_nan, right_nan)))
        case Operator.LT:
            return pc.or_kleene(result, pc.and_kleene(right_nan, pc.invert(left_nan)))
        case _:
            return pc.or_kleene(result, pc.and_kleene(right_nan, pc.is_valid(left)))


_CHAIN = 32
"""Tests in a row, all joined by AND or all by OR, that Arrow is given at most."""


def _all_of(parts: Sequence[_Data]) -> _Data:
    return _joined(parts, pc.and_kleene, _any_of)


def _any_of(parts: Sequence[_Data]) -> _Data:
    return _joined(parts, pc.or_kleene, _all_of)


def _joined(
    parts: Sequence[_Data], join: Callable[[_Data, _Data], _Data], dual: Callable[[Sequence[_Data]], _Data]
) -> _Data:
    if len(parts) <= _CHAIN:
        return functools.reduce(join, parts)
    # Arrow lines up nested ANDs, or ORs, in one chain and recurses along it: thousands take long, then overflow the
    # stack. De Morgan's other form of the same thing keeps chains apart.
    chains = [parts[i : i + _CHAIN] for i in range(0, len(parts), _CHAIN)]
    return pc.invert(dual([pc.invert(_joined(chain, join, dual)) for chain in chains]))
