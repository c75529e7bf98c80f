"""Statements as text: where tables stand in them, what INSERT and CREATE say, where one ends. No JVM is needed."""

import pytest

import anabranch
from anabranch.format.schema.change import RemoveOption, SetComment, SetOption
from anabranch.format.types.data_types import IntType
from anabranch.spark.context.tables import catalog_of
from anabranch.spark.sql.connect import Portable
from anabranch.spark.sql.create import changes, table_statement
from anabranch.spark.sql.insert import insert
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.references import references, replaced
from anabranch.spark.sql.scanner import WordReader, statements_of


def with_marks(query):
    return replaced(query, [(found, f"<{place}>") for place, found in enumerate(references(query))])


@pytest.mark.parametrize(
    ("query", "after"),
    [
        ("SELECT * FROM t", "SELECT * FROM <0> AS `t`"),
        ("SELECT * FROM a.t x, b.u AS y, v", "SELECT * FROM <0> x, <1> AS y, <2> AS `v`"),
        ("SELECT a.t.id, a.t.* FROM a.t", "SELECT `t`.id, `t`.* FROM <0> AS `t`"),
        ("SELECT 1 FROM c.`a b`.`x``y` WHERE z", "SELECT 1 FROM <0> AS `x``y` WHERE z"),
        ("SELECT * FROM t VERSION AS OF 'x' JOIN u ON a, w", "SELECT * FROM <0> AS `t` JOIN <1> AS `u` ON a, <2> AS `w`"),
        ("FROM t FOR SYSTEM_TIME AS OF now() + INTERVAL '1' DAY - x z", "FROM <0> z"),
        ("SELECT * FROM t TIMESTAMP AS OF '2026' WITH ('k' = 'v') WHERE a", "SELECT * FROM <0> AS `t` WHERE a"),
        ("SELECT * FROM t TABLESAMPLE (3 ROWS) LIMIT 1", "SELECT * FROM <0> TABLESAMPLE (3 ROWS) AS `t` LIMIT 1"),
        ("SELECT * FROM (t JOIN u USING (id)) q", "SELECT * FROM (<0> AS `t` JOIN <1> AS `u` USING (id)) q"),
        ("SELECT (SELECT max(a) FROM t) FROM u", "SELECT (SELECT max(a) FROM <0> AS `t`) FROM <1> AS `u`"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t, u", "WITH t AS (SELECT * FROM <0> AS `t`) SELECT * FROM t, <1> AS `u`"),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT * FROM R", None),
        ("SELECT extract(DAY FROM d), trim(BOTH 'x' FROM s), substring(s FROM 2) FROM range(3)", None),
        ("SELECT a IS NOT DISTINCT FROM b", None),
        ("SELECT 'FROM t', \"FROM t\" -- FROM t\n /* FROM t */", None),
        ("SELECT * FROM VALUES (1, 2), (3, 4)", None),
        ("SELECT k FROM t LATERAL VIEW explode(m) x AS k, v", "SELECT k FROM <0> AS `t` LATERAL VIEW explode(m) x AS k, v"),
        ("TABLE a.t", "TABLE <0>"),
        ("SELECT * FROM f(TABLE t)", "SELECT * FROM f(TABLE <0>)"),
        ("FROM t |> JOIN u ON a |> SELECT b", "FROM <0> AS `t` |> JOIN <1> AS `u` ON a |> SELECT b"),
        ("SELECT * FROM t PIVOT (sum(a) FOR d IN ('x', 'y'))", "SELECT * FROM <0> AS `t` PIVOT (sum(a) FOR d IN ('x', 'y'))"),
        ("SELECT * FROM t NATURAL JOIN u UNION SELECT * FROM v ORDER BY 1, w",
         "SELECT * FROM <0> AS `t` NATURAL JOIN <1> AS `u` UNION SELECT * FROM <2> AS `v` ORDER BY 1, w"),
        ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a)",
         "SELECT * FROM <0> AS `t`, LATERAL (SELECT * FROM <1> AS `u` WHERE u.a = t.a)"),
    ],
)  # fmt: skip
def test_where_tables_stand(query, after):
    assert with_marks(query) == (query if after is None else after)


def test_what_is_said_of_a_table():
    (found,) = references("SELECT * FROM a.t FOR VERSION AS OF 'good' WITH ('k' = 'it''s', 'n' = 3) AS x")
    assert (found.parts, found.version, found.timestamp) == (("a", "t"), "good", None)
    assert (dict(found.options), found.alias_at) == ({"k": "it's", "n": "3"}, None)
    (found,) = references("SELECT * FROM t TIMESTAMP AS OF date_sub(current_date(), 1) WHERE a")
    assert found.timestamp == "date_sub(current_date(), 1)"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("USE spark_catalog.default", "use spark.sql"),
        ("USE DATABASE other.db", "use spark.sql"),
        ("USE nope", "SHOW DATABASES"),
    ],
)
def test_through_connect_the_lake_stays_the_catalog(tmp_path, statement, said):
    names = Names("lake", catalog_of({"warehouse": str(tmp_path)}), "default")
    with pytest.raises(anabranch.AnabranchError) as caught:
        Portable(None, {}, names).run(statement)
    assert said in caught.value.hint
    assert names.database == "default"


def test_insert_tells_whether_a_partition_may_be_there():
    assert insert("INSERT OVERWRITE t PARTITION (d = 'x') IF NOT EXISTS SELECT 1").if_not_exists
    assert not insert("INSERT OVERWRITE t PARTITION (d = 'x') SELECT 1").if_not_exists


@pytest.mark.parametrize(
    ("alteration", "wanted"),
    [
        ("SET TBLPROPERTIES ('comment' = 'x', 'a' = '1')", [SetComment("x"), SetOption("a", "1")]),
        ("UNSET TBLPROPERTIES ('comment', 'a')", [SetComment(None), RemoveOption("a")]),
        ("SET TBLPROPERTIES ('option.a' = '1')", "name the option itself: 'a'"),
        ("UNSET TBLPROPERTIES ('option.a')", "name the option itself: 'a'"),
        ("SET TBLPROPERTIES ('owner' = 'me')", "'owner' of a table is fixed"),
        ("UNSET TBLPROPERTIES ('provider')", "'provider' of a table is fixed"),
        ("ADD COLUMN a INT DEFAULT 7", "a column's DEFAULT"),
        ("ADD COLUMN a INT NOT NULL DEFAULT 7", "a column's DEFAULT"),
    ],
)
def test_properties_and_columns_that_alter_table_changes(alteration, wanted):
    def changed():
        return changes(WordReader(alteration), lambda _: IntType())

    if isinstance(wanted, list):
        assert changed() == wanted
        return
    with pytest.raises(anabranch.UnsupportedFeatureError) as caught:
        changed()
    assert wanted in f"{caught.value.message} {caught.value.hint}"


def test_insert_in_all_its_forms():
    found = insert(
        "WITH q AS (SELECT 1) INSERT INTO TABLE a.t PARTITION (dt = 'x;', h) (u, `v w`) SELECT * FROM q;"
    )
    assert (found.target, found.query) == (("a", "t"), "WITH q AS (SELECT 1) SELECT * FROM q")
    assert (found.partition, found.columns, found.overwrite) == (
        {"dt": "'x;'", "h": None},
        ("u", "v w"),
        False,
    )
    found = insert("INSERT INTO t WITH ('k' = 'v') BY NAME (SELECT 1 AS a)")
    assert (found.options, found.by_name, found.columns, found.query) == (
        {"k": "v"},
        True,
        (),
        "(SELECT 1 AS a)",
    )
    found = insert("insert overwrite t replace where dt in ('a') and (h = 1) values (1)")
    assert (found.overwrite, found.where, found.query) == (True, "dt in ('a') and (h = 1)", "values (1)")
    assert insert("SELECT 'INSERT INTO t'") is None
    assert insert("WITH q AS (SELECT 1) SELECT * FROM q") is None
    with pytest.raises(anabranch.AnabranchError, match="has no rows"):
        insert("INSERT INTO t")


def test_tables_that_are_made_with_their_rows():
    found = table_statement(
        "CREATE OR REPLACE TABLE a.t PARTITIONED BY (p) COMMENT 'c' WITH ('k' = 'v') AS SELECT 1 p;"
    )
    assert (found.name, found.query, found.partition_by) == (("a", "t"), "SELECT 1 p", ("p",))
    assert (found.creates, found.replaces, found.comment, found.options) == (True, True, "c", {"k": "v"})
    found = table_statement("REPLACE TABLE t (a INT)")
    assert (found.creates, found.replaces, found.columns, found.query) == (False, True, "a INT", None)
    assert table_statement("CREATE TABLE t USING csv AS SELECT 1") is None
    assert table_statement("CREATE TABLE t (a INT) AS SELECT 1") is None


def test_statements_of_a_script():
    script = "-- first;\nSELECT ';' AS a; ;\n/* ; */ SELECT `;`\n-- the end"
    assert statements_of(script) == ["SELECT ';' AS a", "SELECT `;`\n-- the end"]
    assert statements_of("-- nothing\n;") == []
    with pytest.raises(anabranch.AnabranchError, match="never closed"):
        statements_of("SELECT 'x; SELECT 2;")


def test_binary_is_of_any_length_as_spark_means_it():
    found = table_statement(
        "CREATE TABLE t (a BINARY, b binary NOT NULL, s STRUCT<binary: BINARY>, binary BINARY(3) COMMENT 'a BINARY, b')"
    )
    assert found.columns == (
        "a BYTES, b BYTES NOT NULL, s STRUCT<binary: BYTES>, binary BINARY(3) COMMENT 'a BINARY, b'"
    )
