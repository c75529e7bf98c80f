"""Keeping tables fast and small from the command line: many tables at once, again and again, and errors among them."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from anabranch import connect
from anabranch.cli.main import run
from anabranch.errors import CommitError, NotFoundError
from anabranch.runtime import Runtime
from anabranch.verbs.caller import Caller
from anabranch.verbs.subject import Tables
from anabranch.verbs.upkeep import compact as compact_verb
from tests.support.tables import SCHEMA, ids_of, rows


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path), *words]) == code, capsys.readouterr()
        return capsys.readouterr()

    return call


@pytest.fixture
def lake(tmp_path):
    """Tables db.a, db.b and db.c with six small files each; db.b is damaged."""
    lake = connect(str(tmp_path))
    for name in ("db.a", "db.b", "db.c"):
        table = lake.create_table(name, SCHEMA)
        for i in range(6):
            table.append(rows(i, 1))
    storage = lake.table("db.b").context.storage
    storage.delete(next(info.path for info in storage.list("bucket-0")))
    storage.put("tag/tag-bad", b"{")
    return lake


def test_one_table_that_fails_does_not_keep_the_others_from_it(cli, lake):
    said = cli("compact", "db", "--full", code=1).err
    assert "db.b" in said
    assert "1 of 3 tables" in said
    for name in ("db.a", "db.c"):
        table = lake.table(name)
        assert table.snapshot.commit_kind == "COMPACT"
        assert ids_of(table) == [*range(6)]
    assert "db.b" in cli("maintain", "db", "--yes", code=1).err


def test_a_compaction_that_goes_on_for_ever_outlives_an_error(tmp_path, monkeypatch):
    lake = connect(str(tmp_path))
    table = lake.create_table("db.t", SCHEMA)
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        for i in range(6):
            table.append(rows(10 * len(pauses) + i, 1))

    def compact_but_once(self, *arguments):
        if len(pauses) == 1:
            raise CommitError("the store is away")
        return compact(self, *arguments)

    compact = type(table).compact
    monkeypatch.setattr(type(table), "compact", compact_but_once)
    monkeypatch.setattr("anabranch.verbs.upkeep.SYSTEM", Runtime(sleeper=SimpleNamespace(sleep=sleep)))
    job = compact_verb(Tables("db.t", Caller(str(tmp_path))), full=True, every="30 s")
    assert [done.files_before for done in next(job).value] == [0]
    assert [done.files_before for done in next(job).value] == [12]  # the round in between failed
    assert pauses == [30, 30]


def test_a_compaction_of_what_is_not_there_does_not_go_on(tmp_path):
    connect(str(tmp_path)).create_database("db")
    with pytest.raises(NotFoundError):
        next(compact_verb(Tables("db.t", Caller(str(tmp_path))), every="30 s"))


def test_replacing_a_tag_says_both_moments_as_json(cli, lake):
    cli("create-tag", "db.a", "--name", "good", "--snapshot", "2")
    said = json.loads(cli("replace-tag", "db.a", "--name", "good", "--snapshot", "4", "--json").out)
    assert (said["before"]["snapshot"], said["tag"]["snapshot"]) == (2, 4)


def test_maintaining_tells_the_numbers_of_each_step(cli, tmp_path):
    lake = connect(str(tmp_path))
    table = lake.create_table("db.t", SCHEMA)
    for i in range(60):
        table.append(rows(i, 1))
    table.alter().set_option("snapshot.num-retained.max", "10").apply()
    table.create_tag("good", 3)
    table.context.storage.put("bucket-0/data-left-0.parquet", b"12345")
    before = sorted(info.path for info in table.context.storage.list(recursive=True))
    (dry,) = json.loads(cli("maintain", "db.t", "--json", "--dry-run").out)
    assert sorted(info.path for info in table.context.storage.list(recursive=True)) == before
    assert dry["dry_run"]
    assert dry["compaction"]["files_before"] == 50
    assert dry["compaction"]["snapshot"] is None
    assert (dry["expiry"]["snapshots"], dry["expiry"]["snapshots_left"]) == (50, 10)
    assert dry["cleaning"]["moved"] == 0  # too young
    (done,) = json.loads(cli("maintain", "db.t", "--json").out)
    assert not done["dry_run"]
    compaction, expiry, cleaning = done["compaction"], done["expiry"], done["cleaning"]
    assert (compaction["files_before"], compaction["rows"], compaction["snapshot"]) == (50, 50, 61)
    assert compaction["bytes_before"] > compaction["bytes_after"] > 0
    assert (expiry["snapshots"], expiry["snapshots_left"]) == (51, 10)
    assert expiry["held"]["tag 'good'"]["files"] >= 3
    assert expiry["tags"] == expiry["consumers"] == []
    assert (cleaning["moved"], cleaning["run"]) == (0, None)
    assert done["text"].startswith("db.t: 50 files compacted into 1; 51 snapshots expired")
    assert "db.t: " in cli("maintain", "db.t", "--yes").out


def test_orphans_of_all_tables_of_a_database_go_and_one_that_fails_does_not_stop_it(cli, lake):
    for name in ("db.a", "db.b", "db.c"):
        lake.table(name).context.storage.put("manifest/manifest-left", b"12345")
    said = cli("remove-orphan-files", "db", "--older-than", "0 s", "--json", code=1).err
    assert "1 of 3 tables of 'db' failed: db.b:" in said
    for name, there in (("db.a", False), ("db.b", True), ("db.c", False)):
        assert lake.table(name).context.storage.exists("manifest/manifest-left") is there
    lake.drop_table("db.b")
    lake.table("db.c").context.storage.put("manifest/manifest-left-too", b"12345678")
    done = json.loads(cli("remove-orphan-files", "db", "--older-than", "0 s", "--json").out)
    assert [(one["table"], one["moved"], one["moved_bytes"]) for one in done] == [
        ("db.a", 0, 0),
        ("db.c", 1, 8),
    ]


def test_sorting_says_when_there_is_nothing_to_do(cli, lake):
    assert "sorted 6 rows" in cli("sort-compact", "db.a", "--order-by", "id").out
    assert "nothing to sort" in cli("sort-compact", "db.a", "--order-by", "id").out
    done = json.loads(cli("sort-compact", "db.a", "--order-by", "id", "--json").out)
    assert (done["snapshot"], done["files_before"]) == (None, 0)


def test_partitions_are_named_as_their_folders_are(cli, tmp_path):
    lake = connect(str(tmp_path))
    table = lake.create_table("db.t", "id BIGINT, p STRING", partition_by=["p"])
    for name in ("a/b", "a=b", "100%", "ü x"):
        for i in range(2):
            table.append([{"id": i, "p": name}])
    folders = [json.loads(line)["partition"] for line in cli("partitions", "db.t", "--json").out.splitlines()]
    assert folders == ["p=100%25", "p=a%2Fb", "p=a%3Db", "p=ü x"]
    for folder in folders:
        (done,) = json.loads(cli("compact", "db.t", "--full", "--partition", folder, "--json").out)
        assert (done["files_before"], done["rows"]) == (2, 2)


def test_expiry_says_what_it_lets_go_of_and_what_holds_what(cli, lake, tmp_path):
    table = lake.table("db.a")
    short = table.create_tag("short", 2, retained="1 d")
    table.context.storage.put("tag/tag-short", replace(short, create_time=0, created_millis=0).to_json())
    os.utime(tmp_path / "db.db/a/tag/tag-short", (0, 0))  # the store's clock is what it is kept by
    table.create_tag("long", 3)
    table.compact(full=True)
    told = cli("expire-snapshots", "db.a", "--retain-max", "2", "--dry-run").out
    assert "db.a: would let go of tags short" in told
    assert table.tags() == ["long", "short"]
    done = cli("expire-snapshots", "db.a", "--retain-max", "2", "--yes").out
    assert "db.a: let go of tags short" in done
    assert "db.a: tag 'long' keeps" in done
    assert table.tags() == ["long"]
