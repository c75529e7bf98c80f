"""Partitions are marked as done by a file in their folder, as schedulers know it from Paimon."""

import datetime as dt
import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.maintenance.expire_partitions import expire_partitions
from tests.support.faults import FaultyStorage, lose_answer, no_space


@pytest.fixture
def table(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "id BIGINT, day DATE, kind STRING", partition_by=["day", "kind"])
    day = dt.date(2026, 1, 1)
    rows = [(1, day, "a"), (2, day, None), (3, day + dt.timedelta(1), "a b/c")]
    table.append([dict(zip(("id", "day", "kind"), row, strict=True)) for row in rows])
    return table


def marks(tmp_path):
    home = tmp_path / "db.db/t"
    return {
        str(path.parent.relative_to(home)): json.loads(path.read_text()) for path in home.rglob("_SUCCESS")
    }


def folders_of_data(tmp_path):
    home = tmp_path / "db.db/t"
    return {str(path.parent.parent.relative_to(home)) for path in home.rglob("data-*.parquet")}


def test_the_mark_lies_where_the_files_lie(table, tmp_path):
    assert len(table.mark_partition_done("day >= '2026-01-01'")) == 3
    assert {*marks(tmp_path)} == folders_of_data(tmp_path)


def test_marking_again_keeps_the_first_time(table, tmp_path):
    [done] = table.mark_partition_done({"day": "2026-01-02"})
    assert done.partition == "day=2026-01-02/kind=a b%2Fc"
    [(_, first)] = marks(tmp_path).items()
    assert first["creationTime"] == first["modificationTime"] == round(done.marked.timestamp() * 1000)
    (tmp_path / "db.db/t" / done.path).write_text(json.dumps({"creationTime": 5, "modificationTime": 6}))
    [again] = table.mark_partition_done([{"day": dt.date(2026, 1, 2), "kind": "a b/c"}])
    [(_, second)] = marks(tmp_path).items()
    assert second == {"creationTime": 5, "modificationTime": round(again.marked.timestamp() * 1000)}
    assert again.first_marked.timestamp() == 0.005


DAMAGED = {
    "empty": b"",
    "no text": b"\xff",
    "no object": b"[]",
    "no number": b'{"creationTime": "x"}',
    "no time": b'{"creationTime": 1e999}',
    "endless number": b'{"creationTime": ' + b"9" * 5000 + b"}",
    "deep": b"[" * 4000,
    "deep and long": b"[" * 200_000,
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_mark_that_cannot_be_read_is_made_anew(table, tmp_path, damaged):
    [done] = table.mark_partition_done({"day": "2026-01-02"})
    (tmp_path / "db.db/t" / done.path).write_bytes(damaged)
    [again] = table.mark_partition_done({"day": "2026-01-02"})
    assert again.first_marked == again.marked


def test_a_mark_is_read_only_as_far_as_one_can_be_long(table, tmp_path):
    [done] = table.mark_partition_done({"day": "2026-01-02"})
    long = b'{"creationTime": 5, "rest": "' + b"x" * 50_000_000 + b'"}'
    (tmp_path / "db.db/t" / done.path).write_bytes(long)
    tracemalloc.start()
    [again] = table.mark_partition_done({"day": "2026-01-02"})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again.first_marked == again.marked
    assert most < len(long) / 2


def test_a_mark_that_leads_to_nothing_readable_is_made_anew(table, tmp_path):
    [done] = table.mark_partition_done({"day": "2026-01-02"})
    path = tmp_path / "db.db/t" / done.path
    path.unlink()
    path.symlink_to("_SUCCESS")
    [again] = table.mark_partition_done({"day": "2026-01-02"})
    assert again.first_marked == again.marked
    assert len(marks(tmp_path)) == 1


def test_nobody_else_takes_notice_of_it(table, tmp_path):
    before = table.scan().to_arrow()
    table.mark_partition_done("kind = 'a'")
    table.compact(full=True)
    cleaned = table.remove_orphan_files("0 s")
    assert cleaned.files.height == 0
    assert len(marks(tmp_path)) == 1
    assert table.verify(deep=True).ok
    assert table.scan().to_arrow().sort_by("id") == before.sort_by("id")


def test_a_partition_that_expires_loses_its_mark(table, tmp_path):
    table.append([{"id": 9, "day": dt.date(2999, 1, 1), "kind": "a"}])
    table.mark_partition_done("kind = 'a' or kind is null")
    assert len(marks(tmp_path)) == 3
    table.expire_partitions("1 d", dry_run=True)
    assert len(marks(tmp_path)) == 3
    table.expire_partitions("1 d")
    assert [folder.rpartition("/")[2] for folder in marks(tmp_path)] == ["kind=a"]


@pytest.mark.parametrize("call", ["delete_many", "put_many", "put_if_absent"])
@pytest.mark.parametrize("lost", [no_space, lose_answer], ids=lambda fault: fault.__name__)
def test_no_mark_is_left_of_what_is_gone(table, tmp_path, call, lost):
    """A partition that is waited for again is found; a mark without rows would be believed."""
    table.mark_partition_done("kind = 'a'")
    storage = FaultyStorage(table.context.storage, [lost(call)])
    failing = anabranch.Table(replace(table.context, storage=storage))
    with suppress(anabranch.AnabranchError):
        failing.expire_partitions("1 d")
    assert storage.counts()[call]
    again = anabranch.connect(str(tmp_path)).table("db.t")
    assert again.scan().count() == 3 or marks(tmp_path) == {}


def test_a_branch_takes_no_mark_of_main_away(table, tmp_path):
    table.mark_partition_done("kind = 'a'")
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").append([{"id": 9, "day": dt.date(2999, 1, 1), "kind": "a"}])
    assert table.branch("fix").expire_partitions("1 d").partitions
    assert len(marks(tmp_path)) == 1


def with_main_replaced(table):
    """The table once main has become the branch `fix`, with rows of one more day and without those of the 2nd."""
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    fix = table.branch("fix")
    fix.overwrite([], {"day": "2026-01-02"})
    fix.append([{"id": 9, "day": dt.date(2999, 1, 1), "kind": "a"}])
    table.replace_main_branch("fix")
    return table


def test_a_former_main_neither_marks_nor_takes_marks_away(table, tmp_path):
    replaced = with_main_replaced(table)
    replaced.mark_partition_done("day < '2026-01-02'")
    before = marks(tmp_path)
    assert len(before) == 2
    former = replaced.branch("main@1")
    with pytest.raises(anabranch.InvalidInputError, match="is a branch"):
        former.mark_partition_done({"day": "2026-01-02"})
    with pytest.raises(anabranch.SealedBranchError):
        former.expire_partitions("1 d")
    assert marks(tmp_path) == before


def test_main_is_main_by_the_name_of_its_branch_too(table, tmp_path):
    by_name = with_main_replaced(table).branch("fix")
    by_name.mark_partition_done("kind = 'a'")
    assert len(marks(tmp_path)) == 2
    assert len(by_name.expire_partitions("1 d").partitions) == 2
    assert [folder for folder in marks(tmp_path) if "2026" in folder] == []


def test_who_finds_main_replaced_takes_no_mark_away(table, tmp_path):
    storage = FaultyStorage(table.context.storage)
    late = replace(table.context, storage=storage)
    with_main_replaced(table).mark_partition_done("day < '2026-01-02'")
    with pytest.raises(anabranch.SealedBranchError):
        expire_partitions(late, {}, older_than_millis=1)
    assert len(marks(tmp_path)) == 2
    assert not storage.counts()["delete_many"]


def test_what_cannot_be_marked_is_refused(table, tmp_path):
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    for chosen, at, said in [
        ({"day": "2025-01-01"}, table, "has rows"),
        ([{"day": "2026-01-01"}, {"day": "2025-01-01"}], table, "2025-01-01"),
        ([], table, "no partition is named"),
        ({"id": 1}, table, "no partition column"),
        ({"day": "2026-01-01"}, table.branch("fix"), "is a branch"),
        ({"day": "2026-01-01"}, table.at("good"), "good"),
    ]:
        with pytest.raises(anabranch.AnabranchError, match=said):
            at.mark_partition_done(chosen)
    plain = anabranch.connect(str(tmp_path)).create_table("db.plain", "id BIGINT")
    with pytest.raises(anabranch.InvalidInputError, match="has no partitions"):
        plain.mark_partition_done("id = 1")
    assert marks(tmp_path) == {}


def test_on_the_command_line(table, tmp_path, capsys):
    asked = ["-w", str(tmp_path), "mark-partition-done", "db.t"]
    assert run(asked) != 0
    assert "no partition is named" in capsys.readouterr().err
    assert run([*asked, "-p", "day=2026-01-01/kind=a", "-p", "day=2026-01-02", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["partition"] for one in found] == ["day=2026-01-01/kind=a", "day=2026-01-02/kind=a b%2Fc"]
    assert len(marks(tmp_path)) == 2
