"""Random conditions, and the values that they are about."""

import datetime as dt
import math
import operator
from decimal import Decimal

import polars as pl

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
