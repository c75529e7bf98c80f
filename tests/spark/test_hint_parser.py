"""Hints with options in plain `spark.sql`, as the proposals write them."""

import pytest
from pyspark.errors import IllegalArgumentException

import anabranch
from anabranch.spark.catalog import register_catalog
from tests.spark.hint_cases import CASES, OPEN, REFUSED
from tests.support.lengths import first_short


@pytest.fixture
def session(spark, warehouse):
    register_catalog(spark, "hints", {"warehouse": warehouse})
    lake = anabranch.connect(warehouse)
    for name in ("t", "other"):
        table = lake.create_table(f"db.{name}", "id BIGINT, v STRING")
        table.append([{"id": 1, "v": "x"}])
        table.append([{"id": 2, "v": "/*+ OPTIONS('a' = 'b') */"}])
    return spark


def ids(frame):
    return sorted(row["id"] for row in frame.collect())


def test_a_hint_with_options_is_heeded(session):
    first = "/*+ OPTIONS('scan.snapshot-id' = '1') */"
    assert ids(session.sql(f"SELECT * FROM hints.db.t {first}")) == [1]
    assert ids(session.sql("SELECT * FROM hints.db.t")) == [1, 2]
    both = f"SELECT t.id FROM hints.db.t {first} AS t RIGHT JOIN hints.db.other /*+ options('scan.snapshot-id'='2') */ o ON t.v = o.v"
    assert session.sql(both).count() == 2
    given = session.sql(f"SELECT id FROM hints.db.t {first} WHERE id >= :least", args={"least": 1})
    assert ids(given) == [1]


def test_what_only_looks_like_a_hint_is_left_as_it_is(session):
    text = (
        "SELECT id FROM hints.db.t WHERE v = '/*+ OPTIONS(''a'' = ''b'') */' -- /*+ OPTIONS('no' = 'no') */"
    )
    with_backslashes = text.replace("''", "\\'")
    assert ids(session.sql(with_backslashes)) == [2]
    assert ids(session.sql("SELECT /*+ COALESCE(1) */ id FROM hints.db.t")) == [1, 2]


@pytest.mark.parametrize(
    "statement",
    first_short(
        [
            "SELECT /*+ OPTIONS('scan.snapshot-id', '1') */ * FROM hints.db.t",
            "SELECT /*+ OPTIONS('scan.snapshot-id' = '1') */ * FROM hints.db.t",
            "SELECT * FROM hints.db.t /*+ OPTIONS('scan.snapshot' = '1') */",
            "INSERT INTO hints.db.t /*+ OPTIONS('nonsense' = '1') */ SELECT 3L, 'z'",
        ]
    ),
)
def test_a_hint_that_would_not_be_heeded_is_refused(session, statement):
    with pytest.raises(IllegalArgumentException, match="(?i)option"):
        session.sql(statement).collect()
    assert ids(session.table("hints.db.t")) == [1, 2]


def test_an_insert_heeds_its_options(session, warehouse):
    session.sql("INSERT INTO hints.db.t /*+ OPTIONS('anabranch.job' = 'by-hint') */ SELECT 3L, 'z'")
    entry = anabranch.connect(warehouse).table("db.t").snapshot.properties["anabranch.lineage"]
    assert "by-hint" in entry


def test_the_parser_rewrites_what_lake_sql_rewrites(session):
    parser = session._jsparkSession.sessionState().sqlParser()
    for before, after in CASES:
        assert parser.rewritten(before) == (before if after is None else after)
    for text in OPEN:
        assert parser.rewritten(text) == text  # Spark says what is wrong
    for text in REFUSED:
        with pytest.raises(IllegalArgumentException, match="after SELECT"):
            parser.rewritten(text)


def test_spark_tells_texts_and_comments_as_we_do(session):
    """Each case is a statement of Spark's once it is rewritten, and what was rewritten is what Spark took for options."""
    parser = session._jsparkSession.sessionState().sqlParser()
    for before, after in CASES:
        plan = parser.parsePlan(before).toString()
        assert plan.count("[k=") == (after or "").count("WITH ("), before
