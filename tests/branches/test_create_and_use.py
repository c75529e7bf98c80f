"""Whatever can be done with a table can be done with a branch of it, by its name or an option, and main sees none of it."""

import itertools

import pytest

import anabranch
from anabranch.errors import NotFoundError
from tests.support.tables import ids_of, rows

_names = itertools.count()


@pytest.fixture
def lake():
    return anabranch.connect(f"memory://used{next(_names)}")


def branched(lake, schema="id BIGINT NOT NULL, v STRING", **how):
    """Three rows on main, and a branch that begins with them."""
    table = lake.create_table("db.t", schema, **how)
    for n in range(3):
        table.append(rows(n, 1))
    table.create_branch("fix", snapshot=3)
    return table


def test_by_name_and_by_option(lake):
    table = branched(lake)
    views = [
        table.branch("fix"),
        lake.table("db.t$branch_fix"),
        table.with_options({"branch": "fix"}),
        lake.table("db.t").with_options({"branch": "fix"}),
        lake.table("db.t$branch_fix").branch("main").branch("fix"),
    ]
    for n, view in enumerate(views):
        assert view.name == "db.t$branch_fix"
        view.append(rows(100 + n, 1))
    assert [ids_of(view) for view in views] == [[0, 1, 2, 100, 101, 102, 103, 104]] * 5
    assert ids_of(table.branch("main")) == ids_of(lake.table("db.t")) == [0, 1, 2]
    for name in ("db.t$branch_nope", "db.nope$branch_fix"):
        with pytest.raises(NotFoundError):
            lake.table(name)
    with pytest.raises(NotFoundError, match="branches there are: main, fix"):
        table.with_options({"branch": "nope"})


def test_writing(lake):
    fix = branched(lake).branch("fix")
    fix.overwrite(rows(100, 2))
    fix.append(rows(102, 1))
    assert ids_of(fix) == [100, 101, 102]
    assert [s.commit_kind.value for s in fix.snapshots()] == ["APPEND", "OVERWRITE", "APPEND"]
    assert ids_of(lake.table("db.t")) == [0, 1, 2]


def test_moments(lake):
    table = branched(lake)
    fix = table.branch("fix")
    fix.append(rows(100, 1))
    fix.create_tag("own")
    saved = fix.create_savepoint()
    fix.append(rows(101, 1))
    for version in (4, "snapshot.4", "own", f"savepoint.{saved.id}"):
        assert ids_of(fix.at(version)) == [0, 1, 2, 100]
    assert ids_of(fix.at("fix")) == ids_of(fix.at(3)) == [0, 1, 2]
    for version in (4, "own", f"savepoint.{saved.id}"):
        with pytest.raises(NotFoundError):
            table.at(version)
    assert table.create_savepoint().id == saved.id + 1, "numbers are the table's"
    assert ([s.id for s in fix.savepoints()], [s.id for s in table.savepoints()]) == ([1], [2])
    fix.rename_tag("own", "mine")
    fix.replace_tag("mine", 3)
    assert ids_of(fix.tag("mine")) == [0, 1, 2]
    fix.delete_tag("mine")
    assert (fix.tags(), table.tags()) == (["fix"], ["fix"])
    fix.rollback("savepoint.1")
    assert ids_of(fix) == [0, 1, 2, 100]


def test_tags_and_savepoints_made_by_jobs(lake):
    table = branched(lake)
    fix = table.branch("fix")
    options = {"tag.automatic-creation": "batch", "savepoint.create-interval": "1 ms"}
    fix.with_options(options).append(rows(100, 1))
    assert [fix.tag(tag).snapshot.id for tag in fix.tags() if tag != "fix"] == [4]
    assert [s.saved_snapshot_id for s in fix.savepoints()] == [4]
    assert (table.tags(), table.savepoints()) == (["fix"], [])


def test_reading_as_a_stream(lake):
    table = branched(lake)
    fix = table.branch("fix")
    fix.append(rows(100, 1))
    table.append(rows(3, 1))
    assert _followed(fix.tail(consumer="etl", idle=0)) == [0, 1, 2, 100]
    fix.append(rows(101, 2))
    table.append(rows(4, 1))
    assert _followed(fix.tail(consumer="etl", idle=0)) == [101, 102]
    assert fix.changes(3).to_arrow()["id"].to_pylist() == [100, 101, 102]
    assert [c["consumer_id"] for c in fix.system("consumers").to_pylist()] == ["etl"]
    assert table.system("consumers").num_rows == 0


def _followed(tail):
    return [i for batch in tail for i in batch["id"].to_pylist()]


def test_maintenance(lake):
    table = branched(lake, options={"compaction.min.file-num": "2"})
    fix = table.branch("fix")
    for n in range(4):
        fix.append(rows(100 + n, 1))
    files = fix.system("files").num_rows
    fix.compact(full=True)
    assert fix.system("files").num_rows < files
    fix.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert len([*fix.snapshots()]) == 2
    fix.maintain()
    fix.remove_orphan_files(older_than="0 s")
    assert ids_of(fix) == [0, 1, 2, 100, 101, 102, 103]
    assert (ids_of(table), len([*table.snapshots()])) == ([0, 1, 2], 3)


def test_schemas_and_options(lake):
    table = branched(lake)
    fix = table.branch("fix")
    fix.alter().add_column("n", "INT").rename_column("v", "w").set_option("write-only", "true").apply()
    fix.append([{"id": 100, "w": "x", "n": 1}])
    assert fix.scan().to_arrow().to_pylist()[-1] == {"id": 100, "w": "x", "n": 1}
    assert fix.scan(filter="n IS NULL").to_arrow()["w"].to_pylist() == ["v0", "v1", "v2"]
    assert [f.name for f in table.schema.fields] == ["id", "v"]
    assert "write-only" not in table.options
    table.alter().add_column("other", "STRING").apply()
    table.append([{"id": 3, "v": "v3", "other": "y"}])
    assert [f.name for f in lake.table("db.t$branch_fix").schema.fields] == ["id", "w", "n"]


def test_queues_and_partitions(lake):
    schema = "id BIGINT NOT NULL, v STRING, dt STRING"
    table = lake.create_table(
        "db.t", schema, partition_by=["dt"], options={"bucket": "2", "bucket-key": "id"}
    )
    table.append([{"id": 1, "v": "a", "dt": "x"}, {"id": 2, "v": "b", "dt": "y"}])
    table.create_branch("fix", snapshot=1)
    fix = table.branch("fix")
    fix.overwrite([{"id": 3, "v": "c", "dt": "x"}], {"dt": "x"})
    fix.append([{"id": 4, "v": "d", "dt": "z"}])
    assert ids_of(fix) == [2, 3, 4]
    assert ids_of(table) == [1, 2]
    assert fix.system("buckets").num_rows == 3


def test_system_tables(lake):
    table = branched(lake)
    fix = table.branch("fix")
    fix.append(rows(100, 1))
    (row,) = table.system("branches").to_pylist()
    assert (row["branch_name"], row["created_from_tag"], row["first_snapshot_id"]) == ("fix", "fix", 3)
    assert (row["latest_snapshot_id"], row["record_count"], row["state"]) == (4, 4, "ready")
    assert (row["rows_ahead"], row["rows_behind"], row["branch_uuid"]) == (1, 0, fix.branch_uuid)
    assert fix.system("branches").to_pylist() == table.system("branches").to_pylist()
    assert sorted(fix.system("snapshots")["snapshot_id"].to_pylist()) == [3, 4]
    assert [tag["tag_name"] for tag in fix.system("tags").to_pylist()] == ["fix"]


def test_a_dropped_table_takes_its_branches_with_it(lake):
    branched(lake)
    lake.drop_table("db.t")
    table = branched(lake)
    assert table.branches() == ["fix"]
    lake.drop_table("db.t")
    lake.create_table("db.t", "id BIGINT")
    assert lake.table("db.t").branches() == []


def test_a_branch_moves_with_its_table(lake):
    branched(lake).branch("fix").append(rows(100, 1))
    lake.rename_table("db.t", "db.u")
    assert ids_of(lake.table("db.u$branch_fix")) == [0, 1, 2, 100]
