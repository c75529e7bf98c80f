"""Tags, savepoints and consumers from the command line."""

import json
import re
import time
from datetime import datetime, timedelta

import pytest

from anabranch import connect
from anabranch.cli.main import run
from tests.support.tables import make_table, rows


@pytest.fixture
def cli(tmp_path, capsys):
    table = make_table(tmp_path)
    for i in range(3):
        table.append(rows(i, 1))

    def call(*words, code=0):
        assert run(["-w", str(tmp_path), *words]) == code, capsys.readouterr()
        return capsys.readouterr()

    return call


def told(output):
    return json.loads(output.out)


def test_a_tag_lives_through_its_verbs(cli):
    cli("create-tag", "db.t", "--name", "good", "--snapshot", "2", "--retained", "7 d")
    (tag,) = told(cli("tags", "db.t", "--json"))
    assert (tag["name"], tag["snapshot"], tag["rows"]) == ("good", 2, 2)
    assert tag["expires"] - tag["create_time"] == 7 * 86_400_000
    assert "good" in cli("tags", "db.t").out
    cli("rename-tag", "db.t", "--name", "good", "--to", "better")
    assert (
        "would keep 3" in cli("replace-tag", "db.t", "--name", "better", "--snapshot", "3", "--dry-run").out
    )
    replaced = told(cli("replace-tag", "db.t", "--name", "better", "--snapshot", "3", "--json"))
    assert (replaced["before"]["snapshot"], replaced["tag"]["snapshot"]) == (2, 3)
    assert "would delete" in cli("delete-tag", "db.t", "--name", "better", "--dry-run").out
    assert told(cli("delete-tag", "db.t", "--name", "better", "--json"))["deleted"]
    assert told(cli("tags", "db.t", "--json")) == []


def test_when_a_tag_was_made_is_told_without_a_zone_as_it_is_stored(cli, monkeypatch):
    monkeypatch.setenv("TZ", "Etc/GMT-9")
    time.tzset()
    try:
        cli("create-tag", "db.t", "--name", "good", "--retained", "7 d")
        made = datetime.now()
        (line,) = [line for line in cli("tags", "db.t").out.splitlines() if line.startswith("good")]
    finally:
        monkeypatch.undo()
        time.tzset()
    _, committed, created, until = re.findall(r"(?:good|\d{4}-\d\d-\d\d [\d:.]+Z?)", line)
    assert committed.endswith("Z")
    assert abs(datetime.fromisoformat(created) - made) < timedelta(minutes=5)
    assert datetime.fromisoformat(until) - datetime.fromisoformat(created) == timedelta(days=7)


def test_what_is_wrong_with_a_tag_is_said(cli):
    assert "'nope'" in cli("delete-tag", "db.t", "--name", "nope", code=1).err
    assert "reads like" in cli("create-tag", "db.t", "--name", "5", code=2).err
    cli("create-tag", "db.t", "--name", "good")
    assert "exists" in cli("create-tag", "db.t", "--name", "good", code=1).err


def test_a_savepoint_outlives_its_snapshot(cli):
    assert "savepoint.1" in cli("create-savepoint", "db.t", "--snapshot", "1").out
    cli("create-savepoint", "db.t")
    found = told(cli("savepoints", "db.t", "--json"))
    assert [(s["id"], s["snapshot"], s["rows"]) for s in found] == [(1, 1, 1), (2, 3, 3)]
    cli("compact", "db.t", "--full")
    said = cli(
        "expire-snapshots", "db.t", "--retain-max", "2", "--retain-min", "2", "--older-than", "0 s"
    ).out
    assert "savepoint" in said
    assert [
        json.loads(line)["id"]
        for line in cli("read", "db.t", "--at", "savepoint.1", "--json").out.splitlines()
    ] == [0]
    cli("delete-savepoint", "db.t", "--id", "1", "--yes")
    assert "savepoint 1" in cli("read", "db.t", "--at", "savepoint.1", code=1).err


def test_consumers_are_listed_moved_and_let_go(cli, tmp_path):
    table = connect(str(tmp_path)).table("db.t")
    list(table.tail("job", idle=0))
    table.append(rows(3, 2))
    (lag,) = told(cli("consumers", "db.t", "--json"))
    assert (lag["name"], lag["next_snapshot"], lag["snapshots"], lag["rows"]) == ("job", 4, 1, 2)
    cli("consumers", "db.t", "--reset", "job", "--to", "2")
    assert sum(batch.num_rows for batch in table.tail("job", idle=0)) == 4
    assert "retained" in cli("consumers", "db.t", "--reset", "job", "--to", "9", code=2).err
    assert "--reset does not say which" in cli("consumers", "db.t", "--to", "2", code=2).err
    assert "'other'" in cli("consumers", "db.t", "--reset", "other", code=1).err
    assert told(cli("consumers", "db.t", "--delete", "job", "--json")) == []


def test_orphans_come_back(cli, tmp_path):
    table = connect(str(tmp_path)).table("db.t")
    table.context.storage.put("bucket-0/data-0-0.parquet", b"left by a dead writer")
    (done,) = told(cli("remove-orphan-files", "db.t", "--older-than", "0 s", "--json"))
    assert done["moved"] == 1
    assert not table.context.storage.exists("bucket-0/data-0-0.parquet")
    back = told(cli("restore-orphan-files", "db.t", "--run", str(done["run"]), "--json"))
    assert back["files"] == 1
    assert table.context.storage.exists("bucket-0/data-0-0.parquet")
