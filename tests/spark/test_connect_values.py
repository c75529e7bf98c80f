"""Values in plans of Spark Connect, as its client makes them: those of the program's text, and those that it has computed."""

import importlib.util

import pytest

if importlib.util.find_spec("grpc") is None:
    pytest.skip("Spark Connect is not installed", allow_module_level=True)

from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.functions import builtin as F
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.types import BooleanType

from anabranch.spark.lineage.connect_lineage import holds_values

COLLECTED = [48_611 + 9, 48_611 + 13]
"""Numbers that stand in no text of the program."""


class Client:
    """What making a plan asks of a client."""

    def __getattr__(self, name):
        return lambda *_, **__: None


def rows():
    return plans.DataSource(format="anabranch", schema=None, options={}, paths=["db.a"])


def where(condition):
    return plans.Filter(rows(), condition)


def function(code):
    return where(UserDefinedFunction(code, BooleanType())(F.col("id")))


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
