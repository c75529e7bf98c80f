"""Procedures about the whole lake, which take no table: through the session's own SQL and through `lake.sql`."""

import anabranch


def test_groups_are_replaced_listed_and_taken_back_by_sql(spark, warehouse):
    anabranch.spark.attach(spark, warehouse, catalog="whole")
    lake = anabranch.connect(warehouse, spark=spark)
    for name in ("db.a", "db.b"):
        table = lake.create_table(name, "id BIGINT")
        table.append([{"id": 1}])
        table.create_tag("good")
        table.create_branch("fix", "good")
        table.branch("fix").append([{"id": 2}])
    made = spark.sql(
        "CALL whole.sys.replace_group(branches => 'db.a=fix,db.b=fix', reason => 'why')"
    ).collect()
    assert [(row["table"], row["branch"]) for row in made] == [("db.a", "fix"), ("db.b", "fix")]
    for found in (spark.sql("CALL whole.sys.groups()"), lake.sql("CALL lake.sys.groups()")):
        assert {(row["table"], row["outcome"], row["reason"]) for row in found.collect()} == {
            ("db.a", "replaced", "why"),
            ("db.b", "replaced", "why"),
        }
    assert lake.table("db.a").scan().count() == 2
    assert len(lake.sql("CALL lake.sys.undo_group()").collect()) == 2
    assert lake.table("db.b").scan().count() == 1
    assert spark.sql("CALL whole.sys.jobs()").collect() == []
    assert lake.sql("CALL lake.sys.lineage_jobs()").columns[:2] == ["job", "reads"]
