"""Evaluates predicates before any row is read: by column statistics, partition and bucket key."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.expr import bound as b
from anabranch.expr.nodes import Operator
from anabranch.format.types.values import ArrowArray
from anabranch.lazy import lazy

MAX_KEYS = 1_000
"""Combinations of key values above which `key_values` gives up."""


class ColumnStats(Protocol):
    """Statistics of the columns of N files; an array has one element a file, null where nothing is known.

    Bounds are bounds: every value in the file that is not null lies between them, but they need not be values
    of the file (long texts are shortened). Both are unknown for a floating-point column that holds NaN.
    """

    @property
    def row_count(self) -> ArrowArray:
        """Rows of each file, int64."""
        ...

    def min(self, field_id: int, /) -> ArrowArray | None:
        """Lower bounds in the column's Arrow type, or None where nothing is known of any file."""
        ...

    def max(self, field_id: int, /) -> ArrowArray | None:
        """Upper bounds in the column's Arrow type, or None where nothing is known of any file."""
        ...

    def null_count(self, field_id: int, /) -> ArrowArray | None:
        """Null counts, int64, or None where nothing is known of any file."""
        ...


def may_match(predicate: b.BoundPredicate, stats: ColumnStats) -> npt.NDArray[np.bool_]:
    """For each file whether it may hold a row for which the predicate is TRUE.

    False is a promise that it holds none; what is unknown never leads to it.
    """
    return _Pruner(stats).keep(predicate)


def for_footers(predicate: b.BoundPredicate) -> b.BoundPredicate:
    """A predicate, perhaps weaker, for readers that skip row groups by the bounds in Parquet footers.

    It does not trust these bounds to cover NaN: some writers, Arrow's among them, leave it out. It says of
    prefixes what readers understand, that they lie in a range. Rows still have to be filtered by the
    predicate itself.
    """
    return b.replace_tests(predicate, _for_footers)


def split_conjuncts(
    predicate: b.BoundPredicate, field_ids: Collection[int]
) -> tuple[b.BoundPredicate | None, b.BoundPredicate | None]:
    """Take apart a predicate into one on the given top-level fields and the rest; both together are the predicate.

    The first is as strong as can be: of ``(p = 1 AND x > 5) OR (p = 2 AND x < 3)`` it is ``p IN (1, 2)``, while
    the rest is all of it. None stands for a part that asks nothing.
    """
    ids = set(field_ids)
    conjuncts = predicate.children if isinstance(predicate, b.AllOf) else (predicate,)
    first = b.conjunction(
        b.replace_tests(part, lambda test: test if b.columns(test) <= ids else b.ALWAYS) for part in conjuncts
    )
    rest = b.conjunction(part for part in conjuncts if not b.columns(part) <= ids)
    return (None if first == b.ALWAYS else first), (None if rest == b.ALWAYS else rest)


def key_values(
    predicate: b.BoundPredicate, field_ids: Sequence[int], *, limit: int = MAX_KEYS
) -> list[tuple[b.ArrowScalar | None, ...]] | None:
    """Combinations of values that the given top-level fields have in every row for which the predicate is TRUE.

    Each is a tuple in the order of `field_ids`, None standing for null. A zero of a floating-point column comes as
    0.0 and as -0.0, because they are equal but their bytes are not.

    Returns:
        the combinations, some of which may be impossible; none if the predicate is never TRUE; None if a field
        is not held to a few values or there are more than `limit` combinations.
    """
    choices = []
    for field_id in field_ids:
        values = _values(predicate, field_id)
        if values is None:
            return None
        choices.append(_scalars(predicate, field_id, values))
    if math.prod(map(len, choices)) > limit:
        return None
    return list(itertools.product(*choices))


def _for_footers(test: b.BoundPredicate) -> b.BoundPredicate:
    match test:
        case b.Computed():
            return b.ALWAYS
        case b.PrefixTest(column=column, prefix=prefix, negated=False):
            return b.conjunction([*_range_of(column, prefix), test])
        case b.LikeTest(column=column, pattern=(str() as prefix, *_), negated=False):
            return b.conjunction([*_range_of(column, prefix), test])
        case b.NullTest() | b.NaNTest(negated=True) | b.OneOf(negated=False):
            return test
        case b.Compare(op=Operator.EQ | Operator.LT | Operator.LE):
            return test
    # What is left may be TRUE for NaN.
    nan_too = any(column.is_floating for column in b.columns_of(test))
    return (
        b.conjunction(b.NullTest(column, negated=True) for column in b.columns_of(test)) if nan_too else test
    )


def _range_of(column: b.BoundColumn, prefix: str) -> list[b.BoundPredicate]:
    """Return predicates for the range of texts with a prefix."""
    bounds: list[b.BoundPredicate] = [b.Compare(column, Operator.GE, prefix)]
    stem = prefix.rstrip(chr(sys.maxunicode))
    if stem:
        last = ord(stem[-1]) + 1
        # Surrogates are not characters.
        end = stem[:-1] + chr(0xE000 if last == 0xD800 else last)
        bounds.append(b.Compare(column, Operator.LT, end))
    return bounds


_Mask = npt.NDArray[np.bool_]

_MANY = 16
"""Members of a set above which one pass with ranks beats a comparison for each."""


class _Pruner:
    """One evaluation over the statistics of N files; each column's are fetched once."""

    def __init__(self, stats: ColumnStats) -> None:
        self._stats = stats
        self._rows = stats.row_count
        self._known: dict[int, _Column] = {}

    def keep(self, predicate: b.BoundPredicate) -> _Mask:
        match predicate:
            case b.BoundConstant(value=value):
                return np.full(len(self._rows), value)
            case b.AllOf(children=children):
                mask = self.keep(children[0])
                for child in children[1:]:
                    mask &= self.keep(child)
                return mask
            case b.AnyOf(children=children):
                mask = self.keep(children[0])
                for child in children[1:]:
                    mask |= self.keep(child)
                return mask
            case b.Computed():
                return np.full(len(self._rows), True)
            case b.NullTest(column=column, negated=False):
                return self._column(column).may_be_null()
            case _:
                mask = np.full(len(self._rows), True)
                for column in b.columns_of(predicate):
                    mask &= self._column(column).may_be_valid()
                    mask &= self._column(column).may_satisfy(predicate)
                return mask

    def _column(self, column: b.BoundColumn) -> _Column:
        found = self._known.get(column.id)
        if found is None:
            found = self._known[column.id] = _Column(column, self._stats)
        return found


class _Column:
    """Statistics of one column."""

    def __init__(self, column: b.BoundColumn, stats: ColumnStats) -> None:
        self._column = column
        self._stats = stats

    def may_be_null(self) -> _Mask:
        return self._mask(
            None if self._nulls is None else pc.not_equal(self._nulls, pa.scalar(0, pa.int64()))
        )

    def may_be_valid(self) -> _Mask:
        return self._mask(None if self._nulls is None else pc.less(self._nulls, self._stats.row_count))

    def may_satisfy(self, test: b.BoundPredicate) -> _Mask:
        """By the bounds alone."""
        if self._bounds is None:
            return self._mask(None)
        low, high = self._bounds
        return self._mask(_within(test, low, high)) | _unbounded(low, high, self._column)

    @lazy
    def _nulls(self) -> ArrowArray | None:
        return self._stats.null_count(self._column.id)

    @lazy
    def _bounds(self) -> tuple[ArrowArray, ArrowArray] | None:
        low, high = self._stats.min(self._column.id), self._stats.max(self._column.id)
        if low is None or high is None or not low.type == high.type == self._column.arrow_type:
            return None
        return low, high

    def _mask(self, result: ArrowArray | None) -> _Mask:
        """Return the mask of what is not known to be false."""
        if result is None:
            return np.full(len(self._stats.row_count), True)
        return np.array(result.fill_null(True))


def _unbounded(low: ArrowArray, high: ArrowArray, column: b.BoundColumn) -> _Mask:
    """Files of which a bound is missing, or NaN, which bounds nothing."""
    nan_too = column.is_floating
    missing = pc.or_(pc.is_null(low, nan_is_null=nan_too), pc.is_null(high, nan_is_null=nan_too))
    mask: _Mask = np.array(missing, dtype=np.bool_)
    return mask


def _within(test: b.BoundPredicate, low: ArrowArray, high: ArrowArray) -> ArrowArray | None:
    """Whether a value between the bounds may satisfy the test; None where bounds do not tell."""
    match test:
        case b.Compare(column=column, op=op, value=value):
            return _compare_within(op, column.scalar(value), low, high)
        case b.OneOf(column=column, values=values, negated=False):
            return _any_within(column.array(values), low, high)
        case b.OneOf(column=column, values=values):
            # Only where all values of the file are the same one can all of them be in the set.
            all_in = pc.is_in(low, value_set=column.array(values))
            return pc.invert(pc.and_(pc.equal(low, high), all_in))
        case b.NaNTest(negated=False):
            return pa.repeat(pa.scalar(False), len(low))
        case b.PrefixTest(prefix=prefix, negated=False):
            return _prefix_within(prefix, low, high)
        case b.PrefixTest(prefix=prefix):
            # What lies between two texts with the prefix has it too.
            return pc.invert(
                pc.and_(pc.starts_with(low, pattern=prefix), pc.starts_with(high, pattern=prefix))
            )
        case b.LikeTest(pattern=(str() as prefix, *_), negated=False):
            return _prefix_within(prefix, low, high)
        case _:
            return None


def _compare_within(op: Operator, value: b.ArrowScalar, low: ArrowArray, high: ArrowArray) -> ArrowArray:
    match op:
        case Operator.EQ:
            return pc.and_(pc.less_equal(low, value), pc.greater_equal(high, value))
        case Operator.NE:
            return pc.invert(pc.and_(pc.equal(low, value), pc.equal(high, value)))
        case Operator.LT:
            return pc.less(low, value)
        case Operator.LE:
            return pc.less_equal(low, value)
        case Operator.GT:
            return pc.greater(high, value)
        case _:
            return pc.greater_equal(high, value)


def _prefix_within(prefix: str, low: ArrowArray, high: ArrowArray) -> ArrowArray:
    """Texts with a prefix are neighbours in the order, from the prefix itself on."""
    start = pa.scalar(prefix)
    begins = pc.or_(pc.less_equal(low, start), pc.starts_with(low, pattern=prefix))
    return pc.and_(begins, pc.greater_equal(high, start))


def _any_within(values: ArrowArray, low: ArrowArray, high: ArrowArray) -> ArrowArray:
    if len(values) > _MANY:
        return pa.array(_count_below(values, low, equal=False) < _count_below(values, high, equal=True))
    result = _compare_within(Operator.EQ, values[0], low, high)
    for value in values[1:]:
        result = pc.or_(result, _compare_within(Operator.EQ, value, low, high))
    return result


def _count_below(values: ArrowArray, bounds: ArrowArray, *, equal: bool) -> npt.NDArray[np.int64]:
    """For each bound how many of the values are less than it (or equal); nonsense where the bound is null.

    Ranks serve every type that has an order; Arrow has a search in sorted arrays only since lately.
    """
    tie: Literal["min", "max"] = "max" if equal else "min"
    together = np.array(pc.rank(pa.concat_arrays([bounds, values]), tiebreaker=tie), dtype=np.int64)
    alone = np.array(pc.rank(bounds, tiebreaker=tie), dtype=np.int64)
    return together[: len(bounds)] - alone


def _values(predicate: b.BoundPredicate, field_id: int) -> set[b.Physical | None] | None:
    """The only values, None standing for null, that the field has where the predicate is TRUE; None if unknown."""
    match predicate:
        case b.BoundConstant(value=False):
            return set()
        case b.AllOf(children=children):
            known = [values for c in children if (values := _values(c, field_id)) is not None]
            return set.intersection(*known) if known else None
        case b.AnyOf(children=children):
            each = [_values(c, field_id) for c in children]
            return None if None in each else set().union(*(values for values in each if values is not None))
        case b.Compare(column=b.BoundColumn(path=(field,)), op=Operator.EQ, value=value) if (
            field.id == field_id
        ):
            return {value}
        case b.OneOf(column=b.BoundColumn(path=(field,)), values=values, negated=False) if (
            field.id == field_id
        ):
            return set(values)
        case b.NullTest(column=b.BoundColumn(path=(field,)), negated=False) if field.id == field_id:
            return {None}
        case _:
            return None


def _scalars(
    predicate: b.BoundPredicate, field_id: int, values: set[b.Physical | None]
) -> list[b.ArrowScalar | None]:
    ordered: list[b.Physical] = sorted(v for v in values if v is not None)
    nulls: list[b.ArrowScalar | None] = [None] if None in values else []
    if not ordered:
        return nulls
    column = next(c for test in b.tests(predicate) for c in b.columns_of(test) if c.id == field_id)
    if column.is_floating and 0.0 in ordered:
        ordered = [*(v for v in ordered if v != 0.0), 0.0, -0.0]
    return [*column.array(ordered), *nulls]
