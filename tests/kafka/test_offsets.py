"""Offsets as JSON, ranges and limits: no broker needed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidInputError
from anabranch.kafka.offsets import (
    OffsetRange,
    TopicPartition,
    admitted,
    cut,
    from_json,
    ranges_between,
    to_json,
)
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 60))
ends = st.dictionaries(partitions, st.integers(0, 10_000), min_size=1)


@given(offsets)
def test_offsets_travel_as_json(value):
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_the_json_is_that_of_sparks_own_source_and_always_the_same_text():
    value = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_json(value)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


@pytest.mark.parametrize(
    "value",
    [None, [], "latest", {"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a": {"-1": 1}}],
)
def test_what_is_no_offset_is_told(value):
    with pytest.raises(InvalidInputError, match="no offsets of Kafka topics"):
        from_json(value)


def test_lineage_knows_them():
    start, end = to_json({TopicPartition("a", 0): 3}), to_json({TopicPartition("a", 0): 5})
    (found,) = inputs_between(BatchOffsets({}, {"0": start}), BatchOffsets({}, {"0": end}))
    assert (found.kind, found.start, found.end) == ("kafka", start, end)


@given(ends, st.integers(1, 30), st.integers(1, 5000))
def test_cut_ranges_hold_the_same_offsets(end, at_least, most):
    whole = ranges_between(dict.fromkeys(end, 0), end)
    for options in ({"at_least": at_least}, {"most": most}, {"at_least": at_least, "most": most}):
        pieces = cut(whole, **options)
        assert all(piece.size > 0 for piece in pieces)
        assert "most" not in options or all(piece.size <= most for piece in pieces)
        for place in whole:
            mine = [piece for piece in pieces if piece.where == place.where]
            assert [mine[0].start, *(piece.end for piece in mine)] == [
                *(piece.start for piece in mine), place.end,
            ]  # fmt: skip


def test_a_large_partition_is_cut_into_as_many_as_asked_for():
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    pieces = cut([OffsetRange(a, 0, 900), OffsetRange(b, 0, 100)], at_least=10)
    assert [piece.where for piece in pieces] == [a] * 9 + [b]


@given(ends, st.data())
def test_a_limit_is_kept_and_every_partition_goes_on(end, data):
    start = {where: data.draw(st.integers(0, last)) for where, last in end.items()}
    limit = data.draw(st.integers(1, 20_000))
    reached = admitted(start, end, limit)
    waiting = {where for where in end if end[where] > start[where]}
    assert all(start[where] < reached[where] <= end[where] for where in waiting)
    assert all(reached[where] == end[where] for where in end.keys() - waiting)
    taken = sum(reached[where] - start[where] for where in end)
    assert taken <= max(limit, len(waiting))
    waits = sum(end[where] - start[where] for where in end)
    assert taken >= min(waits, limit - len(waiting))  # rounding leaves less than one for each partition
