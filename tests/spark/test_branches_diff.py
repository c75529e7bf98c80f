"""Rows that differ as a DataFrame, and audits by Spark: the same answers as without it."""

import datetime as dt
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.errors import InvalidInputError
from anabranch.table import Table

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, dt STRING, v DOUBLE, price DECIMAL(10, 2), ts TIMESTAMP(3), day DATE"


def rows(ids, day="a", **others):
    made = {
        "id": pa.array(ids, pa.int64()),
        "dt": [day] * len(ids),
        "v": [float("nan") if i == 7 else None if i == 5 else float(i) for i in ids],
        "price": pa.array([100 + i for i in ids], pa.decimal128(10, 2)),
        "ts": pa.array([1000 * i for i in ids], pa.timestamp("ms")),
        "day": pa.array([dt.date(2026, 1, 1 + i) for i in ids]),
    }
    return pa.table({**made, **others})


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    return anabranch.connect(str(tmp_path_factory.mktemp("diff")), spark=spark)


@pytest.fixture(scope="module")
def table(lake):
    """Main and its branch ``fix``, each with rows of its own, in renamed and wider columns."""
    table = lake.create_table("db.t", SCHEMA, partition_by=["dt"])
    table.append(rows([1, 1, 2, 3]))
    table.append(rows([4, 5, 7], "b"))
    table.create_tag("good")
    table.create_branch("fix", "good")
    branch = table.branch("fix")
    branch.overwrite(rows([5, 7, 7, 8], "b"))
    branch.append(rows([20], "c"))
    branch.alter().rename_column("price", "cost").widen_column("cost", "DECIMAL(20, 4)").apply()
    branch.append(rows([1]).rename_columns(["id", "dt", "v", "cost", "ts", "day"]))
    table.append(rows([6]))
    return table


def counted(found):
    names = [n for n in found.schema.names if n != "_change"]
    return Counter((r["_change"], *(repr(r[n]) for n in names)) for r in found.to_pylist())


def test_rows_that_differ_are_the_same(table):
    for asked in ({}, {"filter": "id > 1 AND dt = 'b'"}):
        found = table.diff("main", "fix").rows(**asked)
        assert found.count()
        assert counted(found.to_spark().toArrow()) == counted(found.to_arrow())
    assert table.diff("main", "fix").rows(limit=2).to_spark().count() == 2
    assert table.diff("main", "main").rows().to_spark().count() == 0


@pytest.mark.long
def test_a_diff_reads_changed_files_only(table):
    found = table.diff("main", "fix").rows()
    files = [file for scan in (found.left, found.right) for file in scan.to_spark().inputFiles()]
    shared = set(table.diff("main", "fix").files.shared["file_name"])
    assert shared
    assert files
    assert not {file.rpartition("/")[2] for file in files} & shared


@pytest.mark.long
def test_maps_cannot_be_compared_there(spark, tmp_path):
    lake = anabranch.connect(str(tmp_path), spark=spark)
    table = lake.create_table("db.m", "id INT, m ROW<x MAP<STRING, INT>>")
    with pytest.raises(InvalidInputError, match="column 'm' holds maps"):
        table.diff("main", "main").rows().to_spark()


CHECKS = """
show: [id]
checks:
  - row_count: {min: 1, max: 8}
  - row_count: {max: 3}
    where: dt = 'b'
  - not_null: v
    at_most: 20 %
  - unique: id
  - unique: [id, dt, cost]
    at_most: 3
  - range: {column: v, min: 2, max: 100}
  - range: {column: ts, max: '1970-01-01 00:00:10'}
  - accepted_values: {column: dt, values: [a, b]}
  - condition: cost >= 102 AND id < 20
  - freshness: {column: ts, within: 100000 d}
  - freshness: {column: day, within: 1 d}
    where: id < 3
  - row_count_vs_main: {within: 50 %}
  - sum_vs_main: {column: id, within: 10 %}
  - sum_vs_main: {column: cost, within: 0 %}
  - sum_vs_main: {column: v, within: 0 %}
    where: id <> 7
  - no_removed_keys: id
  - no_removed_keys: [id, dt]
    where: id <> 4
"""


@pytest.mark.long
def test_checks_find_the_same(table):
    branch = table.branch("fix")
    embedded = Table(replace(branch.context))
    ours, sparks = (view.audit(Checks.parse(CHECKS)).checks for view in (embedded, branch))
    told = [(c.name, c.passed, c.offending, len(c.sample)) for c in sparks]
    assert told == [(c.name, c.passed, c.offending, len(c.sample)) for c in ours]
    assert {passed for _, passed, _, _ in told} == {True, False}
    for one, other in zip(ours, sparks, strict=True):
        if one.kind.endswith("vs_main") or one.kind == "row_count":
            assert one.found.replace(".0000", "") == other.found.replace(".0000", "").replace(".00", "")
        if one.kind == "freshness":
            assert one.found.partition(",")[0] == other.found.partition(",")[0]


@pytest.mark.long
def test_checks_in_the_sql_of_spark(table):
    branch = table.branch("fix")
    verdict = branch.audit(
        Checks.parse(
            """
checks:
  - condition: length(dt) = 1 AND abs(id) > 1
  - sql: SELECT dt, count(*) AS n FROM {branch} GROUP BY dt HAVING n > 3
  - sql: SELECT b.id FROM {branch} b LEFT ANTI JOIN {main} m ON b.id = m.id
    at_most: 2
  - sql: SELECT id FROM {branch} WHERE to_json(struct(dt)) = '{{"dt":"zz"}}'
"""
        )
    )
    found = [(c.passed, c.offending) for c in verdict.checks]
    assert found == [(False, 3), (False, 2), (True, 2), (True, 0)]
    assert sorted(row["dt"] for row in verdict.checks[1].sample) == ["a", "b"]
    for text, message in (
        ("- condition: nonsense(id)", "Spark does not understand the condition"),
        ("- sql: SELECT * FROM {other}", "Spark does not understand the check"),
        ("- sql: SELEC 1", "Spark does not understand the check"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            branch.audit(Checks.parse(f"checks:\n  {text}"))


def test_procedures(lake, table, tmp_path):
    found = lake.sql("CALL sys.diff(table => 'db.t', right => 'fix')").collect()
    assert {row.partition: (row.rows_left, row.rows_right) for row in found} == {
        p.partition: (p.rows_left, p.rows_right) for p in table.diff("main", "fix").partitions
    }
    path = tmp_path / "few.yml"
    path.write_text("checks:\n  - row_count: {max: 1}\n  - not_null: id\n")
    found = lake.sql(f"CALL sys.audit(table => 'db.t$branch_fix', checks => '{path}', by => 'ann')").collect()
    assert [(row.check, row.passed, row.audit_passed) for row in found] == [
        ("row_count", False, False),
        ("not_null id", True, False),
    ]
    log = lake.sql("SELECT operation, performed_by FROM db.`t$branches_log`").collect()
    assert ("audited", "ann") in [tuple(row) for row in log]
