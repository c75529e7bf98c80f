"""Random histories of columns, and random conditions: Spark's own reader gives what the embedded engine gives."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from anabranch.format.types.data_types import VarCharType
from anabranch.spark.native.frame import native_frame
from tests.kernel.evolution_model import COLUMNS, _inside, _leaves, _read
from tests.spark.native_cases import LocalModel, check, v2_frame

pytestmark = [pytest.mark.spark, pytest.mark.versions]

COMPARED = ["{n} = {v}", "{n} <> {v}", "{n} < {v}", "{n} <= {v}", "{n} > {v}", "{n} >= {v}", "{v} < {n}",
            "{n} <=> {v}", "{n} IN ({v}, {w})", "{n} IN ({v}, NULL)", "{n} NOT IN ({v}, {w})",
            "{n} BETWEEN {v} AND {w}", "{n} IS NULL", "{n} IS NOT NULL", "{n} <=> NULL"]  # fmt: skip
OF_TEXTS = ["{n} LIKE 'a%'", "{n} LIKE '%b'", "startswith({n}, {v})", "length({n}) = 1", "{n} || 'x' > {v}"]


@pytest.fixture(scope="module")
def interpreting(spark):
    """A session that makes no classes for a query: most of the time that small queries take."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


def literal(value):
    match value:
        case str():
            return f"'{value}'"
        case Decimal():
            return f"{value}BD"
        case _:
            return repr(value)


class Conditions:
    """Conditions on the columns that a table has now, about values that its rows have or had."""

    def __init__(self, model, schema):
        self.pick = model.random
        self.paths = [*_leaves((), schema.row_type)]
        self.types = {path: _type_at(schema.row_type, path) for path in self.paths}
        held = [_read(row, schema.row_type) for row in model.rows]
        self.values = {
            path: [v for v in (_inside(row, path) for row in held) if v is not None] for path in self.paths
        }

    def any(self, depth=2):
        form = self.pick.choice(["{}", "{}", "{} AND {}", "{} OR {}", "NOT ({})"])
        if depth == 0 or form == "{}":
            return self.one()
        return form.format(*(f"({self.any(depth - 1)})" for _ in range(form.count("{}"))))

    def one(self):
        path = self.pick.choice(self.paths)
        name = ".".join(f"`{part}`" for part in path)
        values = self.values[path]
        if not values:
            return f"{name} IS {self.pick.choice(['', 'NOT '])}NULL"
        forms = COMPARED + (OF_TEXTS if isinstance(self.types[path], VarCharType) else [])
        v, w = (literal(self.pick.choice(values)) for _ in range(2))
        return self.pick.choice(forms).format(n=name, v=v, w=w)


def _type_at(data_type, path):
    for name in path:
        data_type = next(f.type for f in data_type.fields if f.name == name)
    return data_type


def hunt(spark, seed, folder, count):
    """A random history of a table, read natively and by the embedded engine with random conditions."""
    model = LocalModel(seed, folder, COLUMNS)
    steps = [model.alter, model.write, model.open_writer, model.more_buckets, model.compact]
    for _ in range(model.random.randint(5, 12)):
        model.random.choices(steps, [4, 6, 1, 0.3, 0.3])[0]()
    scan = model.table.scan()
    conditions = Conditions(model, scan.schema)
    asked = ["true", *(conditions.any() for _ in range(count - 1))]
    frame, few = native_frame(spark, scan), count // 5
    check(spark, frame, scan, asked[:few])
    names = [f"`{name}`" for name in model.random.sample(frame.columns, min(3, len(frame.columns)))]
    check(spark, frame, scan, asked[few:-few], names)
    check(spark, v2_frame(spark, scan), scan, asked[-few:], names)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_two_hundred_cases(interpreting, tmp_path, seed):
    hunt(interpreting, seed, tmp_path, 40)


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 1500, 10))
def test_fifty_thousand_cases(spark, interpreting, tmp_path, start):
    with ThreadPoolExecutor(2) as threads:
        sessions = [spark if seed % 8 == 0 else interpreting for seed in range(start, start + 10)]
        for done in [threads.submit(hunt, sessions[n], start + n, tmp_path, 100) for n in range(10)]:
            done.result()
