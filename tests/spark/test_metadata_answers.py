"""Aggregates of Spark's queries that metadata answers: the same as those of the rows, and no file is opened."""

import datetime as dt
import decimal
import math
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.lineage.model import LINEAGE_PROPERTY, LineageEntry
from anabranch.spark.native import scan_builder
from anabranch.spark.native.compiled import NotCompiledError
from tests.support.lengths import first_short

pytestmark = [pytest.mark.spark, pytest.mark.versions]
COLUMNS = "id BIGINT, p INT, q STRING, d DATE, m DECIMAL(20, 3), t TIMESTAMP(3), c TIME(3), b BOOLEAN, f DOUBLE, s STRING, r ROW<x INT>"
QUERIES = [
    "SELECT count(*) FROM {t}",
    "SELECT count(*) + 1 AS n FROM {t} HAVING count(*) > 0",
    "SELECT min(id), max(id), count(id), count(1) FROM {t}",
    "SELECT max(d), min(m), max(m), min(t), max(b), min(c), count(f), count(s) FROM {t}",
    "SELECT p, count(*) n FROM {t} GROUP BY p ORDER BY p",
    "SELECT q, p, max(id), count(m) FROM {t} GROUP BY q, p ORDER BY 1, 2",
    "SELECT max(p), min(q), max(q) FROM {t}",
    "SELECT count(*), max(id) FROM {t} WHERE p = 1",
    "SELECT q, count(*) FROM {t} WHERE p IS NULL OR NOT (p IN (1, 7)) GROUP BY q ORDER BY q",
    "SELECT count(*) FROM {t} WHERE q = '' AND p < 1",
    "SELECT count(*) FROM {t} WHERE p <=> NULL",
    "SELECT count(*) FROM {t} WHERE p = 17",
]
OTHERS = [
    "SELECT count(*) FROM {t} WHERE id > 3",
    "SELECT count(*) FROM {t} WHERE p = 1 AND id > 3",
    "SELECT count(*) FROM {t} WHERE p + 1 = 1",
    "SELECT count(*) FROM {t} WHERE upper(q) = 'X'",
    "SELECT min(f) FROM {t}",
    "SELECT max(s) FROM {t}",
    "SELECT count(DISTINCT id) FROM {t}",
    "SELECT s, count(*) FROM {t} GROUP BY s ORDER BY s",
    "SELECT max(r.x), sum(id) FROM {t}",
    "SELECT max(id + 1) FROM {t}",
    "SELECT count(NULL) FROM {t}",
]


@pytest.fixture
def named(spark, lake, warehouse):
    """A table of the catalog ``answers``, with rows."""
    import anabranch.spark

    anabranch.spark.attach(spark, warehouse, catalog="answers")
    table = lake.create_table("db.t", COLUMNS, partition_by=["p", "q"])
    schema = table.scan().to_arrow().schema
    for first in (0, 10):
        rows = [
            {
                "id": None if i % 7 == 6 else i * 3, "p": None if i % 5 == 4 else i % 2, "q": ["x", "", None][i % 3],
                "d": dt.date(2020, 1, 1) + dt.timedelta(i), "m": decimal.Decimal(i) / 8, "b": i % 3 == 0,
                "t": dt.datetime(2020, 1, 1, 0, 0, i, 123000), "c": dt.time(1, 2, i), "f": i / 3, "s": f"text {i}",
                "r": {"x": i},
            }
            for i in range(first, first + 10)
        ]  # fmt: skip
        table.append(pa.Table.from_pylist(rows, schema=schema))
    return "answers.db.t"


def remove_files(warehouse):
    removed = [path.unlink() for path in Path(warehouse).rglob("*.parquet")]
    assert removed


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_answers_are_those_of_the_rows_and_no_file_is_opened(spark, named, warehouse, monkeypatch):
    asked = [text.format(t=named) for text in QUERIES]
    with monkeypatch.context() as patched:
        patched.setattr(scan_builder.Aggregates, "of", lambda *_: None)
        frames = [spark.sql(text) for text in asked]
        expected = [frame.collect() for frame in frames]
        assert not any("answered" in plan_of(frame) for frame in frames)
    remove_files(warehouse)
    for text, rows in zip(asked, expected, strict=True):
        frame = spark.sql(text)
        assert "answered from metadata" in plan_of(frame), text
        assert frame.collect() == rows, text
    read = spark.read.format("anabranch").option("warehouse", warehouse).load("db.t")
    assert read.count() == 20


@pytest.mark.parametrize("text", first_short(OTHERS, 2))
def test_other_queries_read(spark, named, text):
    frame = spark.sql(text.format(t=named))
    assert "answered" not in plan_of(frame)
    assert frame.collect()


@pytest.mark.parametrize("computed", first_short(["count(NULL)", "max(id) FILTER (WHERE false)", "7"]))
def test_aggregates_of_no_column_are_one_row_and_not_none(spark, named, computed):
    expected = {"count(NULL)": [(0,)], "7": [(7,)]}.get(computed, [(None,)])
    for text in (f"FROM {named} HAVING true", f"FROM {named} WHERE p = 1 HAVING true"):
        assert spark.sql(f"SELECT {computed} {text}").collect() == expected
        both = spark.sql(f"SELECT {computed} {text} UNION ALL SELECT {computed} {text}")
        assert both.collect() == expected * 2


@pytest.mark.long
def test_partitions_of_numbers_with_points_are_those_of_the_rows(spark, named, lake):
    table = lake.create_table("db.f", "i INT, p DOUBLE, n TIMESTAMP(9)", partition_by=["p", "n"])
    moments = [pa.scalar(value, pa.timestamp("ns")) for value in (1_500, 1_900, -1)]
    values = pa.array([0.0, -0.0, float("nan"), float("inf")] * 3)
    rows = pa.table({"i": [*range(12)], "p": values, "n": [m for m in moments for _ in range(4)]})
    table.append(rows.cast(table.scan().to_arrow().schema))
    found = spark.sql("SELECT max(p), count(p), count(*) FROM answers.db.f").collect()[0]
    assert math.isnan(found[0])
    assert tuple(found[1:]) == (12, 12)
    groups = spark.sql("SELECT p, count(*) n FROM answers.db.f GROUP BY p").collect()
    assert sorted((str(row.p), row.n) for row in groups) == [("0.0", 6), ("inf", 3), ("nan", 3)]
    groups = spark.sql(
        "SELECT CAST(n AS STRING) n, c FROM (SELECT n, count(*) c FROM answers.db.f GROUP BY n)"
    )
    of_rows = spark.sql("SELECT CAST(n AS STRING) n, count(i + 1) c FROM answers.db.f GROUP BY n")
    assert sorted(groups.collect()) == sorted(of_rows.collect())
    assert len(of_rows.collect()) == 2


def test_a_table_without_rows_has_no_extremes_and_no_groups(spark, named, lake):
    lake.create_table("db.none", COLUMNS, partition_by=["p"])
    assert spark.sql("SELECT count(*), max(id) FROM answers.db.none").collect() == [(0, None)]
    assert spark.sql("SELECT p, count(*) FROM answers.db.none GROUP BY p").collect() == []


def test_moments_and_branches_have_answers_of_their_own(spark, named, lake):
    table = lake.table("db.t")
    table.create_tag("good", snapshot=1)
    table.create_branch("fix", "good")
    for name in (f"{named} VERSION AS OF 'good'", f"{named} VERSION AS OF 1", "answers.db.`t$branch_fix`"):
        assert spark.sql(f"SELECT count(*), max(p) FROM {name}").collect() == [(10, 1)]


def test_lineage_of_an_answer_names_the_table(spark, named, lake):
    out = lake.create_table("db.out", "n BIGINT")
    spark.sql(f"INSERT INTO answers.db.out SELECT count(*) FROM {named}")
    entry = LineageEntry.from_json(out.snapshot.properties[LINEAGE_PROPERTY], where="snapshot")
    assert [(read.name, read.end.snapshot) for read in entry.inputs] == [("db.t", 2)]
    assert entry.problems == ()
    assert out.scan().to_arrow()["n"].to_pylist() == [20]


@pytest.mark.long
def test_answers_are_parts_of_larger_queries(spark, named):
    text = f"""
        SELECT a.p, a.n, b.n FROM (SELECT p, count(*) n FROM {named} GROUP BY p) a
        JOIN (SELECT p, count(*) n FROM {named} WHERE id > 0 GROUP BY p) b ON a.p = b.p
        WHERE a.n < (SELECT count(*) FROM {named}) ORDER BY 1"""
    assert spark.sql(text).collect() == [(0, 8, 6), (1, 8, 7)]


@pytest.mark.long
def test_filters_of_partitions_are_not_evaluated_on_rows(spark, named):
    text = f"""
        SELECT * FROM (SELECT s, sum(id) n FROM {named} WHERE p = 0 GROUP BY s)
        UNION ALL SELECT s, sum(id) FROM {named} WHERE p = 1 GROUP BY s"""
    frame = spark.sql(text)
    assert "Filter (" not in plan_of(frame)
    both = {row.s: row.n for row in frame.collect()}
    assert both == {f"text {i}": None if i % 7 == 6 else i * 3 for i in range(20) if i % 5 != 4}
    asked = spark.table(named).where("p = 1 AND id > 12")
    assert sorted(row.id for row in asked.collect()) == [15, 21, 33, 45, 51]
    twice = (
        spark.table(named).where("p = 0").join(spark.table(named).where("p = 1"), "b").groupBy("b").count()
    )
    assert {row.b: row["count"] for row in twice.collect()} == {True: 4 * 2, False: 4 * 6}


def test_where_the_class_is_not_there_rows_are_read(spark, named, monkeypatch):
    def refused(*_):
        raise NotCompiledError("a test wants it")

    monkeypatch.setattr(scan_builder, "compiled_object", refused)
    frame = spark.sql(f"SELECT count(*) FROM {named}")
    assert "answered" not in plan_of(frame)
    assert frame.collect() == [(20,)]
