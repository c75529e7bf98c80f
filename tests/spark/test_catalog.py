"""Databases and tables of a warehouse in Spark's own SQL."""

from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
import anabranch.spark
from anabranch.kernel.scan.request import ScanRequest
from anabranch.spark.native import planned_files
from tests.spark.statements import Rows, run

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("catalog"))


@pytest.fixture(scope="module")
def session(spark, place):
    """A session with the warehouse as catalog ``water``, and a database in it."""
    session = anabranch.spark.attach(spark.newSession(), place, catalog="water")
    session.sql("CREATE NAMESPACE water.db")
    return session


@pytest.fixture(scope="module")
def lake(place):
    return anabranch.connect(place)


def test_databases(session):
    run(session.sql, [
        ("CREATE DATABASE water.other", []),
        ("CREATE DATABASE water.other", "already exists"),
        ("CREATE DATABASE IF NOT EXISTS water.other", []),
        ("SHOW NAMESPACES IN water", [("db",), ("other",)]),
        ("CREATE DATABASE water.x COMMENT 'no'", "cannot have comment"),
        ("CREATE DATABASE water.x.y", "databases have one level"),
        ("CREATE TABLE water.other.t (id INT)", []),
        ("DROP DATABASE water.other", "has 1 tables: t"),
        ("DROP DATABASE water.other CASCADE", []),
        ("DROP DATABASE IF EXISTS water.other", []),
        ("SHOW TABLES IN water.other", "cannot be found"),
    ])  # fmt: skip


def test_definitions_of_tables(session, lake):
    run(session.sql, [
        (("CREATE TABLE water.db.d (id BIGINT NOT NULL COMMENT 'the id', v STRING, dt DATE) PARTITIONED BY (dt) "
         "COMMENT 'a table' TBLPROPERTIES ('snapshot.num-retained.min' = '3')"), []),
        ("CREATE TABLE water.db.d (id INT)", "already exists"),
        ("CREATE TABLE IF NOT EXISTS water.db.d (id INT)", []),
        ("SHOW TABLES IN water.db", [("db", "d", False)]),
        ("SHOW COLUMNS IN water.db.d", [("id",), ("v",), ("dt",)]),
        ("SHOW TBLPROPERTIES water.db.d ('snapshot.num-retained.min')", [("snapshot.num-retained.min", "3")]),
        ("DESCRIBE water.db.d id", [("col_name", "id"), ("data_type", "bigint"), ("comment", "the id")]),
        ("SHOW PARTITIONS water.db.d", []),
        ("SELECT count(*) FROM water.db.d", [(0,)]),
        ("ALTER TABLE water.db.d ADD COLUMNS (w INT AFTER id, s STRUCT<a: INT>)", []),
        ("ALTER TABLE water.db.d ADD COLUMN s.b STRING", []),
        ("ALTER TABLE water.db.d RENAME COLUMN v TO u", []),
        ("ALTER TABLE water.db.d ALTER COLUMN w TYPE BIGINT", []),
        ("ALTER TABLE water.db.d ALTER COLUMN id DROP NOT NULL", []),
        ("ALTER TABLE water.db.d ALTER COLUMN u COMMENT 'said'", []),
        ("ALTER TABLE water.db.d DROP COLUMN dt", "column 'dt' is a partition key and cannot be dropped"),
        ("ALTER TABLE water.db.d SET TBLPROPERTIES ('bucket-key' = 'nope')", "nope"),
        ("ALTER TABLE water.db.d UNSET TBLPROPERTIES ('snapshot.num-retained.min')", []),
        ("COMMENT ON TABLE water.db.d IS 'other'", []),
        ("DROP TABLE water.db.nope", "cannot be found"),
        ("DROP TABLE IF EXISTS water.db.nope", []),
        ("CREATE TABLE water.nope.t (id INT)", "cannot be found"),
        ("CREATE TABLE water.db.bad (t TIMESTAMP) PARTITIONED BY (days(t))", "only by columns as they are"),
        ("CREATE TABLE water.db.bad (i INT) LOCATION '/x'", "it lies in the warehouse"),
        ("CREATE TABLE water.db.bad (i INT) USING csv", "cannot be made USING csv"),
        ("CREATE TABLE water.db.bad (i INTERVAL DAY)", "which no column of a table can hold"),
    ])  # fmt: skip
    table = lake.table("db.d")
    shown = [(f.name, str(f.type), f.description) for f in table.schema.fields]
    assert shown == [
        ("id", "BIGINT", "the id"), ("w", "BIGINT", None), ("u", "STRING", "said"), ("dt", "DATE", None),
        ("s", "ROW<a INT, b STRING>", None),
    ]  # fmt: skip
    assert (table.schema.comment, table.schema.partition_keys) == ("other", ("dt",))
    assert "snapshot.num-retained.min" not in table.schema.options
    run(session.sql, [
        ("ALTER TABLE water.db.d RENAME TO water.db.e", []),
        ("SHOW TABLES IN water.db", [("db", "e", False)]),
        ("CREATE TABLE water.db.q (id INT) CLUSTERED BY (id) INTO 4 BUCKETS", []),
        ("ALTER TABLE water.db.e RENAME TO q", "already exists"),
        ("DROP TABLE water.db.e", []),
    ])  # fmt: skip
    assert (lake.table("db.q").schema.bucket, lake.table("db.q").schema.bucket_keys) == (4, ("id",))


def test_a_watermark_by_property(session, lake):
    run(session.sql, [
        (("CREATE TABLE water.db.w (at TIMESTAMP, `at 2` TIMESTAMP_NTZ) "
         "TBLPROPERTIES ('watermark' = \"at - INTERVAL '5' SECOND\")"), []),
        ("CREATE TABLE water.db.w2 (at STRING) TBLPROPERTIES ('watermark' = 'at')", "the watermark is about 'at'"),
    ])  # fmt: skip
    assert lake.table("db.w").options["schema.watermark.0.rowtime"] == "at"
    session.sql("ALTER TABLE water.db.w SET TBLPROPERTIES ('watermark' = \"`at 2` - INTERVAL '1' MINUTE\")")
    assert lake.table("db.w").options["schema.watermark.0.strategy.expr"] == "`at 2` - INTERVAL '1' MINUTE"
    session.sql("ALTER TABLE water.db.w UNSET TBLPROPERTIES ('watermark')")
    assert not [key for key in lake.table("db.w").options if "watermark" in key]


def test_views_of_a_table(session, lake):
    table = lake.create_table("db.v", "id BIGINT, dt STRING", partition_by=["dt"])
    first = table.append(pa.table({"id": [1, 2], "dt": ["a", "b"]}))
    table.create_savepoint()
    table.create_tag("good")
    table.alter().add_column("w", "INT").apply()
    table.append(pa.table({"id": [3], "dt": ["a"], "w": [7]}))
    at = f"timestamp_millis({first.time_millis})"
    old = Rows([(1, "a"), (2, "b")])
    # Before Spark 4.3 a catalog is not told the options: there it has the rows of then in the columns of today.
    by_option = Rows([(1, "a", None), (2, "b", None)]) if session.version < "4.3" else old
    run(session.sql, [
        ("SELECT * FROM water.db.v", Rows([(1, "a", None), (2, "b", None), (3, "a", 7)])),
        ("SELECT id FROM water.db.v WHERE dt = 'a' AND id > 1", [(3,)]),
        ("SELECT count(*) FROM water.db.v", [(3,)]),
        ("SELECT * FROM water.db.v VERSION AS OF 1", old),
        ("SELECT * FROM water.db.v VERSION AS OF 'snapshot.1'", old),
        ("SELECT * FROM water.db.v VERSION AS OF 'savepoint.1'", old),
        ("SELECT * FROM water.db.v VERSION AS OF 'good' AS x", old),
        (f"SELECT * FROM water.db.v TIMESTAMP AS OF {at}", old),
        ("SELECT * FROM water.db.v WITH ('scan.tag-name' = 'good')", by_option),
        ("SELECT * FROM water.db.v WITH ('scan.snapshot-id' = '1', 'scan.mode' = 'from-snapshot') WHERE id = 1",
         [(1, "a", None)]),
        ("SELECT x.w FROM water.db.v x JOIN water.db.v VERSION AS OF 1 y ON x.id = y.id + 2", [(7,)]),
        ("SELECT * FROM water.db.v VERSION AS OF 9", "snapshot 9 does not exist in 'db.v'"),
        ("SELECT * FROM water.db.v TIMESTAMP AS OF '2001-01-01'", "hint: ask for 'savepoint.1'"),
        ("SELECT * FROM water.db.`v$branch_nope`", "branch 'nope' does not exist"),
        ("SELECT * FROM water.db.`v$branch_main` VERSION AS OF 1", old),
        ("SELECT snapshot_id, commit_kind FROM water.db.`v$snapshots`", Rows([(1, "APPEND"), (2, "APPEND")])),
        ("SELECT snapshot_id FROM water.db.v.snapshots ORDER BY 1", Rows([(1,), (2,)])),
        ("SELECT sum(record_count) FROM water.db.`v$files` VERSION AS OF 'good'", [(2,)]),
        ("SELECT * FROM water.db.`v$snapshot`", "did you mean 'snapshots'?"),
        ("SELECT count(*) FROM water.sys.tables WHERE table_name = 'v'", [(1,)]),
        ("SELECT * FROM water.sys.tables VERSION AS OF 1", "it has no past"),
        ("SELECT * FROM water.db.nope", "cannot be found"),
        ("INSERT INTO water.db.`v$branch_main` VALUES (4, 'c', 8)", []),
    ])  # fmt: skip
    assert session.read.option("versionAsOf", "good").table("water.db.v").columns == ["id", "dt"]
    assert session.table("water.db.v").where("w = 8").count() == 1


def test_conditions_and_columns_of_a_query_leave_out_files(session, lake):
    table = lake.create_table("db.plan", "id BIGINT, v STRING, dt STRING", partition_by=["dt"])
    for day in ("a", "b"):
        for start in (0, 10):
            table.append(pa.table({"id": [start, start + 1], "v": ["x", "y"], "dt": [day, day]}))
    plan = session.sql("SELECT v FROM water.db.plan WHERE dt = 'a' AND id > 5")
    text = plan._jdf.queryExecution().toString()
    assert "1 files" in text
    assert plan.collect() == [("x",), ("y",)]
    size = plan._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    whole = session.table("water.db.plan")._jdf.queryExecution().optimizedPlan().stats()
    assert 0 < int(str(size)) < int(str(whole.sizeInBytes())) < 1 << 20


def test_the_same_question_of_the_same_snapshot_is_planned_once(session, lake, monkeypatch):
    table = lake.create_table("db.again", "id BIGINT, dt STRING", partition_by=["dt"])
    table.append(pa.table({"id": [1, 2], "dt": ["a", "b"]}))
    made, planned = [], []
    fill, plan = planned_files.filled_index, ScanRequest.plan
    monkeypatch.setattr(planned_files, "filled_index", lambda *a, **k: made.append(1) or fill(*a, **k))
    monkeypatch.setattr(ScanRequest, "plan", lambda self: planned.append(1) or plan(self))
    frames = []  # a statement that is still there keeps what it saw

    def ask(condition):
        made.clear()
        planned.clear()
        frames.append(session.sql(f"SELECT id FROM water.db.again WHERE {condition}"))
        return [row.id for row in frames[-1].collect()], len(made), len(planned)

    assert ask("dt = 'a'")[0] == [1]
    assert ask("dt = 'a'") == ([1], 0, 0)
    assert ask("dt = 'b'") == ([2], 1, 1)
    table.append(pa.table({"id": [3], "dt": ["a"]}))
    assert sorted(ask("dt = 'a'")[0]) == [1, 3]


@pytest.mark.parametrize("door", ["native", "portable"])
def test_the_optimiser_is_told_the_bytes_of_the_columns_that_are_read(session, lake, door):
    """By these it decides which side of a join is small: as of Spark's own tables, with 8 bytes more for a row."""
    table = lake.create_table(f"db.told_{door}", "id INT, a BIGINT, b BIGINT, c STRING")
    table.append(pa.table({"id": [1], "a": [1], "b": [1], "c": ["x"]}, schema=table.writer().schema))
    if door == "portable":
        table.alter().rename_column("a", "older").apply()

    def told(columns):
        plan = session.sql(f"SELECT {columns} FROM water.db.told_{door}")._jdf.queryExecution()
        leaf = plan.optimizedPlan().collectLeaves().head()
        return int(str(leaf.stats().sizeInBytes())), "portable door" in plan.toString()

    whole, renamed = table.scan().plan().report.bytes, table.schema.fields[1].name
    assert told("*") == (whole, door == "portable")
    assert told(f"{renamed}, c") == (whole * 36 // 48, door == "portable")
    assert told("id") == (whole * 12 // 48, False)
    assert told("1") == (whole * 8 // 48, False)


def test_procedures(session, lake):
    table = lake.create_table("db.p", "id BIGINT, dt STRING", partition_by=["dt"])
    for start in range(3):
        table.append(pa.table({"id": [start], "dt": ["a"]}))
    run(session.sql, [
        ("CALL water.sys.create_tag(table => 'db.p', tag => 'good', snapshot => '2')", [("good", 2, 2)]),
        ("CALL water.sys.create_tag('db.p', 'good')", "tag 'good' exists already"),
        ("CALL water.sys.rename_tag('water.db.p', 'good', 'better')", [("better", 2, 2)]),
        ("CALL water.sys.replace_tag('db.p', 'better', 3)", [("better", 3, 3)]),
        ("CALL water.sys.delete_tag('db.p', 'better')", [("better", 3, 3)]),
        ("CALL water.sys.delete_tag('db.p', 'better')", "does not exist"),
        ("CALL water.sys.delete_tag('db.p', NULL)", "needs the argument 'tag'"),
        ("SELECT savepoint_id, id FROM water.db.`p$savepoints` RIGHT JOIN range(1) ON true", [(None, 0)]),
        ("CALL water.sys.compact(table => 'db.p', full => true, partitions => \"dt = 'b'\")",
         [(None, 0, 0, 0, 0, 0, 0)]),
        ("CALL water.sys.sort_compact(table => 'db.p', order_by => 'nope')", "nope"),
        ("CALL water.sys.rollback(table => 'db.p', to => '1')", [(1, 4, 2, 0, 0)]),
        ("SELECT id FROM water.db.p", [(0,)]),
        ("CALL water.sys.expire_partitions(table => 'db.p', older_than => '1 d', dry_run => true)", []),
        ("CALL water.sys.mark_partition_done('db.p', \"dt = 'b'\")", "has rows"),
        ("CALL water.sys.expire_snapshots(table => 'db.p', retain_max => 2, retain_min => 1, dry_run => true)",
         None),
        ("CALL water.sys.remove_orphan_files(table => 'db.p', dry_run => true)", [(None, 0, 0, 0, 0)]),
        ("CALL water.sys.maintain('db.p', true)", None),
        ("CALL water.sys.health('db.p')", None),
        ("CALL water.sys.reset_consumer('db.p', 'me')", "consumer 'me' does not exist"),
        ("CALL water.sys.lineage_impact('db.p', '2')", [(0, "table", "db.p", 2, 2, None)]),
        ("CALL water.sys.compactt('db.p')", "did you mean 'compact'?"),
        ("CALL water.db.compact('db.p')", "procedures are in water.sys"),
        ("CALL water.sys.compact('db.nope')", "table 'db.nope' does not exist in catalog 'water'"),
    ])  # fmt: skip
    assert session.sql("CALL water.sys.create_savepoint('db.p')").collect()[0].saved_snapshot_id == 4
    assert session.sql("CALL water.sys.delete_savepoint('db.p', 1)").count() == 1


def test_what_is_cached_is_read_again_when_rows_change(session, lake):
    session.sql("CREATE TABLE water.db.cached (id INT)")
    session.sql("INSERT INTO water.db.cached VALUES (1)")
    session.sql("CACHE TABLE water.db.cached")
    count = "SELECT count(*) FROM water.db.cached"
    run(session.sql, [
        (count, [(1,)]),
        ("INSERT INTO water.db.cached VALUES (2)", []),
        (count, [(2,)]),
        ("CALL water.sys.create_tag(table => 'db.cached', tag => 'two')", None),
        ("CALL water.sys.create_branch(table => 'db.cached', branch => 'fix', tag => 'two')", None),
        ("CALL water.sys.rollback(table => 'db.cached', to => '1')", None),
        (count, [(1,)]),
    ])  # fmt: skip
    assert session.catalog.isCached("water.db.cached")
    run(session.sql, [
        ("CALL water.sys.replace_main_branch(table => 'db.cached', branch => 'fix')", None),
        (count, [(2,)]),
        ("CALL water.sys.undo_replace(table => 'db.cached')", None),
        (count, [(1,)]),
    ])  # fmt: skip
    lake.table("db.cached").append(pa.table({"id": pa.array([3], pa.int32())}))
    session.catalog.refreshTable("water.db.cached")
    run(session.sql, [(count, [(2,)]), ("UNCACHE TABLE IF EXISTS water.db.cached", [])])


def test_buckets_are_not_sorted_by_the_table(session):
    frame = session.range(3).write.bucketBy(2, "id").sortBy("id")
    with pytest.raises(Exception, match=r"leave sortBy out.*sort_compact"):
        frame.saveAsTable("water.db.sorted")


def test_names_that_spark_has_itself_are_left_to_it(spark, place, caplog):
    with pytest.raises(anabranch.InvalidNameError):
        anabranch.spark.attach(spark.newSession(), place, catalog="spark_catalog")
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.taken", "org.example.Catalog")
    anabranch.spark.attach(other, place, catalog="taken")
    assert "the session has a catalog 'taken' of its own" in caplog.text


def test_a_number_that_another_engine_gave_again_is_of_other_rows(session, lake, place):
    """Java rolls back by deleting snapshots, whose numbers come again."""
    session.sql("CREATE TABLE water.db.given_again (id INT)")
    session.sql("INSERT INTO water.db.given_again VALUES (1)")
    session.sql("INSERT INTO water.db.given_again VALUES (2)")
    held = session.table("water.db.given_again").cache()
    assert sorted(held.collect()) == [(1,), (2,)]
    folder = Path(place, "db.db", "given_again", "snapshot")
    (folder / "snapshot-2").unlink()
    (folder / "LATEST").write_text("1")
    session.sql("INSERT INTO water.db.given_again VALUES (3)")
    assert lake.table("db.given_again").snapshot.id == 2
    assert sorted(session.table("water.db.given_again").collect()) == [(1,), (3,)]
    assert sorted(session.sql("SELECT * FROM water.db.given_again").collect()) == [(1,), (3,)]
    held.unpersist()


def test_a_table_is_given_to_spark_once_while_it_is_the_same(session):
    session.sql("CREATE TABLE water.db.same (id INT)")

    levels = session.sparkContext._gateway.new_array(session._jvm.java.lang.String, 1)
    levels[0] = "db"

    def given():
        catalog = session._jsparkSession.sessionState().catalogManager().catalog("water")
        found = session._jvm.org.apache.spark.sql.connector.catalog.Identifier.of(levels, "same")
        return catalog.loadTable(found)

    def is_same(one, other):
        system = session._jvm.java.lang.System
        return system.identityHashCode(one) == system.identityHashCode(other)

    first = given()
    assert is_same(first, given())
    session.sql("INSERT INTO water.db.same VALUES (1)")
    second = given()
    assert not is_same(first, second)
    assert not first.equals(second)
    assert is_same(second, given())
    session.sql("ALTER TABLE water.db.same ADD COLUMN v STRING")
    assert not is_same(second, given())
    assert [column.name() for column in given().columns()] == ["id", "v"]


def test_subqueries_that_read_other_columns_are_read_at_once(session, lake):
    """As Spark does with its own files: since 4.3 where a table says that it may."""
    table = lake.create_table("db.merged", "id BIGINT, a BIGINT, b BIGINT, dt STRING", partition_by=["dt"])
    for start in (0, 10):
        ids = list(range(start, start + 10))
        table.append(pa.table({"id": ids, "a": ids, "b": [-i for i in ids], "dt": ["x"] * 5 + ["y"] * 5}))
    text = """SELECT (SELECT count(*) FROM water.db.merged WHERE id BETWEEN 3 AND 12 AND dt = 'x'),
        (SELECT sum(a) FROM water.db.merged WHERE id BETWEEN 3 AND 12 AND dt = 'x'),
        (SELECT min(b) FROM water.db.merged WHERE id BETWEEN 3 AND 12 AND dt = 'x'),
        (SELECT max(a) FROM water.db.merged WHERE id > 15)"""
    frame = session.sql(text)
    assert frame.collect() == [(5, 3 + 4 + 10 + 11 + 12, -12, 19)]
    known = session._jvm.org.apache.spark.sql.connector.catalog.TableCapability.values()
    merges = "SCAN_MERGING" in {capability.name() for capability in known}
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    scans = {line.partition("RelationV2")[2] for line in plan.splitlines() if "RelationV2" in line}
    assert len(scans) == (2 if merges else 4), plan


def ids(frame):
    return sorted(row.id for row in frame.collect())


@pytest.fixture
def to_correct(lake, request):
    """A table with a branch that is to become main; each test has one of its own."""
    name = f"db.{request.function.__name__[-20:].strip('_')}"
    table = lake.create_table(name, "id BIGINT NOT NULL")
    table.append([{"id": 1}])
    table.create_tag("good")
    table.create_savepoint()
    table.append([{"id": 2}])
    table.create_tag("wrong")
    table.create_branch("fix", "good")
    table.branch("fix").append([{"id": 3}])
    return name, table


def test_what_was_opened_before_a_replacement_goes_on_with_the_new_main(session, lake, to_correct, tmp_path):
    """Of a table with another id, Spark refuses what was opened before: also the static side of a running stream."""
    name, table = to_correct
    lake.create_table("db.stream", "id BIGINT NOT NULL").append([{"id": 10}])
    opened = session.table(f"water.{name}")
    statement = session.sql(f"SELECT id FROM water.{name}")

    def now(frame):
        return ids(frame.where("id > 0"))  # a frame that was collected keeps its plan

    seen = []
    joined = session.readStream.table("water.db.stream").crossJoin(opened.withColumnRenamed("id", "other"))
    query = (
        joined.writeStream.foreachBatch(lambda rows, _: seen.append(sorted(map(tuple, rows.collect()))))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert (now(opened), now(statement), seen) == ([1, 2], [1, 2], [[(10, 1), (10, 2)]])
        table.replace_main_branch("fix")
        assert (now(opened), now(statement), opened.where("id > 2").count()) == ([1, 3], [1, 3], 1)
        lake.table("db.stream").append([{"id": 20}])
        query.processAllAvailable()
        assert seen[1:] == [[(20, 1), (20, 3)]]
    finally:
        query.stop()
    table.undo_replace()
    assert now(opened) == [1, 2]


def test_moments_of_main_have_the_same_names_in_all_ways_to_read(session, to_correct):
    name, table = to_correct
    table.replace_main_branch("fix")
    table.create_tag("right")
    read = {
        "main@1.wrong": [1, 2], "main@1.good": [1], "main@1.snapshot.2": [1, 2], "main@1.savepoint.1": [1],
        "main.snapshot.2": [1, 3], "main.good": [1], "main.right": [1, 3], "main.savepoint.1": [1],
    }  # fmt: skip
    for moment, expected in read.items():
        assert ids(session.sql(f"SELECT id FROM water.{name} WITH ('scan.version' = '{moment}')")) == expected
        assert ids(session.read.option("scan.version", moment).table(f"water.{name}")) == expected
        assert ids(session.sql(f"SELECT id FROM water.{name} VERSION AS OF '{moment}'")) == expected
