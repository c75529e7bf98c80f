"""Measurement of rows for an audit by Spark jobs: one for all numbers of a side, a few more for keys and samples.

Conditions in text are Spark's SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn

from anabranch.audit import measures as m
from anabranch.errors import InvalidInputError
from anabranch.expr.bind import bind, resolve
from anabranch.expr.bound import BoundColumn
from anabranch.expr.nodes import col
from anabranch.format.types import data_types as t
from anabranch.lazy import lazy
from anabranch.spark.native.filters import cannot_filter, column, filter_column, named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from anabranch.audit.sides import Sides
    from anabranch.spark.tasks.task_engine import TaskEngine

_WIDEST = "DECIMAL(38, 0)"
_DAY = 86_400_000


def measure(engine: TaskEngine, measures: Sequence[m.Measure], sides: Sides) -> dict[m.Measure, m.Found]:
    """Return the result of each measure.

    Raises:
        InvalidInputError: Spark does not understand a condition or query.
        JobFailedError: Spark did not bring a job to its end.
    """
    found: dict[m.Measure, m.Found] = {}
    rows = {of_main: _Rows(engine, sides, of_main) for of_main in (False, True)}
    wanted = [*dict.fromkeys(measures)]
    for of_main, side in rows.items():
        found |= side.numbers([one for one in wanted if one.of_main is of_main and isinstance(one, _NUMBERS)])
    for one in wanted:
        match one:
            case m.Offending() if (count := _count(found[one])) > 0:
                found[one] = m.Findings(count, rows[one.of_main].sample_of(one))
            case m.Duplicates():
                found[one] = rows[one.of_main].duplicates(one)
            case m.MissingKeys():
                found[one] = _missing_keys(engine, sides, one)
            case m.SqlQuery():
                found[one] = _query(engine, rows, one)
    return found


_NUMBERS = (m.RowCount, m.Offending, m.Total, m.NewestValue)


@dataclass(frozen=True)
class _Rows:
    """Rows of the branch, or of main."""

    engine: TaskEngine
    sides: Sides
    of_main: bool

    @lazy
    def frame(self) -> DataFrame:
        return self.sides.scan(of_main=self.of_main).to_spark()

    @lazy
    def fields(self) -> tuple[t.Field, ...]:
        return self.sides.fields_of_main if self.of_main else self.sides.fields

    def numbers(self, measures: Sequence[m.Measure]) -> dict[m.Measure, m.Found]:
        """Compute all measures that fit into one job."""
        if not measures:
            return {}
        columns = [self._number(one).alias(str(i)) for i, one in enumerate(measures)]
        (row,) = self.engine.collect(self.frame.agg(*columns), name=self._name)
        return {one: _number_of(one, row[i]) for i, one in enumerate(measures)}

    def sample_of(self, wanted: m.Offending) -> tuple[Mapping[str, Any], ...]:
        wrong = self.frame.where(self._is_wrong(wanted)).select(*map(named, wanted.columns))
        return _sample(self.engine, wrong, self._name)

    def duplicates(self, wanted: m.Duplicates) -> m.Findings:
        keys = _keys_of(self._counting(wanted), wanted.columns)
        repeated = (
            keys.groupBy(*map(named, wanted.columns)).agg(fn.count("*").alias("\1n")).where(named("\1n") > 1)
        )
        total = repeated.agg(fn.sum(named("\1n") - 1).alias("n"))
        (row,) = self.engine.collect(total, name=self._name)
        count = int(row.n or 0)
        shown = repeated.select(*map(named, wanted.columns))
        return m.Findings(count, _sample(self.engine, shown, self._name) if count else ())

    def _number(self, wanted: m.Measure) -> Column:
        counts = fn.lit(True) if wanted.where is None else self._is_true(wanted.where)
        match wanted:
            case m.Offending():
                return fn.count_if(self._is_wrong(wanted))
            case m.Total(column=name):
                bound = self._column(name)
                values = column(bound)
                if not isinstance(bound.type, t.DecimalType | t.FloatType | t.DoubleType):
                    values = values.cast(_WIDEST)  # the sum of integers could be too large for one
                return fn.sum(fn.when(counts, values))
            case m.NewestValue(column=name):
                bound = self._column(name)
                newest = fn.max(fn.when(counts, column(bound)))
                if isinstance(bound.type, t.DateType):
                    return fn.unix_date(newest).cast("BIGINT") * _DAY
                # A time without a zone is counted as if in UTC, not in the zone of the session.
                is_zoned = isinstance(bound.type, t.LocalZonedTimestampType)
                return fn.unix_millis(newest) if is_zoned else newest.cast("STRING")
            case _:
                return fn.count_if(counts)

    def _column(self, name: str) -> BoundColumn:
        return resolve(col(name).column, self.fields)

    def _is_wrong(self, wanted: m.Offending) -> Column:
        wrong = ~self._is_true(wanted.condition)
        return wrong if wanted.where is None else wrong & self._is_true(wanted.where)

    def _counting(self, wanted: m.Measure) -> DataFrame:
        return self.frame if wanted.where is None else self.frame.where(self._is_true(wanted.where))

    def _is_true(self, condition: m.Condition) -> Column:
        return _is_true(condition, self.frame, self.fields)

    @property
    def _name(self) -> str:
        return f"audit {self.sides.branch.context.title}"


def _missing_keys(engine: TaskEngine, sides: Sides, wanted: m.MissingKeys) -> m.Findings:
    # Of Spark's SQL it is not known which columns it looks at, so main's rows come whole.
    fields = sides.fields_of_main
    besides = [f.name for f in fields] if wanted.where is not None else []
    gone, branch = sides.key_scans(wanted.columns, besides)
    if not gone.plan().splits:
        return m.Findings(0)
    rows = gone.to_spark()
    if wanted.where is not None:
        rows = rows.where(_is_true(wanted.where, rows, fields))
    there = _keys_of(branch.to_spark(), wanted.columns)
    missing = _keys_of(rows, wanted.columns).distinct().join(there, [*wanted.columns], "left_anti")
    name = f"audit {sides.branch.context.title}"
    (row,) = engine.collect(missing.agg(fn.count("*").alias("n")), name=name)
    return m.Findings(int(row.n), _sample(engine, missing, name) if row.n else ())


def _query(engine: TaskEngine, rows: Mapping[bool, _Rows], wanted: m.SqlQuery) -> m.Findings:
    tables = {"branch": False, "main": True}
    used: dict[str, Any] = {
        name: rows[of_main].frame for name, of_main in tables.items() if f"{{{name}}}" in wanted.sql
    }
    try:
        found = engine.spark.sql(wanted.sql, **used)
    except (AnalysisException, KeyError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f'Spark does not understand the check "{wanted.sql}": {_first_line(error)}',
            hint="the rows are {branch} and {main}; write other braces twice.",
        ) from error
    name = "audit by a query"
    (row,) = engine.collect(found.agg(fn.count("*").alias("n")), name=name)
    return m.Findings(int(row.n), _sample(engine, found, name) if row.n else ())


def _keys_of(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the keys of rows, without those that contain a null."""
    keys = rows.select(*map(named, columns))
    for name in columns:
        keys = keys.where(named(name).isNotNull())
    return keys


def _is_true(condition: m.Condition, rows: DataFrame, fields: Sequence[t.Field]) -> Column:
    """Return a condition's truth as a column that is never null."""
    if isinstance(condition, str):
        found = fn.expr(condition)
        try:
            rows.where(found)
        except AnalysisException as error:
            raise InvalidInputError(
                f'Spark does not understand the condition "{condition}": {_first_line(error)}',
                hint="with a session, conditions of checks are Spark's SQL.",
            ) from error
    else:
        bound = bind(condition, fields)
        reason = cannot_filter(bound)
        if reason is not None:
            raise InvalidInputError(
                f"Spark cannot check {condition}: {reason}", hint="audit on a lake without a session."
            )
        found = filter_column(bound)
    return fn.coalesce(found, fn.lit(False))


def _number_of(wanted: m.Measure, value: Any) -> m.Found:
    match wanted:
        case m.Total():
            return 0 if value is None else int(value) if _is_whole(value) else value
        case m.NewestValue() if isinstance(value, str):
            return int(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1000)
        case m.NewestValue():
            return None if value is None else int(value)
        case m.Offending():
            return m.Findings(int(value))
        case _:
            return int(value)


def _is_whole(value: Any) -> bool:
    """Whether a measure's value is a sum of integers."""
    return not isinstance(value, float) and value.as_tuple().exponent == 0


def _count(found: m.Found) -> int:
    assert isinstance(found, m.Findings)
    return found.count


def _sample(engine: TaskEngine, rows: DataFrame, name: str) -> tuple[Mapping[str, Any], ...]:
    shown = engine.collect(rows.limit(m.SAMPLE_SIZE), name=name)
    return m.sample_rows([row.asDict(recursive=True) for row in shown])


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
