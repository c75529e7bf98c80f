"""What the proposals write, in Spark's words: text before and after. No JVM is needed."""

import pytest

import anabranch
from anabranch.spark.sql.create import CreateTable, create_table
from anabranch.spark.sql.rewrites import rewritten
from anabranch.spark.sql.scanner import words_of
from tests.spark.hint_cases import CASES, OPEN, REFUSED


def windows(arguments, table):
    return (
        "(SELECT * EXCEPT (__window), __window.start AS window_start, __window.end AS window_end, "
        "__window.end - INTERVAL '0.001' SECOND AS window_time "
        f"FROM (SELECT *, window({arguments}) AS __window FROM {table}))"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT 'it''s', \"a\\\"b\", `x``y` -- TABLE(TUMBLE(", None),
        ("SELECT '/*+ OPTIONS(''k''=''v'') */' /* /*+ OPTIONS('k'='v') */ */", None),
        ("SELECT /*+ BROADCAST(t) */ * FROM t", None),
        ("SELECT * FROM t /*+ OPTIONS('k'='a)') */ AS x", "SELECT * FROM t WITH ('k'='a)') AS x"),
        ("WITH q AS (SELECT 1) SELECT * FROM q", None),
        (
            "CREATE TABLE t WITH ('k' = 'v') AS WITH q AS (SELECT 1 a) SELECT * FROM q",
            "CREATE TABLE t TBLPROPERTIES ('k' = 'v') AS WITH q AS (SELECT 1 a) SELECT * FROM q",
        ),
        ("CREATE TABLE t AS WITH q AS (SELECT 1 a) SELECT * FROM q", None),
        (
            "SELECT count(*) FROM TABLE(\n  TUMBLE(TABLE db.t, DESCRIPTOR(`a b`), INTERVAL '10' MINUTES)) AS w",
            "SELECT count(*) FROM " + windows("`a b`, '10 MINUTES'", "db.t") + " AS w",
        ),
        (
            "SELECT 1 FROM TABLE(HOP(TABLE t /*+ OPTIONS('k'='v') */, DESCRIPTOR(c), INTERVAL 5 SECOND, INTERVAL '1' DAY))",
            "SELECT 1 FROM " + windows("c, '1 DAY', '5 SECOND'", "t WITH ('k'='v')"),
        ),
        ("SELECT * FROM TABLE(range(3))", None),
    ],
)
def test_only_what_spark_does_not_know_is_replaced(before, after):
    assert rewritten(before) == (before if after is None else after)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT 'open", "never closed"),
        ("SELECT /* open", "never closed"),
        ("SELECT * FROM TABLE(TUMBLE(t, 1)", "never closed"),
        ("SELECT * FROM TABLE(TUMBLE(t, DESCRIPTOR(c), INTERVAL '1' DAY))", "a table and a column"),
        ("SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), 1, 2))", "CUMULATE is no interval"),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL '1' DAY))",
            "CUMULATE is not written",
        ),
        ("SELECT * FROM TABLE(SESSION(TABLE t, DESCRIPTOR(c)))", "SESSION is not written"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), 10))", "no interval"),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '0' DAY))",
            "TUMBLE are to be above zero",
        ),
        (
            "SELECT * FROM TABLE(SESSION(TABLE t, DESCRIPTOR(c), INTERVAL '-5' MINUTES))",
            "SESSION are to be above",
        ),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL '7' MINUTES, INTERVAL '0.5' HOUR))",
            "size of CUMULATE is no multiple of its step",
        ),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL '30' MINUTES, INTERVAL '10' MINUTES))",
            "the step comes first|no multiple",
        ),
    ],
)
def test_what_cannot_be_understood_is_said(statement, message):
    with pytest.raises(anabranch.AnabranchError, match=message):
        rewritten(statement)


@pytest.mark.parametrize(("before", "after"), CASES)
def test_hints_are_told_from_what_looks_like_them(before, after):
    assert rewritten(before) == (before if after is None else after)


@pytest.mark.parametrize("statement", REFUSED)
def test_a_hint_after_select_is_refused(statement):
    with pytest.raises(anabranch.AnabranchError, match="after SELECT"):
        rewritten(statement)


@pytest.mark.parametrize("statement", OPEN)
def test_a_statement_with_something_open_is_refused(statement):
    with pytest.raises(anabranch.AnabranchError, match="never closed"):
        rewritten(statement)


@pytest.mark.parametrize(
    ("text", "value"),
    [("'it''s'", "it's"), ("r'p\\q'", "p\\q"), ('R"a\\"', "a\\"), ("'a\\'b'", "a'b")],
)
def test_the_value_of_a_text(text, value):
    (word,) = words_of(text)
    assert (word.kind, word.value) == ("text", value)


def test_create_table_in_the_words_of_tables():
    made = create_table(
        "CREATE TABLE IF NOT EXISTS a.`b c` (x INT, t TIMESTAMP(3), WATERMARK FOR t AS t - INTERVAL '5' SECOND)\n"
        "COMMENT 'it''s' PARTITIONED BY (x, `y z`) WITH ('bucket' = '-1', 'n' = 5);"
    )
    assert made == CreateTable(
        ("a", "b c"),
        "x INT, t TIMESTAMP(3), WATERMARK FOR t AS t - INTERVAL '5' SECOND",
        True,
        "it's",
        ("x", "y z"),
        {"bucket": "-1", "n": "5"},
    )
    for other in ("CREATE TABLE t AS SELECT 1", "CREATE TABLE t (a INT) USING parquet", "DROP TABLE t",
                  "CREATE TABLE t (a INT) PARTITIONED BY (days(a))", "CREATE VIEW v AS SELECT 1"):  # fmt: skip
        assert create_table(other) is None
    with pytest.raises(anabranch.AnabranchError, match="'key' = 'value'"):
        create_table("CREATE TABLE t (a INT) WITH (bucket = 3)")


@pytest.mark.parametrize(
    ("step", "size"),
    [
        ("'1.5' SECONDS", "'1' MINUTE"),
        ("'8' HOURS", "'1' DAY"),
        ("500 MILLISECONDS", "'2' WEEKS"),
        ("'1' MONTH", "'5' DAYS"),
    ],
)
def test_windows_that_fit_are_rewritten(step, size):
    """Of intervals that it does not know, such as months, Spark says what is wrong."""
    made = rewritten(
        f"SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL {step}, INTERVAL {size}))"
    )
    assert f"INTERVAL {step}" in made
