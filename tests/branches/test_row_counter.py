"""Counting equal rows of two bags, also where they do not fit in memory."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from anabranch.compare.row_counter import RowCounter

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int32()))])


def batch(values):
    ids, texts, lists = zip(*values, strict=True)
    return pa.record_batch(
        [pa.array(ids, pa.int64()), pa.array(texts), pa.array(lists, pa.list_(pa.int32()))], schema=SCHEMA
    )


def rows_of(seed, count, distinct):
    choose = random.Random(seed)
    return [
        (n, f"row {n}" * 3, [n % 3] * (n % 4)) for n in (choose.randrange(distinct) for _ in range(count))
    ]


def told(counter):
    left, right = Counter(), Counter()
    for part in counter.counted():
        for row, ours, theirs in zip(part.rows.to_pylist(), part.left, part.right, strict=True):
            key = (row["id"], row["text"], tuple(row["list"]))
            assert key not in left
            assert key not in right
            left[key], right[key] = int(ours), int(theirs)
    return left, right


@pytest.mark.parametrize("distinct", [1, 50, 100_000])
@pytest.mark.parametrize("held", [1 << 12, 1 << 30])
@pytest.mark.parametrize("guess", [0, 6000, pytest.param(50_000, marks=pytest.mark.long)])
def test_counts(distinct, held, guess, tmp_path):
    ours, theirs = rows_of(1, 4000, distinct), rows_of(2, 2000, distinct)
    with RowCounter(SCHEMA, guess, held_bytes=held, part_bytes=1 << 13, folder=str(tmp_path)) as counter:
        for start in range(0, 4000, 500):
            counter.add(batch(ours[start : start + 500]), "left")
        for start in range(0, 2000, 500):
            counter.add(batch(theirs[start : start + 500]), "right")
        assert bool(counter.spilled) == (held < 1 << 30)
        left, right = told(counter)
    keys = [tuple((a, b, tuple(c)) for a, b, c in side) for side in (ours, theirs)]
    assert +left == Counter(keys[0])
    assert +right == Counter(keys[1])


@pytest.mark.parametrize("held", [1 << 12, 1 << 30])
def test_what_both_have_is_cancelled(held):
    ours, theirs = rows_of(3, 3000, 700), rows_of(4, 3000, 700)
    with RowCounter(SCHEMA, 6000, cancel=True, held_bytes=held, part_bytes=1 << 13) as counter:
        counter.add(batch(ours), "left")
        counter.add(batch(theirs), "right")
        left, right = told(counter)
    bags = [Counter((a, b, tuple(c)) for a, b, c in side) for side in (ours, theirs)]
    assert +left == bags[0] - bags[1]
    assert +right == bags[1] - bags[0]


def test_equal_rows_take_no_memory_however_many_they_are():
    """A part holds distinct rows only, though all rows are in one."""
    with RowCounter(SCHEMA, 0, held_bytes=1 << 12, part_bytes=1 << 12) as counter:
        for _ in range(40):
            counter.add(batch([(1, "one", [1])] * 500), "left")
        ((part),) = list(counter.counted())
    assert part.rows.num_rows == 1
    assert part.left.tolist() == [20_000]


def test_names_of_columns_do_not_matter():
    schema = pa.schema([("left", pa.int64()), ("row", pa.int64()), ("0", pa.int64())])
    rows = pa.record_batch([pa.array([1, 1, 2])] * 3, schema=schema)
    with RowCounter(schema, 3) as counter:
        counter.add(rows, "right")
        (part,) = list(counter.counted())
    assert part.rows.column_names == ["left", "row", "0"]
    assert part.right.tolist() == [2, 1]
    assert part.left.tolist() == [0, 0]
