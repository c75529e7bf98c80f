"""Keeping tables fast and small from the command line: many tables at once, again and again, and errors among them."""

import json
from types import SimpleNamespace

import pytest

from anabranch import connect
from anabranch.cli.main import run
from anabranch.errors import CommitError, NotFoundError
from anabranch.runtime import Runtime
from anabranch.service.maintenance import CompactionJob
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
    monkeypatch.setattr("anabranch.service.maintenance.SYSTEM", Runtime(sleeper=SimpleNamespace(sleep=sleep)))
    job = CompactionJob(str(tmp_path), "db.t", full=True).rounds("30 s")
    assert [done.files_before for done in next(job)] == [0]
    assert [done.files_before for done in next(job)] == [12]  # the round in between failed
    assert pauses == [30, 30]


def test_a_compaction_of_what_is_not_there_does_not_go_on(tmp_path):
    connect(str(tmp_path)).create_database("db")
    with pytest.raises(NotFoundError):
        next(CompactionJob(str(tmp_path), "db.t").rounds("30 s"))


def test_replacing_a_tag_says_both_moments_as_json(cli, lake):
    cli("create-tag", "db.a", "--name", "good", "--snapshot", "2")
    said = json.loads(cli("replace-tag", "db.a", "--name", "good", "--snapshot", "4", "--json").out)
    assert (said["before"]["snapshot"], said["tag"]["snapshot"]) == (2, 4)
