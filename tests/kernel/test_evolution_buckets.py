"""Filters on the key of a queue read the buckets it can be in, however many there were when rows were written."""

import itertools
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch
from anabranch.errors import CommitConflictError
from tests.support.tables import make_table

_names = itertools.count()
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 2, 29, 12),
    datetime(2024, 2, 29, 12, 0, 0, 1),
]
KEYS = {
    "INT": [-1, 0, 1, 2, 2**31 - 1, -(2**31), None],
    "BIGINT": [-1, 0, 1, 2**40, -(2**63), None],
    "TINYINT": [-128, -1, 0, 1, 127, None],
    "BOOLEAN": [True, False, None],
    "DOUBLE": [0.0, -0.0, 1.5, -1.5, float("inf"), float("nan"), OTHER_NAN, None],
    "STRING": ["", "a", "1234567", "12345678", "漢字漢字", "x" * 100, None],
    "VARCHAR(9)": ["", "a", "a ", "123456789", None],
    "BYTES": [b"", b"\0", b"\0" * 8, None],
    "DATE": [date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), None],
    "DECIMAL(10, 2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), None],
    "DECIMAL(20, 2)": [Decimal("0.00"), Decimal("-1.28"), Decimal("123456789012345678.90"), None],
    "TIMESTAMP(3)": [m.replace(microsecond=m.microsecond // 1000 * 1000) for m in MOMENTS[:2]] + [None],
    "TIMESTAMP(6)": [*MOMENTS, None],
    "TIMESTAMP_LTZ(6)": [*(m.replace(tzinfo=UTC) for m in MOMENTS), None],
}  # fmt: skip


@st.composite
def histories(draw):
    """Types of the key, whether there are partitions, and what is done to the table."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    key = st.tuples(*(st.sampled_from(KEYS[kind]) for kind in kinds))
    row = st.tuples(st.sampled_from("pq"), key)
    rows = st.lists(row, min_size=1, max_size=8)
    step = st.one_of(
        st.tuples(st.just("append"), rows),
        st.tuples(st.just("overwrite"), rows),
        st.tuples(st.just("buckets"), st.integers(1, 7)),
    )
    test = st.tuples(st.integers(0, len(kinds) - 1), st.lists(st.integers(0, 9), min_size=1, max_size=3))
    return (
        kinds,
        draw(st.booleans()),
        draw(st.lists(step, min_size=1, max_size=6)),
        draw(st.lists(st.lists(test, min_size=1, max_size=3), min_size=1, max_size=3)),
    )


@pytest.mark.long
@settings(max_examples=30)
@given(histories())
def test_a_filter_on_the_key_finds_what_reading_everything_finds(history):
    _check_filters(*history)


@pytest.mark.long
@settings(max_examples=300)
@given(histories())
def test_a_filter_on_the_key_finds_what_reading_everything_finds_in_many_histories(history):
    _check_filters(*history)


def _check_filters(kinds, partitioned, steps, filters):
    names = [f"k{i}" for i in range(len(kinds))]
    table = make_table(
        f"memory://spread-buckets{next(_names)}",
        schema=", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        + ", p STRING, i INT",
        partition_by=["p"] if partitioned else [],
        # Without statistics, so that nothing but buckets leaves files out.
        options={"bucket": "3", "bucket-key": ",".join(names), "metadata.stats-mode": "none"},
    )
    for kind, what in [("append", [("p", tuple(KEYS[k][0] for k in kinds))]), *steps]:
        if kind == "buckets":
            table.alter().set_option("bucket", str(what)).apply()
            continue
        columns = {name: [key[at] for _, key in what] for at, name in enumerate(names)}
        data = pa.table({**columns, "p": [p for p, _ in what], "i": range(len(what))}, table.writer().schema)
        try:
            getattr(table, kind)(data)
        except CommitConflictError as error:
            assert "BUCKET_COUNT_CHANGED" in str(error)
    everything = table.scan().to_arrow()
    plain = make_table(f"memory://whole{next(_names)}", schema=everything.schema)
    plain.append(everything)
    for alternatives in filters:
        wanted = _filter(alternatives, kinds, names)
        assert _sorted(table.scan(wanted)) == _sorted(plain.scan(wanted))


def _filter(alternatives, kinds, names):
    """Any of: every column is one of some values of its domain; a null of the domain asks for null."""
    parts = []
    for shift, (first, picks) in enumerate(alternatives):
        tests = []
        for at, (kind, name) in enumerate(zip(kinds, names, strict=True)):
            domain = KEYS[kind]
            values = [domain[(pick + shift + at) % len(domain)] for pick in picks]
            present = [v for v in values if v is not None]
            column = anabranch.col(name)
            test = column.is_in(present) if len(present) != 1 else column == present[0]
            if None in values:
                test = column.is_null() if not present else test | column.is_null()
            tests.append(test)
        whole = tests[0]
        for test in tests[1:]:
            whole = whole & test
        parts.append(whole if first == 0 else tests[first])
    found = parts[0]
    for part in parts[1:]:
        found = found | part
    return found


def _sorted(scan):
    return sorted(map(repr, scan.to_arrow().to_pylist()))


@pytest.fixture
def queue(tmp_path):
    options = {"bucket": "8", "bucket-key": "b,a", "metadata.stats-mode": "none"}
    return make_table(tmp_path, schema="a INT, b STRING, n INT", options=options)


def _rows(*keys):
    return pa.table({"a": pa.array([a for a, _ in keys], pa.int32()), "b": [b for _, b in keys]})


ALL = [(a, b) for a in range(20) for b in "xyz"]


def _buckets(table, filter):
    return len({split.bucket for split in table.scan(filter).plan().splits})


def test_only_filters_that_hold_the_whole_key_leave_buckets_out(queue):
    queue.append(_rows(*ALL))
    assert _buckets(queue, None) == 8
    assert _buckets(queue, "a = 3 AND b = 'x'") == 1
    assert 1 < _buckets(queue, "a IN (3, 4, 5) AND b = 'x'") <= 3
    assert _buckets(queue, "(a = 3 AND b = 'x') OR (b = 'y' AND a = 7)") <= 4
    assert _buckets(queue, "a = 3") == 8
    assert _buckets(queue, "a = 3 AND b >= 'x'") == 8


def test_files_are_judged_by_the_key_and_the_number_of_their_time(queue):
    queue.append(_rows(*ALL))
    queue.alter().rename_column("a", "t").rename_column("n", "a").rename_column("t", "key").apply()
    assert queue.schema.options["bucket-key"] == "b,key"
    assert _buckets(queue, "key = 3 AND b = 'x'") == 1
    assert _buckets(queue, "a = 3 AND b = 'x'") == 8  # no key any more
    assert queue.scan("key = 3 AND b = 'x'").to_arrow().num_rows == 1
    queue.alter().set_option("bucket", "1").apply()
    queue.overwrite(_rows(*ALL).rename_columns(["key", "b"]))
    assert _buckets(queue, "key = 3 AND b = 'x'") == 1
    assert queue.scan("key = 3 AND b = 'x'").to_arrow().num_rows == 1


def test_a_queue_of_one_bucket_has_a_key_for_other_engines_only(tmp_path):
    table = make_table(
        tmp_path,
        schema="m MAP<STRING, INT>, p STRING, a INT, b STRING",
        partition_by=["p"],
        options={"bucket": "1"},
    )
    assert table.options["bucket-key"] == "a"
    assert table.schema.bucket_keys == ()
    data = {"p": ["x", "x", "y"], "a": pa.array([1, 2, 3], pa.int32()), "b": ["a", "b", "c"]}
    table.append(pa.table(data))
    assert table.scan("a = 2").to_arrow()["b"].to_pylist() == ["b"]
    table.alter().widen_column("a", "BIGINT").rename_column("a", "key").apply()
    assert table.options["bucket-key"] == "key"
    table.alter().drop_column("key").apply()
    assert table.options["bucket-key"] == "b"
    with pytest.raises(anabranch.OptionError, match="needs a 'bucket-key'; 'b' was only put there"):
        table.alter().set_option("bucket", "4").apply()
    table.alter().set_option("bucket", "4").set_option("bucket-key", "b").apply()
    assert table.schema.bucket_keys == ("b",)
    assert "anabranch.bucket-key.assigned" not in table.options
    table.overwrite(pa.table({"p": ["x"] * 9, "b": list("abcdefghi")}))
    assert _buckets(table, "p = 'x' AND b = 'c'") == 1
    assert [table.scan(f"b = '{b}'").to_arrow().num_rows for b in "abc"] == [1, 1, 2]
    with pytest.raises(
        anabranch.OptionError, match="'bucket-key' is 'b' and cannot become 'm'|has snapshots|MAP"
    ):
        table.alter().set_option("bucket-key", "m").apply()
    with pytest.raises(anabranch.SchemaError, match="decides the bucket"):
        table.alter().drop_column("b").apply()


def test_a_key_that_somebody_chose_stays_chosen(tmp_path):
    table = make_table(tmp_path, schema="a INT, b STRING", options={"bucket": "1", "bucket-key": "b"})
    assert "anabranch.bucket-key.assigned" not in table.options
    with pytest.raises(anabranch.SchemaError, match="decides the bucket"):
        table.alter().drop_column("b").apply()
    table.alter().remove_option("bucket-key").apply()
    assert (table.options["bucket-key"], table.schema.bucket_keys) == ("a", ())
    table.alter().set_option("bucket-key", "a").apply()
    assert table.schema.bucket_keys == ("a",)
    with pytest.raises(anabranch.OptionError, match="a key is needed that nobody asked for"):
        table.alter().set_option("anabranch.bucket-key.assigned", "true").apply()
    lists = make_table(tmp_path, "db.lists", schema="a ARRAY<INT>", options={"bucket": "1"})
    assert "bucket-key" not in lists.options
