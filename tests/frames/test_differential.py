"""Random filters over an evolved table: our own, DuckDB's and Polars' give what they give over the rows in memory."""

import datetime as dt
import math
import operator
import random
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import anabranch

NAN = float("nan")
VALUES = {
    "i": [None, -3, 0, 1, 2, 2**31],
    "f": [None, NAN, -0.0, 0.0, 1.5, math.inf, -math.inf],
    "s": [None, "", "a", "A", "ä", "it's", 'say "a"', "ab%"],
    "d": [None, dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
    "t": [None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 1, 12)],
    "n": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")],
    "b": [None, True, False],
}
OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Columns that were added, widened, renamed, dropped and added again; two branches."""
    chance = random.Random(7)
    lake = anabranch.connect(str(tmp_path_factory.mktemp("lake")))
    made = lake.create_table("db.t", "i INT, f FLOAT, old STRING, b BOOLEAN, d DATE", partition_by="d")

    def write(table, names, count):
        table.append([{name: chance.choice(VALUES[_SOURCE.get(name, name)][: 5 if name == "i" else None]) for name in names}
                      for _ in range(count)])  # fmt: skip

    write(made, ["i", "f", "old", "b", "d"], 25)
    made.alter().widen_column("i", "BIGINT").widen_column("f", "DOUBLE").rename_column("old", "s").apply()
    made.alter().add_column("t", "TIMESTAMP(6)").add_column("n", "DECIMAL(10, 2)").apply()
    write(made, [*VALUES], 25)
    made.create_tag("then")
    write(made, [*VALUES], 25)
    made.create_branch("fix", tag="then")
    made.alter().drop_column("b").apply()
    made.alter().add_column("b", "BOOLEAN").apply()
    write(made, [*VALUES], 25)
    write(made.branch("fix"), [*VALUES], 25)
    return made


_SOURCE = {"old": "s"}


def _literal(value):
    match value:
        case bool() | int():
            return str(value).upper()
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case Decimal():
            return f"CAST({value} AS DECIMAL(10, 2))"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case dt.date():
            return f"DATE '{value}'"
        case _:
            return "'" + value.replace("'", "''") + "'"


def random_condition(chance, depth=2):
    """A condition for DuckDB, for Polars, and for us."""
    if depth and chance.random() < 0.6:
        left, right = random_condition(chance, depth - 1), random_condition(chance, depth - 1)
        if chance.random() < 0.25:
            return f"(NOT {left[0]})", ~left[1], ~left[2]
        word, join = chance.choice([("AND", operator.and_), ("OR", operator.or_)])
        return f"({left[0]} {word} {right[0]})", join(left[1], right[1]), join(left[2], right[2])
    name = chance.choice([*VALUES])
    known = VALUES[name][1:]
    ours, theirs = anabranch.col(name), pl.col(name)
    kind = chance.random()
    if kind < 0.15:
        return f"({name} IS NULL)", theirs.is_null(), ours.is_null()
    if kind < 0.3:
        some = chance.sample(known, min(2, len(known)))
        # Polars before 2 compares no decimals of another precision.
        listed = pl.Series(some, dtype=pl.Decimal(10, 2)) if name == "n" else some
        return f"({name} IN ({', '.join(map(_literal, some))}))", theirs.is_in(listed), ours.is_in(some)
    word, compare = chance.choice([*OPERATORS.items()])
    value = chance.choice(known)
    return f"({name} {word} {_literal(value)})", compare(theirs, pl.lit(value)), compare(ours, value)


def _rows(found):
    return sorted(map(repr, (tuple(row.values()) for row in pa.table(found).to_pylist())))


@pytest.mark.parametrize(
    "view",
    [lambda table: table, lambda table: table.branch("fix"), lambda table: table.at("then")],
    ids=["main", "branch", "moment"],
)
def test_the_same_rows_whoever_is_asked(table, view):
    chance = random.Random(11)
    scan = view(table).scan()
    in_memory = scan.to_arrow()
    names = [name for name in VALUES if name in in_memory.schema.names]
    relation, lazy = scan.to_duckdb(), scan.to_polars(lazy=True)
    connection = duckdb.connect()
    # A table of Arrow would be filtered by Arrow, for which NaN is no number; one of DuckDB itself is not.
    connection.from_arrow(in_memory).create("whole")
    frame = pl.DataFrame(in_memory)
    tried = 0
    while tried < 25:
        text, theirs, ours = random_condition(chance)
        if not {n for n in VALUES if f"({n} " in text} <= {*names}:
            continue
        tried += 1
        expected = _rows(connection.sql(f"SELECT * FROM whole WHERE {text}").to_arrow_table())
        assert _rows(relation.filter(text).to_arrow_table()) == expected, text
        assert _rows(view(table).scan(ours)) == expected, text
        polars = _rows(frame.filter(theirs))
        assert _rows(lazy.filter(theirs).collect()) == polars, text
        assert view(table).scan(ours).count() == len(expected), text
