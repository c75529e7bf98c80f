"""Random conditions over an evolved table in Spark's SQL give the rows that DuckDB and our own filters give."""

import random

import duckdb
import pyarrow as pa
import pytest

import anabranch
from tests.frames import test_differential as ours
from tests.frames.differential import VALUES, random_condition
from tests.support.lengths import first_short

pytestmark = pytest.mark.spark

table = ours.table


@pytest.mark.parametrize(
    ("view", "name"),
    first_short(
        [
            (lambda table: table, "db.t"),
            (lambda table: table.branch("fix"), "db.`t$branch_fix`"),
            (lambda table: table.at("then"), "db.t VERSION AS OF 'then'"),
        ]
    ),
    ids=["main", "branch", "moment"],
)
def test_the_same_rows_in_spark(table, view, name, spark):
    warehouse = table.context.storage.url.removesuffix("/db.db/t")
    lake = anabranch.connect(warehouse, spark=spark.newSession())
    chance = random.Random(13)
    in_memory = view(table).scan().to_arrow()
    names = [column for column in VALUES if column in in_memory.schema.names]
    connection = duckdb.connect()
    connection.from_arrow(in_memory).create("whole")
    conditions = []
    while len(conditions) < 10:
        condition = random_condition(chance)
        if {column for column in VALUES if f"({column} " in condition[0]} <= {*names}:
            conditions.append(condition)
    # One statement for all of them: each has its number beside its rows.
    columns = ", ".join(names)
    asked = " UNION ALL ".join(
        f"SELECT {number} AS number, {columns} FROM {name} WHERE {_spelled(text)}"
        for number, (text, _, _) in enumerate(conditions)
    )
    found = [tuple(row) for row in lake.sql(asked).collect()]
    for number, (text, _, predicate) in enumerate(conditions):
        rows = connection.sql(f"SELECT {columns} FROM whole WHERE {text}").to_arrow_table()
        expected = _sorted(tuple(row.values()) for row in rows.to_pylist())
        assert _sorted(row[1:] for row in found if row[0] == number) == expected, text
        own = pa.table(view(table).scan(predicate, columns=names)).to_pylist()
        assert _sorted(tuple(row.values()) for row in own) == expected, text


def _spelled(text):
    """A condition of DuckDB's as Spark spells it: times without a zone, no escapes in texts."""
    return text.replace("TIMESTAMP '", "TIMESTAMP_NTZ '").replace("'it''s'", '"it\'s"')


def _sorted(rows):
    return sorted(map(repr, rows))
