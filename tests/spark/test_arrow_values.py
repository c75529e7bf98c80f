import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.types.arrow_values import to_schema, to_type

US, NS, MS = pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms")


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_finer_timestamps_are_cut_off_towards_the_past(nanos):
    found = to_type(pa.array(nanos, pa.int64()).view(NS), US)
    assert found.type == US
    assert found.view(pa.int64()).to_pylist() == [None if n is None else n // 1000 for n in nanos]


@given(st.lists(st.none() | st.integers(-(2**50), 2**50), max_size=20))
def test_coarser_timestamps_keep_their_value(millis):
    utc = pa.timestamp("us", tz="UTC")
    found = to_type(pa.array(millis, pa.int64()).view(pa.timestamp("ms", tz="UTC")), utc)
    assert found.type == utc
    assert found.view(pa.int64()).to_pylist() == [None if m is None else m * 1000 for m in millis]


def test_a_timestamp_that_spark_cannot_hold_is_an_error():
    with pytest.raises(pa.ArrowInvalid):
        to_type(pa.array([2**60], pa.int64()).view(pa.timestamp("s")), US)


def test_another_time_zone_is_the_same_instant():
    berlin = pa.array([1, None], pa.int64()).view(pa.timestamp("us", tz="Europe/Berlin"))
    found = to_type(berlin, pa.timestamp("us", tz="UTC"))
    assert found.view(pa.int64()).to_pylist() == [1, None]


def test_times_are_milliseconds_of_the_day():
    times = pa.array([dt.time(0, 0, 1), None, dt.time(23, 59, 59, 999_000)], pa.time32("ms"))
    numbers = to_type(times, pa.int32())
    assert numbers.to_pylist() == [1000, None, 86_399_999]
    assert to_type(numbers, pa.time32("ms")).equals(times)
    assert to_type(times.cast(pa.time64("ns")), pa.time32("ms")).equals(times)


NESTED_SOURCE = pa.struct([pa.field("ts", NS), pa.field("l", pa.list_(pa.map_(pa.string(), NS)))])
NESTED_TARGET = pa.struct(
    [
        pa.field("ts", US),
        pa.field("l", pa.list_(pa.field("element", pa.map_(pa.string(), pa.field("value", US))))),
    ]
)
moments = st.none() | st.integers(-(10**6), 10**6)
nested_values = st.none() | st.fixed_dictionaries(
    {
        "ts": moments,
        "l": st.none()
        | st.lists(st.none() | st.dictionaries(st.text(max_size=2), moments, max_size=2), max_size=2),
    }
)


def _expected(value):
    if value is None:
        return None
    cut = lambda n: None if n is None else n // 1000  # noqa: E731
    maps = value["l"]
    return {
        "ts": cut(value["ts"]),
        "l": None
        if maps is None
        else [None if m is None else [(k, cut(v)) for k, v in m.items()] for m in maps],
    }


def _plain(array):
    """Timestamps as numbers, whatever is around them."""
    return pa.array(array).cast(
        pa.struct([pa.field("ts", pa.int64()), pa.field("l", pa.list_(pa.map_(pa.string(), pa.int64())))])
    )


@given(st.lists(nested_values, max_size=6), st.integers(0, 3))
def test_nested_values_survive_also_in_slices(values, skip):
    numbers = pa.struct(
        [pa.field("ts", pa.int64()), pa.field("l", pa.list_(pa.map_(pa.string(), pa.int64())))]
    )
    source = pa.array(
        [None if v is None else {**v, "l": None if v["l"] is None else [None if m is None else list(m.items()) for m in v["l"]]} for v in values],
        numbers,
    ).cast(NESTED_SOURCE)  # fmt: skip
    found = to_type(source.slice(skip), NESTED_TARGET)
    found.validate(full=True)
    assert found.type.equals(NESTED_TARGET)
    assert _plain(found).to_pylist() == [_expected(v) for v in values[skip:]]


def test_an_equal_schema_costs_nothing():
    batch = pa.record_batch({"a": pa.array([1, 2])})
    assert to_schema(batch, batch.schema) is batch


def test_large_strings_and_narrow_integers_are_fitted():
    batch = pa.record_batch({"s": pa.array(["x"], pa.large_string()), "i": pa.array([5], pa.int8())})
    found = to_schema(batch, pa.schema([("s", pa.string()), ("i", pa.int64())]))
    assert found.to_pylist() == [{"s": "x", "i": 5}]
