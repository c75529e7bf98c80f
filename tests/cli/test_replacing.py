"""`anabranch replace-main-branch` and `undo-replace`, as their users type them."""

import json

import pytest

from anabranch.cli.main import run
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 2))
    table.create_tag("good")
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(100, 1))
    table.append(rows(2, 1))
    return table


@pytest.fixture
def cli(tmp_path, capsys):
    def call(verb, *words, code=0):
        assert run(["-w", str(tmp_path), verb, "db.t", *words]) == code
        said = capsys.readouterr()
        return said.out + said.err

    return call


def test_a_branch_takes_the_place_of_main_and_gives_it_back(cli, table):
    planned = cli("replace-main-branch", "--name", "fix", "--dry-run")
    assert "'fix' would be main, at snapshot 2; the old one, with 1 snapshot after snapshot 1" in planned
    assert ids_of(table) == [0, 1, 2]
    assert "'fix' is now main" in cli("replace-main-branch", "-n", "fix", "--reason", "prices", "--yes")
    assert "'fix' is already main" in cli("replace-main-branch", "-n", "fix")
    assert ids_of(table) == [0, 1, 100]
    done = json.loads(cli("undo-replace", "--json"))
    assert (done["branch"], done["number"], done["new_snapshot"]) == ("main", 2, 3)
    assert ids_of(table) == [0, 1, 2]


def test_what_stands_against_it_ends_with_3(cli, table):
    said = cli("replace-main-branch", "-n", "fix", "--expect-main", "1", code=3)
    assert "MAIN_MOVED: main of 'db.t' was expected at snapshot 1 and is at 2" in said
    assert "POSITIONS_UNKNOWN" in cli("replace-main-branch", "-n", "fix", "--wait-for", "1 s", code=3)
    assert "was not replaced" in cli("undo-replace", code=1)
    assert ids_of(table) == [0, 1, 2]


def test_as_a_commit(cli, table):
    assert "main would have the rows of 'fix'" in cli(
        "replace-main-branch", "-n", "fix", "--mode", "commit", "--dry-run"
    )
    assert "main has now the rows of 'fix', in snapshot 3" in cli(
        "replace-main-branch", "-n", "fix", "--mode", "commit"
    )
    assert ids_of(table) == [0, 1, 100]
