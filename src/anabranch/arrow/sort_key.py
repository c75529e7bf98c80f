"""Sort keys of rows: one number per row, made of the ranks of its values.

A value counts by its rank among the values of a sample of the column, never by itself. So it does not matter how a
column is scaled or skewed, or with which long prefix its texts begin: half of the rows are below the middle rank in
any case, and every column of a curve gets its share of the order. Null is below all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow.ordered_values import equal, is_null, ordered, search

# Space-filling curves: positions of grid points on curves that keep near points together.
#
# A point is one code of `bits` bits for each dimension. Together these are at most 63 bits, and so is the place.

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Keys: TypeAlias = npt.NDArray[np.uint64]

_BLOCK: Final = 1 << 14
"""Number of points that fit a core's cache while they are worked on."""


def zorder(codes: Sequence[Codes], bits: int) -> Keys:
    """Return positions on the Z-order curve: the bits of all codes in turn, the highest first.

    Args:
        codes: for each dimension one array, of one length.
        bits: of a code, at most 16.
    """
    spread = _spread(len(codes), bits)
    key = spread[codes[0]]
    for code in codes[1:]:
        key = (key << np.uint64(1)) | spread[code]
    return key


def hilbert(codes: Sequence[Codes], bits: int) -> Keys:
    """Return positions on the Hilbert curve, where successive positions are neighbouring points.

    Arguments as of `zorder`. After J. Skilling, "Programming the Hilbert curve" (2004): points are turned into the
    transposed index, whose bits are those of the place as the curve of Z-order has them.
    """
    blocks = range(0, len(codes[0]), _BLOCK)
    places = [_hilbert([code[start : start + _BLOCK] for code in codes], bits) for start in blocks]
    return np.concatenate(places) if places else np.empty(0, np.uint64)


def _hilbert(codes: Sequence[Codes], bits: int) -> Keys:
    axes = [code.astype(np.uint32) for code in codes]
    first = axes[0]
    for bit in range(bits - 1, 0, -1):
        below = np.uint32((1 << bit) - 1)
        for axis in axes:
            # Where the bit is set the first axis is turned around below it, elsewhere the two are exchanged.
            turned = _filled(axis, bit) & below
            exchanged = (first ^ axis) & (below & ~turned)
            np.bitwise_xor(first, turned | exchanged, out=first)
            if axis is not first:
                np.bitwise_xor(axis, exchanged, out=axis)
    for before, axis in pairwise(axes):
        np.bitwise_xor(axis, before, out=axis)
    turned = np.zeros_like(first)
    for bit in range(bits - 1, 0, -1):
        turned ^= _filled(axes[-1], bit) & np.uint32((1 << bit) - 1)
    return zorder([axis ^ turned for axis in axes], bits)


def _filled(axis: npt.NDArray[np.uint32], bit: int) -> npt.NDArray[np.uint32]:
    """Return all ones where the bit is set, else zero."""
    filled: npt.NDArray[np.uint32] = np.uint32(0) - ((axis >> np.uint32(bit)) & np.uint32(1))
    return filled


@cache
def _spread(dimensions: int, bits: int) -> Keys:
    """Return a table that spreads the bits of a code, to leave room for those of the other dimensions."""
    codes = np.arange(1 << bits, dtype=np.uint64)
    spread = np.zeros_like(codes)
    for bit in range(bits):
        spread |= ((codes >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * dimensions)
    return spread


Strategy: TypeAlias = Literal["order", "zorder", "hilbert"]
"""Lexicographic by column, or along a curve through all columns."""

STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
MOST_CURVE_COLUMNS: Final = 16
"""Maximum columns of a curve: more would leave each less than four bits of a key, too few for locality."""

_KEY_BITS: Final = 63
"""Bits of a key: non-negative also as a signed number, which is all that Spark has."""
_MOST_CODE_BITS: Final = 16
_RANGE_COLUMNS: Final = 3
"""Number of columns that contribute to the key of `order`."""


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Order in which rows are to be sorted."""

    strategy: Strategy
    by: tuple[str, ...]
    """Names of columns of atomic types."""

    def columns(self, rows: pa.Table) -> list[pa.Array]:
        """Return the columns to sort by, as `ordered` makes them."""
        return [ordered(rows.column(name)) for name in self.by]

    def keys_by(self, sample: Sequence[pa.Array]) -> KeyMaker:
        """Return a maker of keys, with ranks from some rows.

        Args:
            sample: `columns` of rows from all parts of what is to be sorted; the more, the more evenly the keys of
                other rows are spread.
        """
        if self.strategy == "order":
            return RangeKeys(tuple(_distinct(column) for column in sample[:_RANGE_COLUMNS]))
        bits = min(_MOST_CODE_BITS, _KEY_BITS // len(self.by))
        return CurveKeys(self.strategy, bits, tuple(Ranks.of(column, bits) for column in sample))

    def arrange(self, columns: Sequence[pa.Array], keys: Keys) -> npt.NDArray[np.int64]:
        """Return the row indexes in sorted order; equal rows keep their order.

        Args:
            columns: `columns` of the rows.
        """
        if self.strategy != "order":
            return np.argsort(keys, kind="stable")
        names = [str(number) for number in range(len(columns))]
        by = [(name, "ascending", "at_start") for name in names]
        table = pa.Table.from_arrays(columns, names)
        places: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
        return places


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """Monotonic keys: if a row sorts before another, its key is not larger.

    A key is the place of the first value among the sampled ones. Where it is one of these, so that it is the same in
    all rows of that place, the second value goes on, and so on.
    """

    bounds: tuple[pa.Array, ...]
    """Sampled values of the first columns, sorted and distinct."""

    def of(self, columns: Sequence[pa.Array]) -> Keys:
        """Return one key per row, from its `SortOrder.columns`."""
        bits = np.uint64(_KEY_BITS // _RANGE_COLUMNS)
        keys = np.zeros(len(columns[0]), np.uint64)
        goes_on = np.ones(len(keys), np.bool_)
        for bounds, column in zip(self.bounds, columns, strict=False):
            places, is_exact = _places(bounds, column)
            keys = (keys << bits) | np.where(goes_on, places, np.uint64(0))
            goes_on &= is_exact
        return keys


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """Keys that are positions on a curve through the ranks of all columns."""

    strategy: Strategy
    bits: int
    ranks: tuple[Ranks, ...]

    def of(self, columns: Sequence[pa.Array]) -> Keys:
        """Return one key per row, from its `SortOrder.columns`."""
        codes = [ranks.codes(column) for ranks, column in zip(self.ranks, columns, strict=True)]
        return (zorder if self.strategy == "zorder" else hilbert)(codes, self.bits)


KeyMaker: TypeAlias = RangeKeys | CurveKeys


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of a column's values as codes, spread evenly over all rows as far as values differ."""

    bounds: pa.Array
    """Largest sampled value of each code, without nulls."""
    code_of: Codes
    """Code of each bound, and that of values above all."""

    @classmethod
    def of(cls, sample: pa.Array, bits: int) -> Ranks:
        """Derive ranks of `bits` bits from a sample."""
        values = sample.drop_null()
        values = values.take(pc.sort_indices(values))
        highest = (1 << bits) - 1
        if len(values) == 0:
            return cls(values, np.array([highest], np.uint32))
        is_first = _differs_from_neighbour(values)
        # Of equal values the first one counts: how many rows are below, nulls among them.
        below = np.flatnonzero(is_first) + sample.null_count
        codes = ((below << bits) // len(sample)).astype(np.uint32)
        is_last = np.append(codes[1:] != codes[:-1], True)
        bounds = values.take(pa.array(np.flatnonzero(is_first)[is_last]))
        return cls(bounds, np.append(codes[is_last], np.uint32(highest)))

    def codes(self, column: pa.Array) -> Codes:
        """Return one code per value, monotonic in the value; null is lowest."""
        codes = self.code_of[search(self.bounds, column)]
        return codes if column.null_count == 0 else np.where(is_null(column), np.uint32(0), codes)


def _places(bounds: pa.Array, column: pa.Array) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Return positions of values at or between bounds, and whether all values of a position are equal."""
    below = search(bounds, column)
    is_bound = np.zeros(len(column), np.bool_)
    if len(bounds):
        is_bound = equal(column, bounds.take(pa.array(np.minimum(below, len(bounds) - 1))))
    places = 2 * below.astype(np.uint64) + is_bound + np.uint64(2)
    if column.null_count == 0:
        return places, is_bound
    nulls = is_null(column)
    return np.where(nulls, np.uint64(1), places), is_bound | nulls


def _distinct(sample: pa.Array) -> pa.Array:
    values = sample.drop_null()
    values = values.take(pc.sort_indices(values))
    return values if len(values) == 0 else values.filter(pa.array(_differs_from_neighbour(values)))


def _differs_from_neighbour(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each of these sorted values whether it differs from the previous one; True for the first."""
    return np.append(True, ~equal(values[1:], values[:-1]))
