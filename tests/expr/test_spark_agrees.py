"""Spark, given the SQL text of a predicate, decides every row as the embedded engine does."""

from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.expr import bind, filter_mask
from anabranch.expr.nodes import Column, Comparison, Not
from anabranch.expr.values import Timestamp
from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.support.lengths import first_short

from .model import CASES, INT_FIELDS, SCHEMA, every_row, every_test, table_of

pytestmark = pytest.mark.spark

# Spark has no nanoseconds, no CHAR or TIME that comes from Arrow, and compares BIGINT with DOUBLE, and DECIMAL of more
# than 15 digits with DOUBLE, after rounding the column.
COLUMNS = [name for name in CASES if name not in {"ts9", "char", "time"}]
ROUNDED = {"big", "wide"}


@pytest.fixture(scope="module")
def session(spark):  # noqa: F811 - a fixture
    """A session in UTC in which backslashes in texts mean themselves, as they do here."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    # Hundreds of small expressions: compiling each takes longer than evaluating it.
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return own


def known_to_spark(name, value):
    if isinstance(value, Timestamp):
        return value.nanos % 1000 == 0
    if isinstance(value, float):
        return name not in ROUNDED
    if isinstance(value, str):
        # Spark casts texts to the column's type, and refuses 4.5 for an integer or drops digits.
        return value not in {"4.5", "1969-12-31 23:59:59.999999999"}
    if name in INT_FIELDS and isinstance(value, int):
        # Of numbers beyond BIGINT Spark says TRUE even next to null.
        return -(2**63) <= value < 2**63
    if name == "wide":
        # Spark drops digits where two decimals need more than 38 together.
        return value not in {10**28, -(10**28), Decimal("0.00000000001")}
    return not isinstance(value, int) or abs(value) < 10**38


@pytest.mark.parametrize("step", first_short([4, 1]), ids=["every fourth", "every"])
def test_spark_decides_as_we_do(session, step):
    data = every_row()
    table = table_of(data)
    unknown_to_spark = [f.name for f in SCHEMA if f.name not in COLUMNS]
    micros = pa.schema([
        pa.field(f.name, pa.timestamp("us", f.type.tz)) if pa.types.is_timestamp(f.type) else f
        for f in table.drop_columns(unknown_to_spark).schema
    ])  # fmt: skip
    frame = session.createDataFrame(table.drop_columns(unknown_to_spark).cast(micros)).coalesce(1).cache()

    different = []
    predicates = list(every_test(COLUMNS, known_to_spark))[::step]
    for chunk in (predicates[i : i + 150] for i in range(0, len(predicates), 150)):
        found = frame.selectExpr(*(f"({p}) AS p{i}" for i, p in enumerate(chunk))).toArrow()
        for i, predicate in enumerate(chunk):
            spark_keeps = [kept is True for kept in found[f"p{i}"].to_pylist()]
            we_keep = filter_mask(bind(predicate, SCHEMA), table).to_pylist()
            if spark_keeps != we_keep:
                names = {c.path[0] for c in columns_in(predicate)}
                rows = [
                    {n: data[r][n] for n in names} for r in range(len(data)) if spark_keeps[r] != we_keep[r]
                ]
                different.append(
                    f"{predicate}: we keep {sum(we_keep)}, Spark {sum(spark_keeps)}, they differ at {rows}"
                )
    assert not different, "\n".join(different)


def columns_in(predicate):
    match predicate:
        case Not(child=child):
            return columns_in(child)
        case Comparison(left=left, right=Column() as right):
            return left, right
        case Comparison(left=left):
            return (left,)
        case other:
            return (other.column,)
