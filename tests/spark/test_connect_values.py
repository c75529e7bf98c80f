"""Values in plans of Spark Connect, as its client makes them: those of the program's text, and those that it has computed."""

import importlib.util
from datetime import UTC, date, datetime, time, timedelta

import pytest

if importlib.util.find_spec("grpc") is None:
    pytest.skip("Spark Connect is not installed", allow_module_level=True)

from pyspark.sql import types
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.functions import builtin as F
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.connect.udtf import UserDefinedTableFunction  # after the functions, which import it
from pyspark.sql.types import BooleanType

from anabranch.spark.lineage.connect_lineage import holds_values

COLLECTED = [48_611 + 9, 48_611 + 13]
"""Numbers that stand in no text of the program."""


WITH_TIMES = pytest.mark.skipif(
    not hasattr(types, "TimeType"), reason="this Spark has no type for times of the day"
)


class Client:
    """What making a plan asks of a client."""

    def __getattr__(self, name):
        return lambda *_, **__: None


def rows():
    return plans.DataSource(format="anabranch", schema=None, options={}, paths=["db.a"])


def read(format="anabranch", **options):
    given = {key.replace("_", "."): str(value) for key, value in options.items()}
    return plans.DataSource(format=format, schema=None, options=given, paths=["db.a"])


def table_function(handler):
    made = UserDefinedTableFunction(handler, "id BIGINT")
    return made._build_common_inline_user_defined_table_function()


def where(condition):
    return plans.Filter(rows(), condition)


def function(code):
    return where(UserDefinedFunction(code, BooleanType())(F.col("id")))


class Ids:
    """A table function that carries along what was collected."""

    def eval(self):
        for number in COLLECTED:
            yield (number,)


class Plain:
    def eval(self):
        yield (3,)


@pytest.mark.parametrize(
    "plan",
    [
        lambda: where(F.col("id").isin(COLLECTED)),
        lambda: where(F.col("id") > COLLECTED[0]),
        lambda: where(F.col("v") == F.lit(f"x{COLLECTED[0]}")),
        lambda: where(F.expr(f"id > {COLLECTED[0]}")),
        lambda: where(F.col("v") == F.array(F.lit("v"), F.lit(COLLECTED[0]))[0]),
        lambda: where(F.col("id") == F.lit(-COLLECTED[0])),
        lambda: where(F.col("price") > F.lit(COLLECTED[0] / 7)),
        lambda: plans.Limit(rows(), COLLECTED[0]),
        lambda: plans.Offset(rows(), COLLECTED[0]),
        lambda: plans.SQL(f"SELECT * FROM a WHERE id IN ({COLLECTED[0]}, 2)", None, None, None),
        lambda: plans.SQL(f"SELECT * FROM a WHERE v = 'of {COLLECTED[0]}'", None, None, None),
        lambda: plans.SQL("SELECT * FROM a WHERE id < :most", None, {"most": F.lit(COLLECTED[0])}, None),
        lambda: function(lambda number: number in COLLECTED),
        lambda: function(lambda number, most=COLLECTED[0]: number < most),
        lambda: table_function(Ids),
        lambda: plans.Range(0, COLLECTED[0], 1),
        lambda: plans.Range(COLLECTED[0], 99_999, 1),
        lambda: read(scan_filter=f"id = {COLLECTED[0]}"),
        lambda: read("jdbc", query=f"SELECT * FROM a WHERE id = {COLLECTED[0]}", url="jdbc:x"),
        lambda: read("mine", ids=COLLECTED),
        lambda: plans.DataSource(format="jdbc", schema=None, options={}, paths=None, predicates=[f"id = {COLLECTED[0]}"]),
        lambda: where(F.col("day") == date(2024, 1, COLLECTED[0] % 28 + 1)),
        lambda: where(F.col("at") > datetime(2024, 1, 1, 12, 30, 0, COLLECTED[0])),
        lambda: where(F.col("span") > timedelta(days=COLLECTED[0])),
    ],
)  # fmt: skip
def test_what_was_computed_is_found(plan):
    assert holds_values(plan().plan(Client()), None)


@pytest.mark.parametrize(
    "plan",
    [
        rows,
        lambda: where(F.col("id").isin([5, 48])),
        lambda: where((F.col("id") > -17) & (F.col("ok") == F.lit(True)) & F.col("v").isNull()),
        lambda: where(F.col("v") == "a text"),
        lambda: where(F.expr("id > 20 AND v LIKE 'x%'")),
        lambda: plans.Limit(rows(), 31),
        lambda: plans.SQL("SELECT * FROM a WHERE id IN (77, 78) AND v = 'of them'", None, None, None),
        lambda: function(lambda number: number > 3),
        lambda: table_function(Plain),
        lambda: plans.Range(0, 12, 1),
        lambda: plans.Range(-5, 12, 3),
        lambda: read(scan_filter="id > 20 AND v LIKE 'x%'", scan_version=COLLECTED[0]),
        lambda: read("csv", header=True, sep=";", maxColumns=77),
        lambda: read("jdbc", query="SELECT * FROM a", url=f"jdbc:postgresql://host:{COLLECTED[0]}/db"),
        lambda: read("kafka", subscribe="clicks", kafka_bootstrap_servers=f"host:{COLLECTED[0]}"),
        lambda: where(F.col("day") == date(2024, 2, 29)),
        lambda: where(F.col("day") == date.fromisoformat("2024-02-27")),
        lambda: where(F.col("at") > datetime(2024, 2, 29, 12, 30, microsecond=5)),
        lambda: where(F.col("at") > datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        lambda: where(F.col("at") > datetime.fromisoformat("2024-02-29T12:31")),
        lambda: where(F.col("span") > timedelta(days=7, hours=-2)),
        pytest.param(lambda: where(F.col("hour") > time(12, 31)), marks=WITH_TIMES),
    ],
)
def test_what_stands_in_the_text_is_none(plan):
    assert not holds_values(plan().plan(Client()), None)


def test_of_a_statement_that_was_rewritten_its_own_text_counts():
    plan = plans.SQL(f"SELECT * FROM view_{COLLECTED[0]} WHERE id > {COLLECTED[0]}", None, None, None)
    assert not holds_values(plan.plan(Client()), "SELECT * FROM db.a WHERE id > 77")
    assert holds_values(plan.plan(Client()), f"SELECT * FROM db.a WHERE id > {COLLECTED[0]}")


def test_what_cannot_be_looked_at_counts_as_computed():
    assert holds_values(object(), None)
