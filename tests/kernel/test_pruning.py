"""Pruning never loses a row: a filtered read equals filtering everything, whatever was pruned."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch
from anabranch.expr import col
from tests.support.tables import make_table, rows

_names = itertools.count()
WORDS = [None, "", "a", "ab", "anabranch", "an arm of a river that leaves", "b", "\U0010ffff" * 20, "é", "zz"]
NUMBERS = [None, -(2**63), -5, -1, 0, 1, 5, 100, 2**31, 2**63 - 1]
FLOATS = [None, float("nan"), float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf")]

row = st.fixed_dictionaries(
    {
        "p": st.sampled_from([None, "x", "y", "", " "]),
        "n": st.sampled_from(NUMBERS),
        "s": st.sampled_from(WORDS),
        "f": st.sampled_from(FLOATS),
    }
)
batches = st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5)


def _leaf(name, values):
    value = st.sampled_from([v for v in values if v is not None])
    column = col(name)
    return st.one_of(
        value.map(lambda v: column == v),
        value.map(lambda v: column != v),
        value.map(lambda v: column < v),
        value.map(lambda v: column >= v),
        st.lists(value, min_size=1, max_size=3).map(column.is_in),
        st.just(column.is_null()),
        st.just(column.is_not_null()),
    )


leaves = st.one_of(
    _leaf("p", ["x", "y", "", " "]),
    _leaf("n", NUMBERS),
    _leaf("s", WORDS),
    _leaf("f", [v for v in FLOATS if v is None or v == v]),
    st.sampled_from(["a", "an", ""]).map(lambda prefix: col("s").starts_with(prefix)),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda p: ~p),
    ),
    max_leaves=5,
)
layouts = st.sampled_from(
    [
        {},
        {"partition_by": ["p"]},
        {"options": {"bucket": "3", "bucket-key": "n"}},
        {"partition_by": ["p"], "options": {"bucket": "2", "bucket-key": "s,n"}},
        {"options": {"metadata.stats-mode": "none"}},
        {"options": {"metadata.stats-mode": "counts"}},
        {"options": {"metadata.stats-mode": "full"}},
    ]
)

ARROW = pa.schema([("p", pa.string()), ("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


def _sorted(table):
    return sorted(map(_shown, table.to_pylist()))


def _shown(row):
    return repr(sorted(row.items()))


@settings(max_examples=30)
@given(batches=batches, predicate=predicates, layout=layouts)
def test_a_filtered_read_equals_filtering_all_rows(batches, predicate, layout):
    table = make_table(f"memory://prune{next(_names)}", schema=ARROW, **layout)
    for batch in batches:
        table.append(pa.Table.from_pylist(batch, schema=ARROW))
    everything = table.scan().to_arrow()
    assert _sorted(everything) == sorted(_shown(r) for batch in batches for r in batch)
    kept = table.scan(predicate).to_arrow()
    unpruned = make_table(
        f"memory://plain{next(_names)}", schema=ARROW, options={"metadata.stats-mode": "none"}
    )
    unpruned.append(everything)
    assert _sorted(kept) == _sorted(unpruned.scan(predicate).to_arrow())


@pytest.fixture
def spread():
    """Ten files with ten ids each, two partitions."""
    table = make_table(
        f"memory://spread{next(_names)}", schema="id BIGINT, v STRING, p STRING", partition_by=["p"]
    )
    for i in range(10):
        data = rows(i * 10, 10).append_column("p", [["even" if i % 2 == 0 else "odd"] * 10])
        table.append(data)
    return table


def _files(table, filter):
    plan = table.scan(filter).plan()
    return plan.files.height


def test_statistics_leave_one_file(spread):
    assert _files(spread, "id = 42") == 1
    assert _files(spread, "id >= 85") == 2
    assert _files(spread, "id IN (5, 55)") == 2
    assert _files(spread, "v LIKE 'v4%'") == 2
    assert _files(spread, "id IS NULL") == 0
    assert _files(spread, "id < 0 OR id > 99") == 0


def test_partitions_are_decided_exactly(spread):
    assert _files(spread, "p = 'even'") == 5
    assert _files(spread, "p = 'none'") == 0
    assert _files(spread, "p = 'even' AND id < 30") == 2
    assert _files(spread, "(p = 'even' AND id = 5) OR (p = 'odd' AND id = 5)") == 1
    assert _files(spread, "p IS NULL") == 0


def test_the_report_tells_each_step(spread):
    steps = {s.name: s.files for s in spread.scan("p = 'even' AND id < 30").plan().report.steps}
    assert (steps["entries"], steps["partitions"], steps["live"], steps["statistics"]) == (5, 5, 5, 2)
    text = spread.scan("p = 'even' AND id < 30").explain()
    assert "reads 2 files" in text


def test_buckets_are_pruned_by_their_own_number():
    table = make_table(
        f"memory://buckets{next(_names)}",
        options={"bucket": "8", "bucket-key": "id"},
        schema="id BIGINT, v STRING",
    )
    table.append(rows(0, 200))
    assert len({s.bucket for s in table.scan().plan().splits}) == 8
    plan = table.scan("id = 77").plan()
    assert len({s.bucket for s in plan.splits}) == 1
    assert table.scan("id = 77").to_arrow()["id"].to_pylist() == [77]
    table.alter().set_option("bucket", "3").apply()
    table = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    table.overwrite(rows(0, 50))
    assert table.scan("id = 33").to_arrow()["id"].to_pylist() == [33]


def test_pruning_follows_ids_through_schema_changes():
    table = make_table(f"memory://evolved{next(_names)}", schema="a INT, b INT")
    table.append(pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([10, 20], pa.int32())}))
    table.alter().rename_column("a", "c").rename_column("b", "a").widen_column("a", "BIGINT").apply()
    table.append(pa.table({"c": pa.array([3], pa.int32()), "a": pa.array([30], pa.int64())}))
    table.alter().add_column("d", "STRING").apply()
    table.append(pa.table({"c": pa.array([4], pa.int32()), "a": pa.array([40], pa.int64()), "d": ["new"]}))
    assert table.scan("a = 20").to_arrow().to_pylist() == [{"c": 2, "a": 20, "d": None}]
    assert _files(table, "a = 20") == 1
    assert _files(table, "d = 'new'") == 1
    assert _files(table, "d IS NULL") == 2
    assert table.scan("d IS NULL AND c > 1", columns=["c"]).to_arrow()["c"].to_pylist() == [2, 3]
    table.alter().drop_column("c").add_column("c", "INT").apply()
    assert _files(table, "c = 1") == 0
    assert table.scan("c IS NULL").to_arrow().num_rows == 4


def test_a_limit_stops_planning_early(spread):
    assert spread.scan(limit=15).plan().files.height == 2
    assert spread.scan(limit=15).to_arrow().num_rows == 15
    assert spread.scan("id >= 50", limit=3).to_arrow().num_rows == 3
    assert spread.scan(limit=0).to_arrow().num_rows == 0
