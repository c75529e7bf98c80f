"""Reading the past on the command line: the same words as everywhere."""

import json

import pytest

from anabranch.cli.main import run
from tests.support.moments import forget, history


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path), *words]) == code, capsys.readouterr()
        return capsys.readouterr()

    return call


def _ids(said):
    return [json.loads(line)["id"] for line in said.out.splitlines()]


def test_every_way_to_name_a_moment(cli, tmp_path):
    table = history(tmp_path)
    table.create_savepoint(2)
    table.create_tag("good", 3)
    table.create_tag("1970-01-01", 4)
    forget(table, 1, 2, 3)
    for at, expected in {
        "5": 5, "snapshot.5": 5, "savepoint.1": 2, "good": 3,
        "1970-01-01 00:00:05.5": 5, "1970-01-01T00:00:03Z": 2,
        "1970-01-01": 4,  # what is called so, not the time
    }.items():  # fmt: skip
        said = cli("read", "db.t", "--json", "--at", at)
        assert _ids(said) == list(range(expected)), at
    said = cli("read", "db.t", "--at", "1970-01-01 00:00:03")
    assert "(savepoint.1 (snapshot 2) of 1970-01-01 00:00:02Z, 1 s from 1970-01-01 00:00:03Z" in said.err
    found = json.loads(cli("describe", "db.t", "--json", "--at", "good").out)
    assert (found["snapshot"]["id"], found["moment"][:17]) == (3, "good (snapshot 3)")
    assert "moment" in cli("describe", "db.t", "--at", "good").out


def test_what_a_moment_was_found_to_be_is_said_beside_the_output(cli, tmp_path):
    table = history(tmp_path)
    table.create_tag("good", 3)
    for words in (["read", "db.t"], ["explain", "db.t"], ["files", "db.t"], ["schema", "db.t"]):
        said = cli(*words, "--json", "--at", "1970-01-01 00:00:04.5")
        assert said.err.startswith("(snapshot.4 of 1970-01-01 00:00:04Z, 500 ms from"), words
        assert all(json.loads(line) for line in said.out.splitlines())
        assert cli(*words, "--json").err == ""
    assert cli("read", "db.t$files", "--at", "good").err.startswith("(good (snapshot 3) of ")
    assert cli("partitions", "db.t", "--at", "good").err.startswith("(good (snapshot 3) of ")


def test_an_answer_that_is_not_certain_may_be_refused(cli, tmp_path):
    table = history(tmp_path)
    table.create_savepoint(2)
    forget(table, 1, 2, 3)
    at = ["--at", "1970-01-01 00:00:03.5"]
    for verb in ("read", "explain", "describe", "files", "schema", "partitions", "options"):
        said = cli(verb, "db.t", *at, "--json")
        assert "1970-01-01 00:00:02Z" in said.out + said.err
        refused = cli(verb, "db.t", *at, "--exact", code=1).err
        assert "it is not certain what 'db.t' was" in refused
        assert "savepoint.1" in refused
        assert cli(verb, "db.t", "--at", "1970-01-01 00:00:04.5", "--exact", "--json").out
    assert "none was asked for" in cli("read", "db.t", "--exact", code=2).err


def test_what_is_not_there(cli, tmp_path):
    history(tmp_path)
    assert "tag 'bad' does not exist" in cli("read", "db.t", "--at", "bad", code=1).err
    assert "no snapshot at or before" in cli("read", "db.t", "--at", "1969-01-01", code=1).err
    assert "the earliest is 1, the latest is 6" in cli("read", "db.t", "--at", "9", code=1).err
