"""Keys that rows are sorted by: never out of order, and evenly spread whatever the values are."""

import datetime as dt
import itertools
import math
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.arrow.ordered_values import ordered
from anabranch.arrow.sort_key import STRATEGIES, Ranks, SortOrder, hilbert, zorder

EPOCH = dt.datetime(1970, 1, 1)

# Values of each type, and what they sort by.
TYPES = {
    pa.bool_(): (st.booleans(), int),
    pa.int8(): (st.integers(-128, 127), int),
    pa.int16(): (st.integers(-(2**15), 2**15 - 1), int),
    pa.int32(): (st.integers(-(2**31), 2**31 - 1), int),
    pa.int64(): (st.integers(-(2**63), 2**63 - 1), int),
    pa.float32(): (st.floats(width=32), lambda v: (math.isnan(v), 0 if math.isnan(v) else v)),
    pa.float64(): (st.floats(), lambda v: (math.isnan(v), 0 if math.isnan(v) else v)),
    pa.decimal128(9, 2): (st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)), Decimal),
    pa.decimal128(38, 10): (
        st.integers(-(10**27), 10**27).map(lambda n: Decimal(n).scaleb(-10)),
        Decimal,
    ),
    pa.string(): (st.text(max_size=4), lambda v: v.encode()),
    pa.binary(): (st.binary(max_size=4), bytes),
    pa.date32(): (st.dates(), lambda v: v),
    pa.time32("ms"): (st.times().map(lambda v: v.replace(microsecond=0)), lambda v: v),
    pa.timestamp("us"): (st.datetimes(), lambda v: v),
    pa.timestamp("ms", "UTC"): (
        st.integers(-(10**12), 10**12).map(lambda ms: (EPOCH + dt.timedelta(milliseconds=ms)).replace(tzinfo=dt.UTC)),
        lambda v: v,
    ),
}  # fmt: skip


def by_value(data_type):
    """A key of Python's for values of the type, with null below all."""
    _, key = TYPES[data_type]
    return lambda value: (value is not None, () if value is None else key(value))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_ordered_values_sort_as_the_values_do(data_type, data):
    values, _ = TYPES[data_type]
    column = data.draw(st.lists(values | st.none(), max_size=20))
    start = data.draw(st.integers(0, 2))
    chunks = pa.chunked_array([pa.array(column, data_type), pa.array(column, data_type)]).slice(start)
    found = ordered(chunks)
    assert found.type in (pa.int64(), pa.large_binary())
    key = by_value(data_type)
    for (left, a), (right, b) in itertools.combinations(
        zip([*column, *column][start:], found.to_pylist(), strict=True), 2
    ):
        assert (a is None, b is None) == (left is None, right is None)
        if left is not None and right is not None:
            assert (a < b, a == b) == (key(left) < key(right), key(left) == key(right))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), strategy=st.sampled_from(STRATEGIES))
def test_keys_of_one_column_are_never_out_of_order(data_type, strategy, data):
    """Whether a value is among the sampled ones, between two, outside of them, or null."""
    values, _ = TYPES[data_type]
    sample = pa.table({"c": pa.array(data.draw(st.lists(values | st.none(), max_size=20)), data_type)})
    column = data.draw(st.lists(values | st.none(), max_size=20))
    rows = pa.table({"c": pa.array(column, data_type)})
    order = SortOrder(strategy, ("c",))
    keys = order.keys_by(order.columns(sample)).of(order.columns(rows)).tolist()
    expected = sorted(range(len(column)), key=lambda i: by_value(data_type)(column[i]))
    in_order = [keys[i] for i in expected]
    assert in_order == sorted(in_order)
    assert all(0 <= key < 2**63 for key in keys)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_keys_of_order_follow_all_columns(data):
    """The first column that differs decides, as far as keys tell at all; the fourth is for sorting within a key."""
    values = [st.integers(0, 5), st.sampled_from(["", "a", "b", "bb"]), st.floats(0, 1), st.booleans()]
    rows = st.lists(st.tuples(*(v | st.none() for v in values)), min_size=1, max_size=30)
    sample, found = data.draw(rows), data.draw(rows)
    names = ["a", "b", "c", "d"]
    types = [pa.int32(), pa.string(), pa.float64(), pa.bool_()]

    def table(rows):
        return pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names)

    order = SortOrder("order", tuple(names))
    columns = order.columns(table(found))
    keys = order.keys_by(order.columns(table(sample))).of(columns)
    places = order.arrange(columns, keys).tolist()
    by = [tuple(by_value(t)(v) for v, t in zip(row, types, strict=True)) for row in found]
    assert places == sorted(range(len(found)), key=lambda i: by[i]), "and equal rows stay in their order"
    in_order = keys[places].tolist()
    assert in_order == sorted(in_order)


def test_keys_of_order_tell_sampled_values_apart_up_to_the_third_column():
    rows = pa.table({name: np.repeat([1, 2], 4) if name == "a" else np.arange(8) % 4 for name in "abcd"})
    order = SortOrder("order", tuple("abcd"))
    columns = order.columns(rows)
    assert len(set(order.keys_by(columns).of(columns).tolist())) == 8


def naive_zorder(point, bits):
    key = 0
    for bit in reversed(range(bits)):
        for code in point:
            key = key << 1 | (code >> bit) & 1
    return key


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_zorder_is_the_bits_in_turn(data):
    dimensions = data.draw(st.integers(1, 16))
    bits = min(16, 63 // dimensions)
    code = st.integers(0, 2**bits - 1)
    points = data.draw(st.lists(st.tuples(*[code] * dimensions), min_size=1, max_size=5))
    codes = [np.array(axis, np.uint32) for axis in zip(*points, strict=True)]
    assert zorder(codes, bits).tolist() == [naive_zorder(point, bits) for point in points]


GRIDS = [(1, 6), (2, 1), (2, 2), (2, 5), (3, 1), (3, 4), (4, 3), (5, 2), (8, 1)]


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_the_hilbert_curve_passes_each_point_once_and_steps_to_a_neighbour(dimensions, bits):
    points = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), np.uint32)
    places = hilbert(list(points.T), bits)
    assert sorted(places.tolist()) == list(range(len(points)))
    path = points[np.argsort(places)].astype(np.int64)
    assert path[0].tolist() == [0] * dimensions
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()


def test_the_hilbert_curve_of_many_points_and_of_none():
    random = np.random.default_rng(5)
    codes = [random.integers(0, 2**16, 50_000).astype(np.uint32) for _ in range(3)]
    whole = hilbert(codes, 16)
    assert whole[40_000:].tolist() == hilbert([code[40_000:] for code in codes], 16).tolist()
    assert hilbert([code[:0] for code in codes], 16).tolist() == []


SKEWED = {
    "uniform": lambda random, n: random.integers(0, 2**60, n),
    "exponential": lambda random, n: np.exp(random.normal(size=n) * 50),
    "far from zero": lambda random, n: 2**62 + random.integers(0, 1000, n),
    "long prefix": lambda random, n: [f"https://www.example.org/a/long/way/to/{v:08}" for v in random.integers(0, 10**8, n)],
}  # fmt: skip


@pytest.mark.parametrize("name", SKEWED)
def test_codes_are_spread_evenly_whatever_the_values_are(name):
    random = np.random.default_rng(1)
    sample, column = (ordered(pa.chunked_array([SKEWED[name](random, 4000)])) for _ in range(2))
    codes = Ranks.of(sample, 4).codes(column)
    counts = np.bincount(codes, minlength=16)
    assert len(counts) == 16
    assert counts.min() > 150
    assert counts.max() < 350


def test_values_that_are_frequent_keep_the_share_of_the_others():
    """Half of the rows are null and a quarter are one value: the rest still uses the quarter of codes that it is."""
    column = ordered(pa.chunked_array([pa.array([None] * 800 + [7] * 400 + list(range(8, 408)))]))
    codes = Ranks.of(column, 4).codes(column)
    assert set(codes[:800].tolist()) == {0}
    assert set(codes[800:1200].tolist()) == {8}
    assert np.bincount(codes[1200:].astype(np.int64), minlength=16)[12:].tolist() == [100] * 4


def test_two_values_decide_the_first_bit():
    column = ordered(pa.chunked_array([[True, False] * 50]))
    assert Ranks.of(column, 8).codes(column).tolist() == [128, 0] * 50


def test_nothing_was_sampled_of_a_column():
    for values in ([], [None, None]):
        sample = ordered(pa.chunked_array([pa.array(values, pa.int64())]))
        assert Ranks.of(sample, 4).codes(pa.array([5, None, -1])).tolist() == [15, 0, 15]


def test_key_makers_travel():
    order = SortOrder("hilbert", ("a", "b"))
    rows = pa.table({"a": range(100), "b": [f"{i % 7}" for i in range(100)]})
    columns = order.columns(rows)
    maker = order.keys_by(columns)
    assert pickle.loads(pickle.dumps(maker)).of(columns).tolist() == maker.of(columns).tolist()
