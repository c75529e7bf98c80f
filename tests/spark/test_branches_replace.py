"""Replacing main under Spark's streams: the old job is fenced, the corrected one goes on, readers cross over."""

import pytest

import anabranch
from anabranch.lineage.model import TableInput, lineage_of
from tests.spark.stream_queries import Stream, failing
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

pytestmark = [pytest.mark.spark, pytest.mark.versions]

SCHEMA = "id BIGINT NOT NULL, v STRING"


@pytest.fixture
def story(lake, spark, warehouse, tmp_path):
    """A job copies `src` to `dst` in batches 0 to 2, the last two wrong; the corrected one begins after batch 0."""
    src, dst = lake.create_table("db.src", SCHEMA), lake.create_table("db.dst", SCHEMA)
    old, fixed = (Stream(spark, warehouse, tmp_path / name) for name in ("old", "fixed"))
    for number in range(3):
        src.append(rows(number * 10, 2))
        frame = old.source()
        wrong = frame.selectExpr("id + 1000 AS id", "v") if number else frame
        old.run(wrong, query="clean")
        if not number:
            dst.create_tag("good")
    dst.create_branch("fix", "good")
    fixed.run(corrected(fixed), "db.dst$branch_fix", query="clean")
    return src, dst, old, fixed


def corrected(stream):
    return stream.source(scan__mode="from-snapshot", scan__snapshot_id=2)


@pytest.mark.long
def test_the_old_job_is_fenced_and_the_corrected_one_goes_on(story):
    src, dst, old, fixed = story
    assert ids_of(dst) == [0, 1, 1010, 1011, 1020, 1021]
    result = dst.replace_main_branch("fix", wait="1 min")
    assert (result.fork, result.old_snapshot) == (1, 3)
    assert ids_of(dst) == [0, 1, 10, 11, 20, 21]
    src.append(rows(30, 2))
    assert "Its rows come from the job 'clean'" in failing(lambda: old.run(old.source(), query="clean"))
    follow = {"sink.on-replace": "follow"}
    assert "a job of the same name" in failing(lambda: old.run(old.source(), query="clean", **follow))
    # It goes on by the name of its branch, and by that of the table.
    fixed.run(corrected(fixed), "db.dst$branch_fix", query="clean")
    src.append(rows(40, 2))
    fixed.run(corrected(fixed), query="clean")
    assert ids_of(dst) == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]
    dst.undo_replace()
    old.run(old.source().selectExpr("id + 1000 AS id", "v"), query="clean")
    assert ids_of(dst) == [0, 1, *(1000 + i for i in (10, 11, 20, 21, 30, 31, 40, 41))]


@pytest.mark.long
def test_a_job_with_other_events_may_follow(lake, spark, warehouse, tmp_path, story):
    _, dst, _, _ = story
    other = lake.create_table("db.other", SCHEMA)
    third = Stream(spark, warehouse, tmp_path / "third")
    other.append(rows(500, 1))
    third.run(third.source("db.other"), query="third")
    dst.replace_main_branch("fix")
    other.append(rows(501, 1))
    assert "was replaced by branch 'fix'" in failing(
        lambda: third.run(third.source("db.other"), query="third")
    )
    for _ in range(2):
        third.run(third.source("db.other"), query="third", **{"sink.on-replace": "follow"})
    assert ids_of(dst) == [0, 1, 10, 11, 20, 21, 501]
    assert dst.snapshot.commit_user == f"third@{dst.branch_uuid}"


def _replacing(warehouse, name):
    """Passes rows on, and puts a branch in the place of main in the middle of a batch; once."""

    def passed(batches):
        yield from batches
        dst = anabranch.connect(warehouse).table("db.dst")
        if dst.context.branch != name:
            dst.replace_main_branch(name)

    return passed


def test_main_is_replaced_in_the_middle_of_a_batch(lake, spark, warehouse, tmp_path):
    src, dst = lake.create_table("db.src", SCHEMA), lake.create_table("db.dst", SCHEMA)
    query = Stream(spark, warehouse, tmp_path / "query")
    src.append(rows(0, 1))
    query.run(query.source(), query="copy")
    dst.create_tag("good")
    for name in ("fix", "other"):
        dst.create_branch(name, "good")
    src.append(rows(2, 1))

    def replaced(name, **options):
        frame = query.source().mapInPandas(_replacing(str(warehouse), name), "id long, v string")
        query.run(frame, query="copy", **options)

    # The message says what to do, and nothing of a new checkpoint, which begins the sources anew.
    assert "restart it with sink.on-replace=follow" in failing(lambda: replaced("fix"))
    assert ids_of(dst) == [0]
    dst.undo_replace()
    replaced("other", **{"sink.on-replace": "follow"})
    assert ids_of(dst) == [0, 2]


@pytest.mark.parametrize("expired", first_short([True, False]), ids=["expired", "there"])
def test_a_job_that_follows_does_not_write_again_what_the_new_main_has(
    lake, spark, warehouse, tmp_path, expired
):
    src, dst = lake.create_table("db.src", SCHEMA), lake.create_table("db.dst", SCHEMA)
    old, fixed = (Stream(spark, warehouse, tmp_path / name) for name in ("old", "fixed"))
    src.append(rows(0, 1))
    old.run(old.source(), query="old")
    dst.create_tag("good")
    dst.create_branch("fix", "good")
    src.append(rows(10, 1))
    fixed.run(corrected(fixed), "db.dst$branch_fix", query="fixed")
    dst.replace_main_branch("fix")
    if expired:
        for number in (100, 101):
            dst.append(rows(number, 1))
        dst.expire_snapshots(retain_max=2, retain_min=2)
    before = ids_of(dst)
    follow = {"sink.on-replace": "follow"}
    assert "has events of the same range" in failing(lambda: old.run(old.source(), query="old", **follow))
    assert ids_of(dst) == before
    assert before.count(10) == 1


@pytest.mark.long
def test_a_stream_of_main_crosses_over(lake, spark, warehouse, tmp_path, story):
    _, dst, _, _ = story
    out = lake.create_table("db.out", SCHEMA)
    reader = Stream(spark, warehouse, tmp_path / "reader")
    reader.run(reader.source("db.dst"), "db.out", query="read")
    before = ids_of(out)
    dst.replace_main_branch("fix")
    dst.append(rows(70, 1))
    told = failing(lambda: reader.run(reader.source("db.dst"), "db.out", query="read"))
    assert "scan.on-replace is 'fail'" in told
    assert ids_of(out) == before
    for _ in range(2):
        reader.run(reader.source("db.dst", scan__on_replace="replay"), "db.out", query="read")
    assert ids_of(out) == sorted([*before, 10, 11, 20, 21, 70])
    dst.append(rows(71, 1))
    reader.run(reader.source("db.dst"), "db.out", query="read")
    assert ids_of(out) == sorted([*before, 10, 11, 20, 21, 70, 71])
    (last,) = lineage_of(out.snapshot.properties, where="out").inputs
    assert isinstance(last, TableInput)
    assert last.branch_uuid == dst.branch_uuid


@pytest.mark.long
def test_statements(spark, lake, warehouse, story):
    _, dst, _, _ = story
    attached = anabranch.connect(warehouse, spark=spark)
    done = attached.sql("CALL sys.replace_main_branch(table => 'db.dst', branch => 'fix')").collect()
    assert [tuple(row) for row in done] == [("fix", 1, "main@1", 1, 3, 2)]
    read = attached.sql("SELECT id FROM db.dst ORDER BY id").collect()
    assert [row.id for row in read] == [0, 1, 10, 11, 20, 21]
    old = attached.sql("SELECT id FROM db.dst VERSION AS OF 'main@1.snapshot.3' ORDER BY id").collect()
    assert [row.id for row in old] == [0, 1, 1010, 1011, 1020, 1021]
    with pytest.raises(anabranch.AnabranchError, match="AMBIGUOUS_SNAPSHOT"):
        attached.sql("SELECT * FROM db.dst VERSION AS OF 2")
    former = attached.sql("SELECT count(*) AS n FROM db.`dst$branch_main@1`").collect()
    assert former[0].n == 6
    attached.sql("INSERT INTO db.dst VALUES (99, 'new')")
    assert ids_of(dst.branch("fix")) == [0, 1, 10, 11, 20, 21, 99]
    attached.sql("CALL sys.undo_replace(table => 'db.dst')")
    assert ids_of(dst) == [0, 1, 1010, 1011, 1020, 1021]
