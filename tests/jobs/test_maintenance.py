"""`run --maintain`: tables of jobs stay within bounds, and checkpoints that no job can go on with are removed."""

import os
import shutil

import pytest

import anabranch
from anabranch.jobs import maintenance
from anabranch.jobs.checkpoint import Beginning, all_checkpoints, default_checkpoint
from anabranch.jobs.job import job
from anabranch.jobs.maintenance import Keeping, keeping_of, remove_gone_checkpoints
from tests.support.tables import make_table, rows

OLD = 1_600_000_000


@job("clean", sources={"raw": "db.raw"}, sink="db.orders")
def clean(raw):
    return raw


@pytest.fixture
def lake(tmp_path):
    for name in ("raw", "orders"):
        make_table(tmp_path, f"db.{name}", options={"write-only": "true", "snapshot.num-retained.max": "3"})
    return anabranch.connect(str(tmp_path))


def many(table, count=12):
    for number in range(count):
        table.append(rows(number, 1))


def test_tables_that_are_read_and_written_stay_within_bounds(lake):
    told = []
    for name in ("db.raw", "db.orders"):
        many(lake.table(name))
    keeping = keeping_of(lake.url, [clean], None, told.append)
    keeping.round()
    for name in ("db.raw", "db.orders"):
        assert len(list(lake.table(name).snapshots())) == 3
        assert lake.table(name).scan().count() == 12
    assert told == []


def test_what_goes_wrong_is_told_once_and_the_others_are_maintained(lake, tmp_path):
    told = []
    many(lake.table("db.orders"))
    keeping = keeping_of(lake.url, [clean], None, told.append)
    away = tmp_path / "away"
    shutil.move(tmp_path / "db.db" / "raw", away)
    keeping.round()
    keeping.round()
    assert len(list(lake.table("db.orders").snapshots())) == 3
    (said,) = told
    assert said.startswith("maintenance of db.raw: ")
    shutil.move(away, tmp_path / "db.db" / "raw")
    keeping.round()
    assert told[1:] == ["maintenance of db.raw works again"]


def begun(lake, name, table, branch=None, *, old=True, kept=False):
    """The checkpoint of a job that wrote to a branch, last touched long ago."""
    checkpoint = default_checkpoint(lake.url, name, branch, {})
    sink = lake.table(table) if branch is None else lake.table(table).branch(branch)
    checkpoint.beginning(lambda: Beginning(name, sink.table_uuid, sink.branch_uuid))
    checkpoint.storage.put("metadata", b"{}")
    if kept:
        checkpoint.storage.put("anabranch/kept/3/commits/3", b"")
    if old:
        for folder, _, names in os.walk(checkpoint.location):
            for one in names:
                os.utime(os.path.join(folder, one), (OLD, OLD))
    return checkpoint


def there(lake):
    return {checkpoint.location.rpartition("/")[2] for checkpoint in all_checkpoints(lake.url, {})}


def test_checkpoints_of_branches_and_tables_that_are_gone_are_removed(lake, tmp_path):
    raw = lake.table("db.raw")
    raw.append(rows(0, 1))
    raw.create_tag("good")
    for name in ("dropped", "stays", "fresh", "keeps", "became-main"):
        raw.create_branch(name, "good")
    make_table(tmp_path, "db.brief")
    for args in (
        ("clean", "db.orders"),
        ("a", "db.raw", "dropped"),
        ("a", "db.raw", "stays"),
        ("a", "db.raw", "became-main"),
        ("b", "db.brief"),
    ):
        begun(lake, *args)
    begun(lake, "a", "db.raw", "fresh", old=False)
    begun(lake, "a", "db.raw", "keeps", kept=True)
    begun(lake, "a", "db.raw")  # of the main that is replaced
    for name in ("dropped", "fresh", "keeps"):
        raw.delete_branch(name)
    raw.replace_main_branch("became-main")
    lake.drop_table("db.brief")
    before = there(lake)
    told = []
    assert {one.location.rpartition("/")[2] for one in remove_gone_checkpoints(lake, dry_run=True)} == {
        "a@dropped",
        "b",
    }
    assert there(lake) == before
    Keeping(lake, [], told.append).round()
    assert before - there(lake) == {"a@dropped", "b"}
    assert len(told) == 2
    assert any("the branch of 'db.raw' that it wrote to is gone" in line for line in told)


def test_a_table_of_the_same_name_is_another_one(lake, tmp_path):
    make_table(tmp_path, "db.brief")
    begun(lake, "b", "db.brief")
    lake.drop_table("db.brief")
    make_table(tmp_path, "db.brief")
    assert [one.job for one in remove_gone_checkpoints(lake)] == ["b"]


def test_where_a_table_cannot_be_opened_nothing_is_removed(lake, tmp_path):
    begun(lake, "clean", "db.orders")
    (tmp_path / "db.db" / "orders" / "schema" / "schema-0").write_text("damaged")
    with pytest.raises(anabranch.errors.AnabranchError):
        remove_gone_checkpoints(lake)
    assert there(lake) == {"clean"}
    assert maintenance.QUIET_MILLIS == 604_800_000
