"""Counts and extremes from manifests are those of the rows, or are not answered."""

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch
from anabranch.kernel.scan.answers import Aggregate

COLUMNS = "p INT, q STRING, i BIGINT, d DATE, m DECIMAL(30, 4), t TIMESTAMP(6), n TIMESTAMP(9), b BOOLEAN, f DOUBLE, s STRING"
EXACT = ("p", "q", "i", "d", "m", "t", "b")
VALUES = {
    "p": st.none() | st.integers(0, 2),
    "q": st.none() | st.sampled_from(["", "x", "a long text which statistics would cut off"]),
    "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "d": st.none() | st.dates(),
    "m": st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**25), max_value=10**25),
    "t": st.none() | st.datetimes(),
    "n": st.none() | st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)),
    "b": st.none() | st.booleans(),
    "f": st.none() | st.floats(),
    "s": st.none() | st.text(max_size=40),
}  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=6)


def table_of(appends):
    lake = anabranch.connect("memory://answers")
    lake.drop_table("db.t", if_exists=True)
    table = lake.create_table("db.t", COLUMNS, partition_by=["p", "q"])
    schema = table.scan().to_arrow().schema
    for rows in appends:
        if rows:
            with decimal.localcontext(decimal.Context(prec=38)):
                table.append(pa.Table.from_pylist(rows, schema=schema))
    return table


CONDITIONS = st.sampled_from([None, "p = 1", "p IS NULL", "q = 'x' OR p = 0"])


@settings(max_examples=12, deadline=None)
@given(st.lists(ROWS, max_size=4), CONDITIONS)
def test_they_are_those_of_the_rows(appends, condition):
    _check_answers(appends, condition)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, max_size=4), CONDITIONS)
def test_they_are_those_of_many_rows(appends, condition):
    _check_answers(appends, condition)


def _check_answers(appends, condition):
    table = table_of(appends)
    scan = table.scan(condition)
    rows = scan.to_arrow()
    for column in rows.column_names:
        field = table.schema.field(column)
        found = scan.answer(
            [Aggregate("count"), Aggregate("count", field), *(Aggregate(w, field) for w in ("min", "max"))]
        )
        if column not in EXACT:
            assert found is None
            found = scan.answer([Aggregate("count"), Aggregate("count", field)])
        expected = [rows.num_rows, rows.num_rows - rows[column].null_count]
        if column in EXACT:
            limits = pc.min_max(rows[column])
            expected += [limits["min"].as_py(), limits["max"].as_py()]
        assert [column[0].as_py() for column in found.columns] == expected
        if column in EXACT:
            assert [scan.min(column), scan.max(column)] == expected[2:]


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.lists(ROWS, max_size=4))
def test_groups_are_those_of_the_rows(appends):
    table = table_of(appends)
    fields = [table.schema.field(name) for name in ("q", "p", "i")]
    found = table.scan().answer([Aggregate("count"), Aggregate("max", fields[2])], fields[:2])
    rows = table.scan().to_arrow()
    expected = rows.group_by(["q", "p"]).aggregate([([], "count_all"), ("i", "max")])
    key = str
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=key) == sorted(
        ((r["q"], r["p"], r["count_all"], r["i_max"]) for r in expected.to_pylist()), key=key
    )


def test_what_manifests_do_not_know_is_not_answered():
    table = table_of([[dict.fromkeys(VALUES) | {"p": 1, "i": 5}]])
    field = table.schema.field("i")
    assert table.scan("i > 3").answer([Aggregate("count")]) is None
    assert table.scan().answer([Aggregate("count")], [field]) is None
    assert table.scan(limit=1).answer([Aggregate("count")]) is None
    assert table.scan().answer([]) is None, "Arrow has no row without columns"
    table.alter().set_option("metadata.stats-mode", "none").apply()
    again = anabranch.connect("memory://answers").table("db.t")
    again.append(again.scan().to_arrow())
    assert again.scan().answer([Aggregate("max", field)]) is None
    assert again.scan().answer([Aggregate("count", field)]) is None
    assert again.scan().answer([Aggregate("count")])["a0"].to_pylist() == [2]
    assert again.scan().max("i") == 5, "which is read"


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_floating_point_partitions_are_counted_but_neither_ordered_nor_grouped(kind):
    lake = anabranch.connect("memory://floats")
    lake.drop_table("db.t", if_exists=True)
    table = lake.create_table("db.t", f"i INT, p {kind}", partition_by=["p"])
    table.append([{"i": 1, "p": p} for p in (0.0, -0.0, float("nan"), float("inf"), None)])
    field = table.schema.field("p")
    assert table.scan().answer([Aggregate("count", field)])["a0"].to_pylist() == [4]
    assert table.scan().answer([Aggregate("max", field)]) is None, "NaN is the largest of them"
    assert table.scan().answer([Aggregate("min", field)]) is None
    assert table.scan().answer([Aggregate("count")], [field]) is None, "0.0 and -0.0 are one group"


def test_columns_that_came_later_have_nulls_in_files_from_before():
    table = table_of([[dict.fromkeys(VALUES) | {"p": 1, "i": 5}] * 3])
    table.alter().add_column("x", "INT").apply()
    table = anabranch.connect("memory://answers").table("db.t")
    field = table.schema.field("x")
    asked = [Aggregate("count", field), Aggregate("min", field)]
    assert table.scan().answer(asked).to_pylist() == [{"a0": 0, "a1": None}]
    table.append([{"p": 1, "x": 7}])
    assert table.scan().answer(asked).to_pylist() == [{"a0": 1, "a1": 7}]
