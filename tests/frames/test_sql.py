"""SQL without a JVM: statements that read, by DuckDB."""

import datetime as dt
import json
import subprocess
import sys

import polars as pl
import pytest

import anabranch
from anabranch.arrow import reader
from anabranch.cli.main import run


@pytest.fixture
def lake(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "id BIGINT NOT NULL, x DOUBLE, v STRING, dt DATE", partition_by="dt")
    table.append([{"id": 1, "x": 1.5, "v": "a", "dt": dt.date(2026, 1, 1)}])
    table.create_tag("it's good")
    table.append([{"id": 2, "x": float("nan"), "v": None, "dt": dt.date(2026, 1, 2)}])
    table.create_branch("fix", tag="it's good")
    table.branch("fix").append([{"id": 9, "dt": dt.date(2026, 1, 9)}])
    lake.create_table("default.u", "id BIGINT, w STRING").append([{"id": 1, "w": "one"}])
    return lake


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT id FROM db.t ORDER BY id", [(1,), (2,)]),
        ("SELECT t.id FROM lake.db.t WHERE t.x > 1 ORDER BY 1", [(1,), (2,)]),
        ("FROM `db`.`t` SELECT count(*)", [(2,)]),
        ("SELECT t.id, w FROM db.t JOIN u ON t.id = u.id", [(1, "one")]),
        ("SELECT w FROM default.u", [("one",)]),
        ("WITH q AS (SELECT id FROM db.t) SELECT max(id) FROM q -- db.nope", [(2,)]),
        ("SELECT t.id FROM db.t VERSION AS OF 1", [(1,)]),
        ("SELECT id FROM db.t FOR VERSION AS OF 'it''s good' WHERE id < 5", [(1,)]),
        ("SELECT a.id, b.id AS other FROM db.t VERSION AS OF 1 a, db.t b WHERE a.id <> b.id", [(1, 2)]),
        ("SELECT count(*) FROM db.t TIMESTAMP AS OF TIMESTAMP '2999-01-01 00:00:00'", [(2,)]),
        ("SELECT id FROM db.t$branch_fix ORDER BY id DESC", [(9,), (1,)]),
        ('SELECT id FROM db."t$branch_fix" VERSION AS OF 1', [(1,)]),
        ("SELECT snapshot_id FROM db.t$snapshots ORDER BY 1", [(1,), (2,)]),
        ("SELECT snapshot_id FROM db.t.snapshots ORDER BY 1", [(1,), (2,)]),
        ("SELECT count(*) FROM lake.db.t.files f JOIN `db`.t.SNAPSHOTS s ON true", [(4,)]),
        ("SELECT snapshots.snapshot_id FROM db.t.snapshots VERSION AS OF 1", [(1,)]),
        ('SELECT count(*) FROM db."t$branch_fix".snapshots', [(2,)]),
        (
            "SELECT _partition, _row_position, id FROM db.t WHERE _bucket = 0 AND id = 2",
            [("dt=2026-01-02", 0, 2)],
        ),
        ("SELECT _snapshot_added FROM db.t VERSION AS OF 1", [(1,)]),
        (
            "SELECT t.*, t._bucket AS b, w FROM db.t t JOIN u USING (id)",
            [(1, 1.5, "a", dt.date(2026, 1, 1), 0, 0, "one")],
        ),
        ("SELECT table_name FROM sys.tables ORDER BY 1", [("t",), ("u",)]),
        ("SELECT 'FROM db.nope; VERSION AS OF 7' AS s", [("FROM db.nope; VERSION AS OF 7",)]),
        ("SELECT id FROM db.t WHERE v IS NULL", [(2,)]),
        ("SHOW DATABASES", [("db",), ("default",)]),
        ("show tables in db", [("db", "t")]),
        ("SHOW TABLES", [("db", "t"), ("default", "u")]),
        ("VALUES (1), (2)", [(1,), (2,)]),
    ],
)
def test_what_a_statement_gives(lake, statement, rows):
    found = lake.sql(statement).to_arrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_history_and_detail(lake):
    history = lake.sql("DESCRIBE HISTORY db.t LIMIT 1").collect()
    assert [(row["version"], row["operation"], row["rowsAdded"], row["rows"]) for row in history] == [
        (2, "APPEND", 1, 2)
    ]
    assert [row["version"] for row in lake.sql("desc history `db`.`t`;").collect()] == [2, 1]
    (detail,) = lake.sql("DESCRIBE DETAIL lake.db.t").collect()
    assert (detail["name"], detail["partitionColumns"], detail["numFiles"]) == ("db.t", ["dt"], 2)
    assert detail["sizeInBytes"] == sum(
        row["file_size_in_bytes"] for row in lake.table("db.t").system("files").to_pylist()
    )
    with pytest.raises(anabranch.NotFoundError):
        lake.sql("DESCRIBE HISTORY db.nope")


@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        ("OPTIMIZE db.t", "anabranch compact db.t"),
        (
            "optimize lake.db.t WHERE dt > '2026' ZORDER BY (id, `x`)",
            "anabranch sort-compact db.t --order-by id,x --strategy zorder",
        ),
        ("VACUUM db.t RETAIN 168 HOURS", "anabranch expire-snapshots db.t"),
        ("RESTORE TABLE db.t TO VERSION AS OF 1", "anabranch rollback db.t --to TAG"),
    ],
)
def test_statements_of_others_name_our_verb(lake, capsys, statement, verb):
    with pytest.raises(anabranch.UnsupportedFeatureError) as refused:
        lake.sql(statement)
    assert f"`{verb}`" in refused.value.hint
    run([*verb.replace("TAG", "1").split()[1:], "--help"])  # there is such a verb
    assert "Usage" in capsys.readouterr().out
    assert run(["-w", lake.url, "sql", statement]) == 1  # at once, without Spark
    assert "not a statement here" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN (FORMAT json)"])
def test_a_plan_is_explained(lake, how):
    assert lake.sql(f"{how} (SELECT id FROM db.t)").collect()


def test_rows_come_in_every_form(lake):
    found = lake.sql("SELECT id, dt FROM db.t WHERE id = 1")
    assert found.columns == ["id", "dt"]
    assert found.collect() == [{"id": 1, "dt": dt.date(2026, 1, 1)}]
    assert found.to_polars().equals(pl.DataFrame(found))
    assert found.to_pandas().shape == (1, 2)
    assert "2026-01-01" in repr(found)
    assert "<td>2026-01-01</td>" in found._repr_html_()


def test_filters_reach_the_planner(lake, monkeypatch):
    opened = []
    read = reader._Scan._open
    monkeypatch.setattr(
        reader._Scan, "_open", lambda self, file: opened.append(file.path) or read(self, file)
    )
    assert lake.sql("SELECT id FROM db.t WHERE dt = DATE '2026-01-02'").collect() == [{"id": 2}]
    assert len(set(opened)) == 1


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("INSERT INTO db.t VALUES (1)", anabranch.UnsupportedFeatureError, "INSERT is for Spark"),
        ("CREATE TABLE db.x (id INT)", anabranch.UnsupportedFeatureError, "CREATE is for Spark"),
        ("SHOW CREATE TABLE db.t", anabranch.UnsupportedFeatureError, "SHOW is for Spark"),
        ("COPY db.t TO '/x'", anabranch.UnsupportedFeatureError, "COPY is for Spark"),
        ("EXPLAIN COPY db.t TO '/x'", anabranch.UnsupportedFeatureError, "COPY is for Spark"),
        ("explain analyze copy db.t TO '/x'", anabranch.UnsupportedFeatureError, "COPY is for Spark"),
        (
            "EXPLAIN (ANALYZE, FORMAT json) COPY db.t TO '/x'",
            anabranch.UnsupportedFeatureError,
            "COPY is for Spark",
        ),
        ("EXPLAIN EXPLAIN ANALYZE COPY db.t TO '/x'", anabranch.UnsupportedFeatureError, "COPY is for Spark"),
        (
            "SELECT * FROM db.t /*+ BROADCAST(t) */",
            anabranch.UnsupportedFeatureError,
            "hints other than OPTIONS",
        ),
        ("SELECT * FROM db.nope", anabranch.NotFoundError, "tables there are: t"),
        ("SELECT * FROM db.t VERSION AS OF 77", anabranch.NotFoundError, "77"),
        ("SELECT * FROM db.t VERSION AS OF now()", anabranch.SqlError, "names no moment"),
        ("SELECT nope FROM db.t", anabranch.SqlError, "nope"),
        ("SELECT * FRO db.t", anabranch.SqlError, "syntax error"),
        ("SELECT 'x", anabranch.SqlError, "never closed"),
        ("SELECT 1 /* x", anabranch.SqlError, "never closed"),
        ("-- nothing", anabranch.SqlError, "no statement"),
    ],
)
def test_what_it_does_not_do_is_said(lake, statement, error, said):
    with pytest.raises(error, match=said):
        lake.sql(statement).to_arrow()


def test_it_writes_nothing(lake, tmp_path):
    for statement in ("SELECT 1; DROP VIEW db.t", "SELECT 1; COPY (SELECT 1) TO 'x'"):
        with pytest.raises(anabranch.SqlError, match="one statement"):
            lake.sql(statement)


def test_a_connection_in_which_tables_are_views(lake):
    connection = anabranch.duckdb(lake)
    assert connection.sql("SELECT count(*) FROM db.t").fetchall() == [(2,)]
    assert connection.sql("SELECT w FROM u").fetchall() == [("one",)]
    lake.table("db.t").append([{"id": 3}])
    assert connection.sql("SELECT count(*) FROM db.t").fetchall() == [(2,)]
    assert anabranch.duckdb(lake).sql("SELECT count(*) FROM lake.db.t").fetchall() == [(3,)]


def test_a_connection_has_branches_and_system_tables_that_are_named(lake):
    table = lake.table("db.t")
    table.create_tag("of_main")
    table.create_branch("apart", tag="of_main")
    table.branch("apart").append(table.scan(limit=1).to_arrow())
    connection = anabranch.duckdb(lake, "db.t$branch_apart", "db.t$snapshots")
    count = 'SELECT (SELECT count(*) FROM db."t$branch_apart") - (SELECT count(*) FROM db.t)'
    assert connection.sql(count).fetchall() == [(1,)]
    assert connection.sql('SELECT count(*) FROM db."t$snapshots"').fetchall() == [
        (len([*table.snapshots()]),)
    ]
    with pytest.raises(anabranch.NotFoundError, match="nowhere"):
        anabranch.duckdb(lake, "db.t$branch_nowhere")


def test_the_command_line_starts_no_jvm_to_read(lake, tmp_path, capsys):
    script = "SELECT id, dt FROM db.t ORDER BY id; SELECT count(*) AS n FROM db.t VERSION AS OF 1"
    assert run(["-w", str(tmp_path), "sql", "--json", script]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"id": 1, "dt": "2026-01-01"},
        {"id": 2, "dt": "2026-01-02"},
        {"n": 1},
    ]
    assert run(["-w", str(tmp_path), "sql", "SELECT id FROM db.t", "--limit", "1"]) == 0
    said = capsys.readouterr()
    assert (said.out, "--limit all" in said.err) == ("id\n 1\n", True)
    assert run(["-w", str(tmp_path), "sql", "SELECT * FROM db.nope"]) == 1
    assert "tables there are: t" in capsys.readouterr().err
    assert run(["-w", str(tmp_path), "sql", "--engine", "duckdb", "DROP TABLE db.t"]) == 1
    assert "DROP is for Spark" in capsys.readouterr().err


@pytest.mark.parametrize("is_missing", [False, True])
def test_files_that_cannot_be_read_are_named_as_by_other_reads(lake, tmp_path, capsys, is_missing):
    (file,) = (tmp_path / "default.db" / "u").rglob("*.parquet")
    if is_missing:
        file.unlink()
    else:
        file.write_bytes(b"PAR1" + b"x" * (file.stat().st_size - 4))
    with pytest.raises(anabranch.AnabranchError) as expected:
        lake.table("default.u").scan().to_arrow()
    capsys.readouterr()
    for form in (lambda rows: rows.to_arrow(), lambda rows: rows.collect(), repr, lambda rows: rows.show()):
        with pytest.raises(type(expected.value)) as caught:
            form(lake.sql("SELECT * FROM u ORDER BY id"))
        assert caught.value.message == expected.value.message
    for more in ([], ["--json"]):
        assert run(["-w", str(tmp_path), "sql", "SELECT * FROM u WHERE id > 0", *more]) == 1
        said = capsys.readouterr()
        assert file.name in said.err
        assert "Traceback" not in said.err + said.out
        assert "Spark" not in said.err


def test_neither_spark_nor_pandas_is_loaded_to_answer(lake, tmp_path):
    code = (
        "import sys; from anabranch.cli.main import run; code = run(sys.argv[1:]); "
        "sys.exit(code or any(name in sys.modules for name in ('pyspark', 'sqlglot', 'py4j')))"
    )
    command = [sys.executable, "-c", code, "-w", str(tmp_path), "sql", "SELECT count(*) FROM db.t"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_columns_that_differ_only_in_case_are_refused(tmp_path, caplog):
    """DuckDB answers for the first of them, whichever was meant."""
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", data=[{"id": 1, "n": 1, "N": 10}])
    for ask in (lambda: lake.sql('SELECT sum("N") FROM db.t'), table.scan().to_duckdb):
        with pytest.raises(anabranch.UnsupportedFeatureError, match="one for DuckDB"):
            ask()
    anabranch.duckdb(lake)
    assert "db.t has no view" in caplog.text
    assert table.scan(columns=["id", "N"]).to_duckdb().fetchall() == [(1, 10)]


def test_tables_whose_names_differ_only_in_case(tmp_path, caplog):
    """DuckDB answers for the one that it has seen first, whichever was meant."""
    lake = anabranch.connect(str(tmp_path))
    for number, name in enumerate(("db.t", "db.T", "DB.t", "db.u")):
        lake.create_table(name, "id BIGINT").append([{"id": number}])
    for number, name in enumerate(("db.t", 'db."T"', "DB.t", "db.u")):
        assert lake.sql(f"SELECT id FROM {name}").collect() == [{"id": number}]
    with pytest.raises(anabranch.UnsupportedFeatureError, match="differ only in case") as raised:
        lake.sql('SELECT * FROM db.t a JOIN db."T" b USING (id)')
    assert "rename" in raised.value.hint
    connection = anabranch.duckdb(lake)
    assert connection.sql("SELECT id FROM db.u").fetchall() == [(3,)]
    for name in ("db.t has no view", "db.T has no view", "DB.t has no view"):
        assert name in caplog.text
    with pytest.raises(Exception, match="does not exist"):
        connection.sql("SELECT id FROM db.t")


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT id FROM db.a JOIN db.b USING (id)", 2),
        ("SELECT a.id FROM db.a NATURAL JOIN lake.db.b", 2),
        ("WITH x AS (SELECT * FROM db.a) SELECT id FROM x JOIN db.b VERSION AS OF 1 USING (id)", 1),
        ("SELECT COLUMNS('i.*') FROM db.b", 2),
        ("SELECT a.id FROM db.a ASOF JOIN db.b ON a.id >= b.id", 2),
        ("EXPLAIN SELECT id FROM db.a JOIN db.b USING (id)", 1),
    ],
)
def test_statements_that_are_bound_by_columns(tmp_path, statement, rows):
    lake = anabranch.connect(str(tmp_path))
    for name in ("db.a", "db.b"):
        table = lake.create_table(name, "id BIGINT")
        table.append([{"id": 1}])
        table.append([{"id": 2}])
    assert len(lake.sql(statement).collect()) == rows
    with pytest.raises(anabranch.NotFoundError, match="db.c"):
        lake.sql("SELECT id FROM db.a JOIN db.c USING (id)")


@pytest.mark.parametrize("alias", ["a", "AS a", '"a"'])
def test_a_moment_behind_an_alias(tmp_path, alias):
    lake = anabranch.connect(str(tmp_path))
    lake.create_table("db.t", "id BIGINT").append([{"id": 1}])
    with pytest.raises(anabranch.SqlError, match="'a' is the alias of a table") as raised:
        lake.sql(f"SELECT * FROM db.t {alias} VERSION AS OF 1")
    assert "VERSION AS OF 5 AS a" in raised.value.hint
    assert lake.sql(f"SELECT a.id FROM db.t VERSION AS OF 1 {alias}").collect() == [{"id": 1}]


@pytest.mark.parametrize("statement", ["PRAGMA version", "PIVOT db.t ON id", "attach 'x' AS y"])
def test_statements_that_spark_has_not_either(tmp_path, statement):
    lake = anabranch.connect(str(tmp_path))
    lake.create_table("db.t", "id BIGINT").append([{"id": 1}])
    with pytest.raises(anabranch.UnsupportedFeatureError, match="is not answered here") as raised:
        lake.sql(statement)
    assert "anabranch.duckdb(lake)" in raised.value.hint
