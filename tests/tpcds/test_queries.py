"""The queries of TPC-DS give over a lake what they give over plain Parquet files."""

import pytest

from tests.tpcds.contest import differences
from tests.tpcds.queries import in_total_order

pytestmark = pytest.mark.spark

SHORT = (22, 97)
"""Roll-ups, outer joins."""
SCALE, LARGER = 0.01, 0.1


@pytest.mark.parametrize("number", SHORT)
def test_a_query_gives_the_same(contest, number):
    assert compared(contest(SCALE), number) > 0


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 100))
def test_every_query_gives_the_same(contest, number):
    compared(contest(LARGER), number)


def compared(both, number):
    """Compare one query; returns how many rows it gives."""
    text = both.query(number)
    frame = both.lake.sql(text)
    found = frame.collect()
    assert differences(found, both.plain.sql(text).collect()) is None
    assert "portable door" not in frame._jdf.queryExecution().toString()
    return len(found)


def test_a_join_leaves_out_partitions_while_it_runs(contest):
    frame = contest(SCALE).lake.sql(contest(SCALE).query(21))
    assert "dynamicpruning" in frame._jdf.queryExecution().executedPlan().toString()


def test_rows_that_differ_are_seen():
    rows = [(1, "a", 0.1), (2, None, 3.0)]
    assert differences(rows, [(2, None, 3.0), (1, "a", 0.1 + 1e-12)]) is None
    assert differences(rows, rows[:1]) == "2 rows instead of 1"
    assert "instead of (1, 'a', 0.2)" in differences(rows, [(1, "a", 0.2), (2, None, 3.0)])
    assert differences(rows, [(1, "a", 0.1), (2, "", 3.0)]) is not None
    assert differences([(1,)], [(1.0,)]) is not None


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT a, b FROM t ORDER BY a", "SELECT a, b FROM t ORDER BY a"),
        (
            "SELECT a, b FROM t ORDER BY f(a, g(b)) LIMIT 10",
            "SELECT a, b FROM t ORDER BY f(a, g(b)) , 1, 2 LIMIT 10",
        ),
        (
            "SELECT a, rank() OVER (ORDER BY b) b FROM t LIMIT 10",
            "SELECT a, rank() OVER (ORDER BY b) b FROM t ORDER BY 1, 2 LIMIT 10",
        ),
    ],
)
def test_a_limit_leaves_nothing_to_chance(text, whole):
    assert " ".join(in_total_order(text, lambda _: ["a", "b"]).split()) == whole
