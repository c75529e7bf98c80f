"""Random tables of all types and random filters: whoever asks gets what they get of the rows in memory.

Asked are our own filters, DuckDB, lazy Polars and data sets of pyarrow, each compared with the same library over the rows
themselves, so each by its own rules about null and NaN.
"""

import datetime as dt
import math
import operator
import random
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import anabranch

NAN, UTC = float("nan"), dt.UTC
TENTH = float(np.float32(0.1))
MOMENT = dt.datetime(2026, 1, 1, 12)
EPOCH = dt.datetime(1969, 12, 31, 23, 59, 59)
VALUES: dict[str, list[Any]] = {
    "i": [-3, 0, 1, 2, 2**31 - 1],
    "l": [-(2**63), 2**63 - 1, 0, 5, 2**53 + 1],
    "ti": [-128, 127, 0],
    "si": [-32768, 32767, 0],
    "f": [NAN, -0.0, 0.0, 1.5, TENTH, math.inf, -math.inf],
    "g": [NAN, -0.0, 0.0, 1.5, 0.1, math.inf, -math.inf],
    "s": ["", "a", "A", "ä", "it's", "ab%", "a_b", "\U0001f600", "zz" * 40],
    "c": ["a", "abc"],
    "bin": [b"", b"a", b"\xff\x00", b"ab"],
    "d": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(9999, 12, 31)],
    "t0": [EPOCH, MOMENT],
    "t3": [EPOCH.replace(microsecond=999000), MOMENT, MOMENT.replace(microsecond=1000)],
    "t6": [EPOCH.replace(microsecond=999999), MOMENT, MOMENT.replace(microsecond=1)],
    "z3": [EPOCH.replace(microsecond=999000, tzinfo=UTC), MOMENT.replace(tzinfo=UTC)],
    "z6": [EPOCH.replace(microsecond=999999, tzinfo=UTC), MOMENT.replace(tzinfo=UTC)],
    "n": [Decimal("-1.50"), Decimal("0.00"), Decimal("2.25"), Decimal("99999999.99")],
    "m": [Decimal("1e-18"), Decimal("-12345678901234567890.123456789012345678"), Decimal(1)],
    "b": [True, False],
    "r.x": [NAN, 0.5, math.inf],
    "r.y": [1, 2],
}
COLUMNS = (
    "i INT, l BIGINT, ti TINYINT, si SMALLINT, f FLOAT, g DOUBLE, s STRING, c VARCHAR(10), bin BYTES, d DATE, "
    "t0 TIMESTAMP(0), t3 TIMESTAMP(3), t6 TIMESTAMP(6), z3 TIMESTAMP(3) WITH LOCAL TIME ZONE, "
    "z6 TIMESTAMP(6) WITH LOCAL TIME ZONE, n DECIMAL(10, 2), m DECIMAL(38, 18), b BOOLEAN, r ROW<x DOUBLE, y INT>"
)
OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
LAYOUTS: list[dict[str, Any]] = [
    {},
    *({"partition_by": by} for by in ("d", "s", "i", "t6", "z3", "n", "b", "ti", "f", "m", ["d", "s"], ["b", "l"])),
    *({"options": {"bucket": "3", "bucket-key": key}} for key in ("l", "s", "n", "t6")),
]  # fmt: skip


@dataclass
class Condition:
    """A condition in the words of each."""

    sql: str
    polars: pl.Expr
    ours: Any
    arrow: Any


class World:
    """A table that was written, changed and perhaps compacted, and its rows in memory."""

    def __init__(self, folder, seed):
        self.chance = chance = random.Random(seed)
        layout = LAYOUTS[seed % len(LAYOUTS)]
        table = anabranch.connect(str(folder)).create_table("db.t", COLUMNS, **layout)
        for _ in range(4):
            table.append(self.rows(20))
        if chance.random() < 0.5:
            table.compact(full=True)
        if chance.random() < 0.6:
            table.alter().drop_column("c").apply()
            table.alter().add_column("c", "VARCHAR(10)").widen_column("si", "INT").apply()
            table.append(self.rows(20))
        if chance.random() < 0.5:
            table.create_tag("then")
            table.create_branch("fix", tag="then")
            table.append(self.rows(5))
            table.branch("fix").append(self.rows(5))
            table = chance.choice([table, table.branch("fix"), table.at("then")])
        self.scan, self.table = table.scan(), table
        self.rows_in_memory = self.scan.to_arrow()
        self.frame, self.lazy = pl.DataFrame(self.rows_in_memory), self.scan.to_polars(lazy=True)
        self.dataset, self.dataset_in_memory = self.scan.to_dataset(), ds.dataset(self.rows_in_memory)
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET TimeZone = 'UTC'")
        # A table of Arrow would be filtered by Arrow, for which NaN is no number; one of DuckDB itself is not.
        self.duckdb.from_arrow(self.rows_in_memory).create("whole")
        self.relation = self.scan.to_duckdb(self.duckdb)

    def rows(self, count):
        def value(name):
            return None if self.chance.random() < 0.2 else self.chance.choice(VALUES[name])

        made = []
        for _ in range(count):
            row = {name: value(name) for name in VALUES if "." not in name}
            row["r"] = None if self.chance.random() < 0.2 else {"x": value("r.x"), "y": value("r.y")}
            made.append(row)
        return made

    def condition(self, depth=2):
        chance = self.chance
        if depth and chance.random() < 0.5:
            one, other = self.condition(depth - 1), self.condition(depth - 1)
            if chance.random() < 0.3:
                return Condition(f"(NOT {one.sql})", ~one.polars, ~one.ours, ~one.arrow)
            word, join = chance.choice([("AND", operator.and_), ("OR", operator.or_)])
            joined = (join(getattr(one, who), getattr(other, who)) for who in ("polars", "ours", "arrow"))
            return Condition(f"({one.sql} {word} {other.sql})", *joined)
        name = chance.choice([*VALUES])
        top, *inner = name.split(".")
        theirs, arrow = pl.col(top), ds.field(top, *inner)
        kind, dtype = self.rows_in_memory.schema.field(top).type, self.frame.schema[top]
        for field in inner:
            theirs, kind = theirs.struct.field(field), kind.field(field).type
            dtype = next(f.dtype for f in dtype.fields if f.name == field)
        ours, choice = anabranch.col(top, *inner), chance.random()
        if choice < 0.15:
            return Condition(f"({name} IS NULL)", theirs.is_null(), ours.is_null(), arrow.is_null())
        if choice < 0.3:
            some = chance.sample(VALUES[name], 2)
            return Condition(
                f"({name} IN ({', '.join(_literal(name, value) for value in some)}))",
                theirs.is_in(pl.Series(some, dtype=dtype).implode(), nulls_equal=chance.random() < 0.3),
                ours.is_in(some),
                arrow.isin(pa.array(some, kind)),
            )
        word, value = chance.choice([*OPERATORS]), chance.choice(VALUES[name])
        if word == "<=" and value != value:
            word = "<"  # of `x <= NaN` DuckDB hands on that it is always true, also for null
        compare = OPERATORS[word]
        literal = pl.lit(value, dtype=dtype if chance.random() < 0.6 or name in "nm" else None)
        if chance.random() < 0.2:
            sql = f"({_literal(name, value)} {FLIPPED.get(word, word)} {name})"
            return Condition(
                sql,
                OPERATORS[FLIPPED.get(word, word)](literal, theirs),
                compare(ours, value),
                OPERATORS[FLIPPED.get(word, word)](pc.scalar(pa.scalar(value, kind)), arrow),
            )
        sql = f"({name} {word} {_literal(name, value)})"
        return Condition(
            sql, compare(theirs, literal), compare(ours, value), compare(arrow, pa.scalar(value, kind))
        )


def _literal(name, value):
    match value:
        case bool():
            return str(value).upper()
        case int():
            return f"({value})"
        case float():
            return f"CAST('{value}' AS {'FLOAT' if name == 'f' else 'DOUBLE'})"
        case Decimal():
            return f"CAST('{value}' AS DECIMAL({'10, 2' if name == 'n' else '38, 18'}))"
        case dt.datetime():
            return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value.isoformat()}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case _:
            return "'" + value.replace("'", "''") + "'"


def bag(rows):
    """Rows of anything, in an order of their own."""
    return sorted(repr(tuple(row.values())) for row in pa.table(rows).to_pylist())


@pytest.fixture
def world(tmp_path, request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield World(tmp_path, request.param)


def seeds(short, long):
    return [
        *(pytest.param(seed, id=str(seed)) for seed in range(short)),
        *(pytest.param(seed, id=str(seed), marks=pytest.mark.long) for seed in range(short, long)),
    ]


@pytest.mark.parametrize("world", seeds(1, 120), indirect=True)
def test_whoever_asks_gets_the_same_rows(world):
    for _ in range(15):
        asked = world.condition()
        expected = bag(world.duckdb.sql(f"SELECT * FROM whole WHERE {asked.sql}").to_arrow_table())
        ours = world.table.scan(asked.ours)
        assert bag(ours) == expected, asked.sql
        assert ours.count() == len(expected), asked.sql
        assert bag(world.relation.filter(asked.sql).to_arrow_table()) == expected, asked.sql
        polars = bag(world.frame.filter(asked.polars))
        assert bag(world.lazy.filter(asked.polars).collect()) == polars, asked.sql
        streamed = world.lazy.filter(asked.polars).collect(engine="streaming")
        assert bag(streamed) == polars, asked.sql
        arrow = bag(world.dataset_in_memory.to_table(filter=asked.arrow))
        assert bag(world.dataset.to_table(filter=asked.arrow)) == arrow, asked.sql


@pytest.mark.long
@pytest.mark.parametrize("world", seeds(1, 60), indirect=True)
def test_first_last_and_some_columns_of_filtered_rows(world):
    chance, names = world.chance, world.rows_in_memory.schema.names
    for _ in range(12):
        asked, most, begin = world.condition(), chance.randint(0, 10), chance.randint(0, 90)
        columns = chance.sample(names, chance.randint(1, 5))
        whole = bag(world.duckdb.sql(f"SELECT * FROM whole WHERE {asked.sql}").to_arrow_table())
        limited = bag(world.table.scan(asked.ours, limit=most))
        assert len(limited) == min(most, len(whole)), asked.sql
        assert {*limited} <= {*whole}, asked.sql
        some = world.table.scan(asked.ours, columns=columns)
        assert bag(some) == bag(world.table.scan(asked.ours).to_arrow().select(columns)), asked.sql
        first = world.scan.first(most)
        world.duckdb.from_arrow(first.to_arrow()).create("first")
        expected = bag(world.duckdb.sql(f"SELECT * FROM first WHERE {asked.sql}").to_arrow_table())
        assert bag(first.to_duckdb(world.duckdb).filter(asked.sql).to_arrow_table()) == expected, asked.sql
        world.duckdb.execute("DROP TABLE first")
        for form in before_and_after(asked.polars, most, begin, columns):
            found = repr(form(world.lazy).collect().to_dicts())
            assert found == repr(form(world.frame.lazy()).collect().to_dicts()), asked.sql
        # Rows that are left over come in the order of their files, which others may have stood before.
        polars = world.frame.filter(asked.polars)
        for found in (world.lazy.filter(asked.polars).head(most), world.lazy.filter(asked.polars).tail(most)):
            assert found.collect().height == min(most, polars.height), asked.sql
            assert {*bag(found.collect())} <= {*bag(polars)}, asked.sql


def before_and_after(condition, most, begin, columns):
    """Queries whose result depends on which rows are first, numbered or filtered first."""
    return (
        lambda frame: frame.head(most).filter(condition),
        lambda frame: frame.slice(begin, most).filter(condition),
        lambda frame: frame.slice(-most - 1, most).filter(condition),
        lambda frame: frame.tail(most).filter(condition).select(columns),
        lambda frame: frame.with_row_index().filter(condition).select("index", *columns),
    )


@pytest.mark.parametrize("world", seeds(1, 30), indirect=True)
def test_aggregates_are_those_of_the_rows(world):
    for name in world.rows_in_memory.schema.names:
        if name == "r":
            continue
        smallest, largest, distinct = world.duckdb.sql(
            f"SELECT min({name}), max({name}), count(DISTINCT {name}) FROM whole"
        ).to_arrow_table()
        assert repr(world.scan.min(name)) in _zeros(smallest[0].as_py()), name
        assert repr(world.scan.max(name)) in _zeros(largest[0].as_py()), name
        counted = world.scan.count_by(name)
        assert sum(counted["count"].to_pylist()) == world.rows_in_memory.num_rows, name
        has_null = world.rows_in_memory[name].null_count > 0
        assert counted.num_rows == distinct[0].as_py() + has_null, name


def _zeros(value):
    return {repr(value)} if value != 0 or not isinstance(value, float) else {"0.0", "-0.0"}
