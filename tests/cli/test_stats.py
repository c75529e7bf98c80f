"""``--stats``: what a command asked of the store."""

import json

import pytest

from anabranch.cli.main import run
from anabranch.verbs.registry import in_order
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


def test_what_was_asked_is_said_beside_the_result(cli):
    plain, told = cli("snapshots", "db.t"), cli("snapshots", "db.t", "--stats")
    assert told.out == plain.out
    assert plain.err == ""
    assert " requests (" in told.err
    assert " after each other, " in told.err


def test_programs_get_numbers(cli):
    told = cli("create-tag", "db.t", "--name", "good", "--json", "--stats")
    assert json.loads(told.out)["name"] == "good"
    stats = json.loads(told.err)["stats"]
    assert stats["requests"] == sum(stats["by_kind"].values())
    assert stats["by_kind"]["decide"] >= 1
    assert 0 < stats["depth"] <= stats["requests"]
    assert stats["bytes_written"] > 0


def test_a_command_that_fails_says_it_as_well(cli):
    told = cli("snapshots", "db.none", "--stats", code=1)
    assert " requests (" in told.err
    assert "Error: " in told.err


def test_every_verb_has_it(cli):
    for verb in in_order():
        words = [verb.name] if verb.parent is None else [verb.parent, verb.name]
        assert "--stats" in cli(*words, "--help").out, verb.name
