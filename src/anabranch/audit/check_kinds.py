"""The kinds of checks: what each measures, and when it passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from anabranch.audit import measures as m
from anabranch.audit.checks_file import Item
from anabranch.audit.measures import Check, CheckEntry, CheckFacts, CheckOutcome
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundColumn
from anabranch.expr.bound import columns as bound_columns
from anabranch.expr.nodes import Predicate, all_of, any_of, col
from anabranch.expr.parse import parse
from anabranch.expr.values import quote_name
from anabranch.format.types import data_types as t
from anabranch.kernel.log.moment import duration_text, time_text

_NUMBERS = (t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType, t.FloatType, t.DoubleType, t.DecimalType)
_TIMES = (t.DateType, t.TimestampType, t.LocalZonedTimestampType)


def _row_count(asked: CheckEntry) -> list[Check]:
    given = asked.item.mapping(("min", "max"))
    low = given["min"].integer() if "min" in given else None
    high = given["max"].integer() if "max" in given else None
    if low is None and high is None:
        asked.item.fail("'row_count' says neither 'min' nor 'max'")

    def judge(found: Sequence[m.Found], _: CheckFacts) -> CheckOutcome:
        count = _whole(found[0])
        return CheckOutcome(
            (low is None or count >= low) and (high is None or count <= high), _many(count, "row")
        )

    return [
        Check(
            asked.kind,
            "row_count",
            _span(low, high) + (" row" if 1 in (low, high) and None in (low, high) else " rows"),
            (m.RowCount(where=asked.where),),
            judge,
        )
    ]


def _not_null(asked: CheckEntry) -> list[Check]:
    found = []
    for column in map(asked.column, asked.item.each()):
        is_there = ~_as_column(column).is_null()
        found.append(_offending(asked, f"not_null {column}", "no nulls", is_there, (column,), what="null"))
    return found


def _range(asked: CheckEntry) -> list[Check]:
    given = asked.item.mapping(("column", "min", "max"))
    column = asked.column(_required(asked, given, "column"))
    low, high = given.get("min"), given.get("max")
    bounds = []
    if low is not None:
        bounds.append(_as_column(column) >= low.value())
    if high is not None:
        bounds.append(_as_column(column) <= high.value())
    if not bounds:
        asked.item.fail("'range' says neither 'min' nor 'max'")
    condition = any_of([_as_column(column).is_null(), all_of(bounds)])
    span = _span(None if low is None else low.value(), None if high is None else high.value())
    return [_offending(asked, f"range {column}", span, asked.predicate(condition), (column,))]


def _accepted_values(asked: CheckEntry) -> list[Check]:
    given = asked.item.mapping(("column", "values"))
    column = asked.column(_required(asked, given, "column"))
    values = [item.value() for item in _required(asked, given, "values").items()]
    if not values:
        given["values"].fail("the list is empty")
    condition = any_of([_as_column(column).is_null(), _as_column(column).is_in(values)])
    expected = f"one of {', '.join(values)}"
    return [_offending(asked, f"accepted_values {column}", expected, asked.predicate(condition), (column,))]


def _condition(asked: CheckEntry) -> list[Check]:
    text = asked.condition(asked.item)
    return [_offending(asked, f"condition {text}", f"TRUE: {text}", text, _columns_in(text, asked))]


def _unique(asked: CheckEntry) -> list[Check]:
    keys = asked.keys()
    measure = m.Duplicates(keys, where=asked.where)
    return [_counting(asked, f"unique {', '.join(keys)}", "each key once", measure, "repeated row")]


def _no_removed_keys(asked: CheckEntry) -> list[Check]:
    keys = asked.keys()
    measure = m.MissingKeys(keys, where=asked.where)
    return [
        _counting(asked, f"no_removed_keys {', '.join(keys)}", "every key of main", measure, "missing key")
    ]


def _sql(asked: CheckEntry) -> list[Check]:
    if asked.own_language:
        asked.item.fail(
            "a check in Spark's SQL needs Spark, and the lake was opened without",
            "open it with anabranch.connect(warehouse, spark=spark), or write a 'condition'.",
        )
    text = asked.item.text()
    return [_counting(asked, f"sql {text}", "no rows", m.SqlQuery(text), "row")]


def _freshness(asked: CheckEntry) -> list[Check]:
    given = asked.item.mapping(("column", "within"))
    within = _required(asked, given, "within").duration()
    column = asked.column(given["column"], *_TIMES) if "column" in given else None
    if column is None and asked.where is not None:
        asked.item.fail("'freshness' of the commit has no 'where'", "name a 'column' with event times.")

    def judge(found: Sequence[m.Found], facts: CheckFacts) -> CheckOutcome:
        newest = facts.committed if column is None else _optional_whole(found[0])
        if newest is None:
            return CheckOutcome(False, "nothing")
        return CheckOutcome(
            facts.now - newest <= within, f"{time_text(newest)}, {duration_text(facts.now - newest)} ago"
        )

    what = "the commit" if column is None else str(column)
    measures = () if column is None else (m.NewestValue(str(column), where=asked.where),)
    return [Check(asked.kind, f"freshness {what}", f"within {duration_text(within)}", measures, judge)]


def _row_count_vs_main(asked: CheckEntry) -> list[Check]:
    within = _within(asked, asked.item.mapping(("within",)))
    measures = (m.RowCount(where=asked.where), m.RowCount(where=asked.where, of_main=True))
    return [_vs_main(asked, "row_count_vs_main", within, measures)]


def _sum_vs_main(asked: CheckEntry) -> list[Check]:
    given = asked.item.mapping(("column", "within"))
    column = str(asked.column(_required(asked, given, "column"), *_NUMBERS))
    measures = (m.Total(column, where=asked.where), m.Total(column, where=asked.where, of_main=True))
    return [_vs_main(asked, f"sum_vs_main {column}", _within(asked, given), measures)]


READERS: Final[dict[str, Callable[[CheckEntry], list[Check]]]] = {
    "row_count": _row_count,
    "not_null": _not_null,
    "unique": _unique,
    "range": _range,
    "accepted_values": _accepted_values,
    "condition": _condition,
    "sql": _sql,
    "freshness": _freshness,
    "row_count_vs_main": _row_count_vs_main,
    "sum_vs_main": _sum_vs_main,
    "no_removed_keys": _no_removed_keys,
}
"""The reader of each kind, by its name in files."""
COUNTING = frozenset(
    {"not_null", "unique", "range", "accepted_values", "condition", "sql", "no_removed_keys"}
)
"""Kinds that count offending rows, some of which may be tolerated."""


# Shared by the kinds


def _offending(
    asked: CheckEntry,
    name: str,
    expected: str,
    condition: str | Predicate,
    columns: Sequence[BoundColumn],
    *,
    what: str = "other row",
) -> Check:
    roots = dict.fromkeys([*(c.path[0].name for c in columns), *asked.shown])
    measure = m.Offending(condition, tuple(roots), where=asked.where)
    return _counting(asked, name, expected, measure, what)


def _counting(asked: CheckEntry, name: str, expected: str, measure: m.Measure, what: str) -> Check:
    """Return a check that passes if the count is within the allowed number."""
    most = asked.most
    share = most.percentage() if most is not None and most.is_percentage else None
    count = 0 if most is None or share is not None else most.integer()
    measures = (measure,) if share is None else (measure, m.RowCount(where=asked.where))

    def judge(found: Sequence[m.Found], _: CheckFacts) -> CheckOutcome:
        findings = found[0]
        assert isinstance(findings, m.Findings)
        allowed = count if share is None else share * _whole(found[1]) / 100
        return CheckOutcome(findings.count <= allowed, _many(findings.count, what), findings)

    tolerated = "" if most is None else f", at most {most.text()} otherwise"
    return Check(asked.kind, name, expected + tolerated, measures, judge)


def _vs_main(asked: CheckEntry, name: str, within: Decimal, measures: tuple[m.Measure, ...]) -> Check:
    def judge(found: Sequence[m.Found], _: CheckFacts) -> CheckOutcome:
        branch, main = found
        ours, theirs = _exact(branch), _exact(main)
        share = Fraction(within) / 100
        passed = ours is not None and theirs is not None and abs(ours - theirs) <= share * abs(theirs)
        return CheckOutcome(passed, f"{branch:,} here, {main:,} in main")

    return Check(asked.kind, name, f"within {within} % of main", measures, judge)


def _required(asked: CheckEntry, given: Mapping[str, Item], key: str) -> Item:
    if key not in given:
        asked.item.fail(f"'{asked.kind}' needs '{key}'")
    return given[key]


def _within(asked: CheckEntry, given: Mapping[str, Item]) -> Decimal:
    return _required(asked, given, "within").percentage()


def _as_column(column: BoundColumn) -> Any:
    return (
        col(*(f.name for f in column.path)) if len(column.path) > 1 else col(quote_name(column.path[0].name))
    )


def _columns_in(text: str, asked: CheckEntry) -> list[BoundColumn]:
    """Return the columns that a condition uses, for its sample; for Spark's SQL, those named in the text."""
    if not asked.own_language:
        return [BoundColumn((f,)) for f in asked.fields if f.name in text]
    ids = bound_columns(bind(parse(text), asked.fields))
    return [BoundColumn((f,)) for f in asked.fields if f.id in ids]


def _span(low: object, high: object) -> str:
    match low, high:
        case _, None:
            return f"at least {_spelled(low)}"
        case None, _:
            return f"at most {_spelled(high)}"
        case _:
            return f"{_spelled(low)} to {_spelled(high)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _spelled(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _whole(found: m.Found) -> int:
    assert isinstance(found, int)
    return found


def _optional_whole(found: m.Found) -> int | None:
    return None if found is None else _whole(found)


def _exact(found: m.Found) -> Fraction | None:
    """Return a number to calculate with; None for NaN and infinity."""
    assert isinstance(found, int | float | Decimal)
    return Fraction(found) if math.isfinite(found) else None
