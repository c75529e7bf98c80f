"""Translation of our filter of a scan into a Spark column that keeps the same rows as the embedded engine.

The other direction, a WHERE of Spark that is pushed into our scan, is `scan_builder` with `expressions`.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql import types as st

from anabranch.expr import bound as b
from anabranch.expr.like import join_pattern
from anabranch.expr.nodes import Operator
from anabranch.expr.values import Timestamp, sql_text
from anabranch.format.types.data_types import LocalZonedTimestampType, TimestampType
from anabranch.spark.types.columns import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column


def cannot_filter(predicate: b.BoundPredicate) -> str | None:
    """Return why Spark would evaluate a predicate differently than we do; None if it does not."""
    for test in b.tests(predicate):
        if isinstance(test, b.NullTest):
            continue
        if isinstance(test, b.Computed):
            return f"the filter computes {test}, which Spark may compute otherwise"
        for column in b.columns_of(test):
            if isinstance(column.type, TimestampType | LocalZonedTimestampType) and column.type.precision > 6:
                return f"the filter asks for {column}, of which Spark has not all digits"
        if isinstance(test, b.CompareColumns) and _domain(test.domain) is None:
            return f"the filter compares {test.left} with {test.right} as {test.domain}, which Spark does not have"
    return None


def filter_column(predicate: b.BoundPredicate) -> Column:
    """Return a column that is TRUE where the predicate is, for predicates that `cannot_filter` accepts."""
    match predicate:
        case b.BoundConstant(value=value):
            return fn.lit(value)
        case b.AllOf(children=children):
            return reduce(and_, map(filter_column, children))
        case b.AnyOf(children=children):
            return reduce(or_, map(filter_column, children))
        case b.CompareColumns(left=left, op=op, right=right, domain=domain):
            wanted = _domain(domain)
            assert wanted is not None, predicate
            return _compared(column(left).cast(wanted), op, column(right).cast(wanted))
        case b.Compare(column=of, op=op, value=value):
            return _compared(column(of), op, _literal(of, value))
        case b.OneOf(column=of, values=values, negated=negated):
            found = column(of).isin([_literal(of, value) for value in values])
            return ~found if negated else found
        case b.NullTest(column=of, negated=negated):
            return column(of).isNotNull() if negated else column(of).isNull()
        case b.NaNTest(column=of, negated=negated):
            is_nan = fn.isnan(column(of))
            return column(of).isNotNull() & ~is_nan if negated else is_nan
        case b.PrefixTest(column=of, prefix=prefix, negated=negated):
            starts = column(of).startswith(prefix)
            return ~starts if negated else starts
        case b.LikeTest(column=of, pattern=pattern, negated=negated):
            like = column(of).like(join_pattern(pattern))
            return ~like if negated else like
    raise AssertionError(predicate)


def column(bound: b.BoundColumn) -> Column:
    """Return the column, or the nested field."""
    root, *path = bound.path
    found = named(root.name)
    for field in path:
        found = found.getField(field.name)
    return found


def named(name: str) -> Column:
    """Return the top-level column of exactly that name, whatever characters it has."""
    return fn.col("`" + name.replace("`", "``") + "`")


def _compared(left: Column, op: Operator, right: Column) -> Column:
    match op:
        case Operator.EQ:
            return left == right
        case Operator.NE:
            return left != right
        case Operator.LT:
            return left < right
        case Operator.LE:
            return left <= right
        case Operator.GT:
            return left > right
        case Operator.GE:
            return left >= right
        case Operator.SAME:
            return left.eqNullSafe(right)


def _literal(of: b.BoundColumn, value: b.Physical) -> Column:
    literal = b.as_literal_value(value, of.type)
    if isinstance(literal, Timestamp):
        return fn.expr(sql_text(literal))  # the API would read a clock in the zone of the session
    if isinstance(spark_type(of.type), st.IntegerType):
        return fn.lit(value)  # times of day are numbers
    return fn.lit(literal).cast(spark_type(of.type)) if not of.is_floating else fn.lit(literal)


def _domain(domain: pa.DataType) -> st.DataType | None:
    """Return the Spark type of compared values; None if Spark has none that keeps them."""
    kinds = pa.types
    if kinds.is_decimal128(domain):
        return st.DecimalType(domain.precision, domain.scale)
    if kinds.is_timestamp(domain):
        if domain.unit == "ns":
            return None
        return st.TimestampNTZType() if domain.tz is None else st.TimestampType()
    found = _DOMAINS.get(domain)
    return None if found is None else found()


_DOMAINS: dict[pa.DataType, type[st.DataType]] = {
    pa.bool_(): st.BooleanType,
    pa.int8(): st.ByteType,
    pa.int16(): st.ShortType,
    pa.int32(): st.IntegerType,
    pa.int64(): st.LongType,
    pa.float32(): st.FloatType,
    pa.float64(): st.DoubleType,
    pa.string(): st.StringType,
    pa.binary(): st.BinaryType,
    pa.date32(): st.DateType,
    pa.time32("ms"): st.IntegerType,
}
