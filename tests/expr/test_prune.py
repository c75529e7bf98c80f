"""Files are left out only if none of their rows matches, and they are left out where statistics tell."""

import math
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.expr import (
    bind,
    col,
    columns,
    filter_mask,
    for_footers,
    key_values,
    may_match,
    parse,
    split_conjuncts,
)
from anabranch.expr.bound import ALWAYS, NEVER
from anabranch.expr.nodes import TRUE
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import (
    BigIntType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    IntType,
    RowType,
    TimestampType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.values import from_physical

from .model import CASES, FIELDS, SCHEMA, every_test, predicates, rows, table_of, truth

NAN = math.nan


@dataclass
class Stats:
    """Statistics in memory: row counts, and per field id (minima, maxima, null counts) or less."""

    rows: list[int]
    columns: dict[int, tuple[pa.Array | None, pa.Array | None, list | None]]

    @property
    def row_count(self):
        return pa.array(self.rows, pa.int64())

    def min(self, field_id):
        return self.columns.get(field_id, (None,) * 3)[0]

    def max(self, field_id):
        return self.columns.get(field_id, (None,) * 3)[1]

    def null_count(self, field_id):
        counts = self.columns.get(field_id, (None,) * 3)[2]
        return None if counts is None else pa.array(counts, pa.int64())


def truncated(text, length, *, up):
    """A bound of at most `length` characters; None if there is none above."""
    if len(text) <= length or not up:
        return text[:length]
    for i in range(length - 1, -1, -1):
        code = ord(text[i]) + 1
        if code <= 0x10FFFF:
            return text[:i] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
    return None


def stats_of_column(values, field, mode):
    """(min, max, null count) of one file's column as a writer in that mode stores them."""
    nulls = values.count(None)
    present = [v for v in values if v is not None]
    if mode == "none":
        return None, None, None
    no_bounds = mode == "counts" or not present or isinstance(field.type, VarBinaryType)
    if no_bounds or any(isinstance(v, float) and math.isnan(v) for v in present):
        return None, None, nulls
    low, high = min(present), max(present)
    if isinstance(low, str):
        low, high = (f(present, key=str.encode) for f in (min, max))
        length = 1 if mode == "truncate" else 1_000
        low, high = truncated(low, length, up=False), truncated(high, length, up=True)
        if high is None:
            low = None
    return low, high, None if mode == "bounds" else nulls


MODES = ["full", "truncate", "counts", "none", "bounds"]


@st.composite
def files_with_stats(draw):
    files = draw(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4))
    modes = draw(st.lists(st.sampled_from(MODES), min_size=len(files), max_size=len(files)))
    known = {}
    for field in FIELDS:
        if draw(st.integers(0, 9)) == 0:
            continue
        each = [
            stats_of_column([r[field.name] for r in f], field, m) for f, m in zip(files, modes, strict=True)
        ]
        low, high, nulls = zip(*each, strict=True)
        known[field.id] = (from_physical(low, field.type), from_physical(high, field.type), list(nulls))
    return files, Stats([len(f) for f in files], known)


@settings(max_examples=100, deadline=None)
@given(st.lists(predicates(), min_size=1, max_size=5), files_with_stats())
def test_a_file_with_a_match_is_kept(many, files_and_stats):
    files, stats = files_and_stats
    for predicate in many:
        kept = may_match(bind(predicate, SCHEMA), stats)
        assert kept.dtype == np.bool_
        for file, keep in zip(files, kept, strict=True):
            assert keep or not any(truth(predicate, row) is True for row in file), str(predicate)


def test_every_test_keeps_every_pair_of_values_with_a_match():
    everything = list(every_test(list(CASES)))
    for field in FIELDS:
        one_column = [p for p in everything if columns(bind(p, SCHEMA)) == {field.id}]
        values = [*CASES[field.name][1], None]
        files = list(product(values, values))
        known = []
        for mode in MODES:
            low, high, nulls = zip(*(stats_of_column(list(f), field, mode) for f in files), strict=True)
            bounds = (from_physical(side, field.type) for side in (low, high))
            known.append(Stats([2] * len(files), {field.id: (*bounds, list(nulls))}))
        for predicate in one_column:
            matches = [truth(predicate, {field.name: v}) is True for v in values]
            holds = np.array([a or b for a, b in product(matches, matches)])
            for stats in known:
                kept = may_match(bind(predicate, SCHEMA), stats)
                assert not (holds & ~kept).any(), f"{predicate} loses {files[int(np.argmax(holds & ~kept))]}"


@pytest.mark.long
@settings(max_examples=5_000, deadline=None)
@given(predicates(), files_with_stats())
def test_a_file_with_a_match_is_kept_long(predicate, files_and_stats):
    files, stats = files_and_stats
    kept = may_match(bind(predicate, SCHEMA), stats)
    for file, keep in zip(files, kept, strict=True):
        assert keep or not any(truth(predicate, row) is True for row in file)


TYPED = {
    "i": IntType(),
    "b": BigIntType(),
    "d": DoubleType(),
    "s": VarCharType(),
    "c": CharType(3),
    "m": DecimalType(10, 2),
    "t": TimestampType(3),
    "day": DateType(),
    "bin": VarBinaryType(),
    "r": RowType((Field(50, "x", IntType()),)),
}
SMALL = tuple(Field(i, name, data_type) for i, (name, data_type) in enumerate(TYPED.items()))


def one_column(name, low, high, nulls, row_count=10):
    field = next(f for f in SMALL if f.name == name)
    arrow = to_arrow_type(field.type)
    low, high = (v if v is None else pa.array([v], arrow) for v in (low, high))
    return Stats([row_count], {field.id: (low, high, [nulls])})


@pytest.mark.parametrize(
    ("sql", "stats", "kept"),
    [
        ("i = 5", ("i", 1, 4, 0), False),
        ("i = 5", ("i", 5, 5, 0), True),
        ("i = 5", ("i", 6, 9, 0), False),
        ("i <> 5", ("i", 5, 5, 3), False),
        ("i <> 5", ("i", 5, 6, 0), True),
        ("not i = 5", ("i", 5, 5, 0), False),
        ("i < 5", ("i", 5, 9, 0), False),
        ("i <= 5", ("i", 5, 9, 0), True),
        ("i > 9", ("i", 5, 9, 0), False),
        ("i >= 9", ("i", 5, 9, 0), True),
        ("not i >= 5", ("i", 5, 9, 0), False),
        ("i > 4.5 and i < 4.9", ("i", 0, 9, 0), True),
        ("i = 4.5", ("i", 0, 9, 0), False),
        ("i < 5000000000", ("i", 0, 9, 0), True),
        ("i < 5000000000", ("i", None, None, 10), False),
        ("i > 5000000000", ("i", 0, 9, 0), False),
        ("i in (1, 2, 7, 20)", ("i", 3, 6, 0), False),
        ("i in (1, 2, 5, 20)", ("i", 3, 6, 0), True),
        ("i not in (1, 5)", ("i", 5, 5, 0), False),
        ("i not in (1, 5)", ("i", 5, 6, 0), True),
        ("i not in (1, null)", ("i", 5, 6, 0), False),
        ("i is null", ("i", 1, 4, 0), False),
        ("i is null", ("i", 1, 4, 1), True),
        ("i is null", ("i", 1, 4, None), True),
        ("i is not null", ("i", None, None, 10), False),
        ("i is not null", ("i", None, None, 9), True),
        ("i <=> null", ("i", 1, 4, 0), False),
        ("not i <=> 4", ("i", 4, 4, 0), False),
        ("not i <=> 4", ("i", 4, 4, 1), True),
        ("i = 5", ("i", None, None, 10), False),
        ("i = 5", ("i", None, None, None), True),
        ("i = 5", ("i", 6, None, 0), True),
        ("i = b", ("b", None, None, 10), False),
        ("i = 5 or i = 1", ("i", 2, 4, 0), False),
        ("i = 5 or i > 3", ("i", 2, 4, 0), True),
        ("i = 5 or b = 1", ("i", 2, 4, 0), True),
        ("i = 5 and b = 1", ("i", 2, 4, 0), False),
        ("d = 1.5", ("d", 2.0, 4.0, 0), False),
        ("d = 0.0", ("d", -0.0, 4.0, 0), True),
        ("d > 9.5", ("d", 2.0, 4.0, 0), False),
        ("d = cast('NaN' as double)", ("d", 2.0, 4.0, 0), False),
        ("d = cast('NaN' as double)", ("d", None, None, 0), True),
        ("d <> cast('NaN' as double)", ("d", 2.0, 4.0, 0), True),
        ("d > 9.5", ("d", NAN, NAN, 0), True),
        ("d < 9.5", ("d", NAN, 20.0, 0), True),
        ("m = 1.505", ("m", Decimal("1.00"), Decimal("2.00"), 0), False),
        ("m < 1.005", ("m", Decimal("1.00"), Decimal("2.00"), 0), True),
        ("m < 1.00", ("m", Decimal("1.00"), Decimal("2.00"), 0), False),
        ("m = 0.1e0", ("m", Decimal("0.10"), Decimal("0.10"), 0), True),
        ("m <> 0.1e0", ("m", Decimal("0.10"), Decimal("0.10"), 0), False),
        ("t >= '2026-01-01'", ("t", 0, 1_000, 0), False),
        ("t = '1970-01-01 00:00:01'", ("t", 0, 1_000, 0), True),
        ("day < timestamp '1970-01-02 00:00:01'", ("day", 1, 5, 0), True),
        ("day < timestamp '1970-01-02 00:00:00'", ("day", 1, 5, 0), False),
        ("s = 'a string value longer'", ("s", "a string value l", "a string value m", 0), True),
        ("s = 'a string value m'", ("s", "a string value l", "a string value l", 0), False),
        ("s > '\U00010000'", ("s", "a", "\uffff", 0), False),
        ("s < '\uffff'", ("s", "\U00010000", "\U00010001", 0), False),
        ("s like 'b%'", ("s", "ba", "bz", 0), True),
        ("s like 'b%'", ("s", "a", "b", 0), True),
        ("s like 'b%'", ("s", "c", "d", 0), False),
        ("s like 'b%'", ("s", "a", "az", 0), False),
        ("s like 'bc_%'", ("s", "a", "bb", 0), False),
        ("s like '%b'", ("s", "c", "d", 0), True),
        ("s like 'b'", ("s", "c", "d", 0), False),
        ("s not like 'b%'", ("s", "ba", "bz", 0), False),
        ("s not like 'b%'", ("s", "ba", "c", 0), True),
        ("s not like 'b_'", ("s", "ba", "bz", 0), True),
        ("s like '%'", ("s", None, None, 10), False),
        ("c = 'ab '", ("c", "ab", "ab", 0), False),
        ("bin = X'00'", ("bin", None, None, 0), True),
        ("bin = X'00'", ("bin", None, None, 10), False),
        ("r is null", ("r", None, None, None), True),
        ("r.x = 5", ("r", None, None, None), True),
        ("i = 5", ("b", 6, 7, 0), True),
        ("true", ("i", 1, 1, 0), True),
        ("false", ("i", 1, 1, 0), False),
    ],
)
def test_rules(sql, stats, kept):
    assert may_match(bind(parse(sql), SMALL), one_column(*stats)).tolist() == [kept]


def test_an_empty_file_never_matches():
    stats = one_column("i", None, None, 0, row_count=0)
    assert may_match(bind(parse("i = 5"), SMALL), stats).tolist() == [False]
    assert may_match(bind(parse("i is null"), SMALL), stats).tolist() == [False]


def test_bounds_of_another_type_are_not_used():
    stats = Stats([10], {0: (pa.array([7], pa.int64()), pa.array([9], pa.int64()), [0])})
    assert may_match(bind(parse("i = 5"), SMALL), stats).tolist() == [True]


@pytest.mark.parametrize("name", ["i", "d", "s", "m", "t", "day"])
@pytest.mark.parametrize("members", [3, 17, 100])
def test_large_sets_prune_as_small_ones(name, members):
    field = next(f for f in SMALL if f.name == name)
    random = np.random.default_rng(members)

    def values(count):
        numbers = np.sort(random.integers(0, 300, count)).tolist()
        make = {
            "d": float,
            "s": lambda n: f"{n:05}",
            "m": lambda n: Decimal(n).scaleb(-2),
            "t": lambda n: n * 10**6,
        }
        return [make.get(name, int)(n) for n in numbers]

    edges = values(400)
    low, high = edges[::2], edges[1::2]
    wanted = values(members)
    unknown = {3, 50, 199}
    nulled = [[None if i in unknown else v for i, v in enumerate(side)] for side in (low, high)]
    stats = Stats([1] * 200, {field.id: (*(from_physical(side, field.type) for side in nulled), None)})
    literals = from_physical(wanted, field.type)
    kept = may_match(bind(col(name).is_in(literals), SMALL), stats)
    expected = [i in unknown or any(low[i] <= w <= high[i] for w in wanted) for i in range(200)]
    assert kept.tolist() == expected


def test_statistics_are_asked_for_once_a_column_and_only_for_those_of_the_predicate():
    asked = []

    class Counting(Stats):
        def min(self, field_id):
            asked.append(field_id)
            return super().min(field_id)

    stats = Counting([1], {0: (pa.array([1], pa.int32()), pa.array([2], pa.int32()), [0])})
    may_match(bind(parse("(i > 0 or i < 5) and i <> 7 and s is null"), SMALL), stats)
    assert asked == [0]


@settings(max_examples=100, deadline=None)
@given(predicates(), st.sets(st.sampled_from([f.id for f in SCHEMA])), st.lists(rows, max_size=8))
def test_both_parts_of_a_split_are_the_predicate(predicate, ids, data):
    table = table_of(data)
    bound = bind(predicate, SCHEMA)
    first, rest = split_conjuncts(bound, ids)
    assert first is None or columns(first) <= ids
    masks = [filter_mask(part, table).to_pylist() for part in (first, rest) if part is not None]
    together = [all(mask[i] for mask in masks) for i in range(len(data))]
    assert together == filter_mask(bound, table).to_pylist()


@pytest.mark.parametrize(
    ("sql", "first", "rest"),
    [
        ("i = 1 and b = 2", "i = 1", "b = 2"),
        ("i = 1 or b = 2", None, "i = 1 OR b = 2"),
        ("(i = 1 and b > 5) or (i = 2 and b < 3)", "i IN (1, 2)", "(i = 1 AND b > 5) OR (i = 2 AND b < 3)"),
        ("i = 1 and (i < b or b = 2)", "i = 1", "i < b OR b = 2"),
        ("i = 1", "i = 1", None),
        ("b = 1", None, "b = 1"),
        ("true", None, None),
        ("false", "FALSE", None),
        ("i = 0.5 and b = 1", "FALSE", None),
    ],
)
def test_split(sql, first, rest):
    found = split_conjuncts(bind(parse(sql), SMALL), [0])
    assert tuple(None if part is None else str(part) for part in found) == (first, rest)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("i = 1 and s = 'x'", [(1, "x")]),
        ("i = 1 and s = 'x' and b > 7", [(1, "x")]),
        ("i in (1, 2) and s in ('x', 'y')", [(1, "x"), (1, "y"), (2, "x"), (2, "y")]),
        ("(i = 1 or i = 2) and (s = 'x' or s is null)", [(1, "x"), (1, None), (2, "x"), (2, None)]),
        ("(i = 1 and s = 'x') or (i = 1 and s = 'y')", [(1, "x"), (1, "y")]),
        ("i in (1, 2) and i in (2, 3) and s <=> null", [(2, None)]),
        ("i = 1 and i = 2 and s = 'x'", []),
        ("i = 0.5 and s = 'x'", []),
        ("false", []),
        ("i = 1", None),
        ("i = 1 and s > 'x'", None),
        ("i = 1 and s not in ('x')", None),
        ("i = 1 and (s = 'x' or b = 1)", None),
        ("i = 1 and s = c", None),
        ("true", None),
    ],
)
def test_key_values(sql, expected):
    found = key_values(bind(parse(sql), SMALL), [0, 3])
    if expected is None:
        assert found is None
    else:
        assert [tuple(v if v is None else v.as_py() for v in row) for row in found] == expected
        types = [to_arrow_type(IntType()), to_arrow_type(VarCharType())]
        assert all(v is None or v.type == t for row in found for v, t in zip(row, types, strict=True))


def test_key_values_are_bounded():
    many = col("i").is_in(range(40)) & col("b").is_in(range(40))
    assert key_values(bind(many, SMALL), [0, 1]) is None
    assert len(key_values(bind(many, SMALL), [0])) == 40
    assert len(key_values(bind(many, SMALL), [0, 1], limit=1600)) == 1600


def test_both_zeros_are_keys_and_nan_is_none():
    zeros = [v[0].as_py() for v in key_values(bind(parse("d = 0 or d = 1"), SMALL), [2])]
    assert sorted(math.copysign(1, z) for z in zeros if z == 0) == [-1, 1]
    assert 1.0 in zeros
    assert key_values(bind(parse("d = 1 or d = cast('NaN' as double)"), SMALL), [2]) is None


@settings(max_examples=50, deadline=None)
@given(predicates(["int", "text", "flag", "dec"]), st.lists(rows, max_size=8))
def test_key_values_cover_every_match(predicate, data):
    keys = ("int", "text")
    found = key_values(bind(predicate, SCHEMA), [f.id for f in FIELDS if f.name in keys])
    if found is None:
        return
    known = {tuple(v if v is None else v.as_py() for v in row) for row in found}
    for row in data:
        assert truth(predicate, row) is not True or tuple(row[k] for k in keys) in known


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("d = 5", False),
        ("d < 1", False),
        ("d in (5, 6)", False),
        ("d > 5", True),
        ("d <> 1", True),
        ("d not in (1, 2)", True),
        ("d = cast('NaN' as double)", True),
        ("d <> cast('NaN' as double)", True),
        ("d < d", True),
        ("d > 5 and i > 5", False),
        ("d > 5 or i > 5", True),
        ("d is null", False),
    ],
)
def test_footers_are_not_believed_where_nan_matters(sql, kept):
    one = {
        2: (pa.array([1.0]), pa.array([1.0]), [0]),
        0: (pa.array([1], pa.int32()), pa.array([1], pa.int32()), [0]),
    }
    assert may_match(for_footers(bind(parse(sql), SMALL)), Stats([10], one)).tolist() == [kept]
    nulls = Stats([10], {2: (None, None, [10]), 0: one[0]})
    assert may_match(for_footers(bind(parse("d > 5"), SMALL)), nulls).tolist() == [False]


@pytest.mark.parametrize(
    ("sql", "for_readers"),
    [
        ("s like 'ab%'", "s >= 'ab' AND s < 'ac' AND startswith(s, 'ab')"),
        ("s like 'a%b'", "s >= 'a' AND s < 'b' AND s LIKE 'a%b'"),
        ("s like '\ud7ff%'", "s >= '\ud7ff' AND s < '\ue000' AND startswith(s, '\ud7ff')"),
        ("s like 'a\U0010ffff%'", "s >= 'a\U0010ffff' AND s < 'b' AND startswith(s, 'a\U0010ffff')"),
        ("s like '\U0010ffff%'", "s >= '\U0010ffff' AND startswith(s, '\U0010ffff')"),
        ("s like '%b'", "s LIKE '%b'"),
        ("s not like 'ab%'", "NOT startswith(s, 'ab')"),
        ("i > 5 or i <> 7", "i > 5 OR i <> 7"),
    ],
)
def test_prefixes_are_ranges_for_readers(sql, for_readers):
    assert str(for_footers(bind(parse(sql), SMALL))) == for_readers


@settings(max_examples=50, deadline=None)
@given(predicates(), st.lists(rows, max_size=8))
def test_what_readers_get_keeps_every_match(predicate, data):
    bound = bind(predicate, SCHEMA)
    wanted, kept = (filter_mask(p, table_of(data)).to_pylist() for p in (bound, for_footers(bound)))
    assert all(k or not w for k, w in zip(kept, wanted, strict=True))


def test_constants_need_no_column():
    assert bind(TRUE, ()) == ALWAYS
    assert bind(~TRUE, ()) == NEVER
    assert columns(ALWAYS) == set()
    assert columns(bind(parse("r.x = 1 and i < b"), SMALL)) == {0, 1, 9}
