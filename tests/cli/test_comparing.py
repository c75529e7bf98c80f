"""`diff` and `audit` from the command line."""

import json

import pytest

from anabranch.cli.main import run
from tests.support.tables import make_table, rows


@pytest.fixture
def cli(tmp_path, capsys):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    table.create_tag("good")
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(10, 2))
    table.append(rows(20, 1))

    def call(*words, code=0):
        assert run(["-w", str(tmp_path), *words]) == code, capsys.readouterr()
        return capsys.readouterr()

    return call


def test_diff(cli):
    said = cli("diff", "db.t", "main..fix", "--count", "--rows", "2").out
    assert "main..fix of db.t" in said
    assert "1 added, 1 removed, 1 shared" in said
    assert "2 inserted, 1 deleted" in said
    assert said.count("insert ") + said.count("delete ") == 2
    told = json.loads(cli("diff", "db.t", "main..fix", "--json").out)
    assert (told["left_snapshot"], told["right_snapshot"]) == (2, 2)
    assert told["rows"] is None
    assert told["changes"] is None
    (partition,) = told["partitions"]
    assert (partition["rows_left"], partition["rows_right"]) == (4, 5)
    told = json.loads(
        cli(
            "diff", "db.t", "main@good..fix", "--json", "--rows", "9", "-c", "id", "-f", "id > 10", "--count"
        ).out
    )
    assert told["rows"] == {"inserted": 1, "deleted": 0}
    assert told["changes"] == [{"_change": "insert", "id": 11}]
    # A side left out is main.
    assert json.loads(cli("diff", "db.t", "..fix", "--json").out)["left"] == "main"
    assert json.loads(cli("diff", "db.t", "fix..", "--json").out)["right"] == "main"


def test_what_diff_cannot_compare(cli):
    assert "write main..fix" in cli("diff", "db.t", "fix", code=2).err
    assert "branches there are: main, fix" in cli("diff", "db.t", "main..fox", code=1).err
    assert (
        "neither 'main' nor 'fix' has a column 'w'"
        in cli("diff", "db.t", "main..fix", "--rows", "1", "-c", "w", code=2).err
    )


def test_audit(cli, tmp_path):
    good, bad = tmp_path / "good.yml", tmp_path / "bad.yml"
    good.write_text("checks:\n  - unique: id\n  - row_count: {min: 9}\n    severity: warn\n")
    bad.write_text("checks:\n  - condition: id < 11\n")
    said = cli("audit", "db.t", "fix", str(good)).out
    assert "audit 1 'good' of db.t$branch_fix at snapshot 2: passed" in said
    assert "warning" in said
    said = cli("audit", "db.t", "fix", str(bad), code=1).out
    assert "1 other row" in said
    assert '{"id": 11}' in said
    told = json.loads(cli("audit", "db.t", "fix", str(bad), "--json", "--by", "ann", code=1).out)
    assert (told["audit"], told["passed"], told["snapshot"]) == (3, False, 2)
    assert told["results"][0]["sample"] == [{"id": 11}]
    assert json.loads(cli("audit", "db.t", str(bad), "--json", code=1).out)["table"] == "db.t"
    assert json.loads(cli("audit", "db.t$branch_fix", str(good), "--json").out)["table"] == "db.t$branch_fix"
    assert "cannot be read" in cli("audit", "db.t", "fix", "no.yml", code=2).err
    assert "expected [BRANCH] CHECKS" in cli("audit", "db.t", "fix", "good.yml", "more", code=2).err


def test_the_log_of_branches(cli):
    said = cli("read", "db.t$branches_log", "--json").out
    assert [json.loads(line)["operation"] for line in said.splitlines()] == ["created"]
