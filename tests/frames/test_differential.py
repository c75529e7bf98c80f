"""Random filters over an evolved table: our own, DuckDB's and Polars' give what they give over the rows in memory."""

import random

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import anabranch
from tests.frames.differential import VALUES, random_condition
from tests.support.lengths import first_short


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


def _rows(found):
    return sorted(map(repr, (tuple(row.values()) for row in pa.table(found).to_pylist())))


@pytest.mark.parametrize(
    "view",
    first_short([lambda table: table, lambda table: table.branch("fix"), lambda table: table.at("then")]),
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
