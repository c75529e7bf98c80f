"""Branches from the command line."""

import json

import pytest

from anabranch.cli.main import run
from tests.support.tables import make_table, rows


@pytest.fixture
def cli(tmp_path, capsys):
    table = make_table(tmp_path)
    for i in range(3):
        table.append(rows(i, 1))
    table.create_tag("good", 2)

    def call(*words, code=0):
        assert run(["-w", str(tmp_path), *words]) == code, capsys.readouterr()
        return capsys.readouterr()

    call.table = table
    return call


def told(output):
    return json.loads(output.out)


def ids(cli, *words):
    return [json.loads(line)["id"] for line in cli("read", *words, "--json").out.splitlines()]


def test_a_branch_lives_through_its_verbs(cli):
    made = told(cli("create-branch", "db.t", "--name", "fix", "--tag", "good", "--retained", "7 d", "--json"))
    assert (made["name"], made["tag"], made["fork_snapshot"], made["state"]) == ("fix", "good", 2, "ready")
    assert made["expires"] - made["created"] == 7 * 86_400_000
    assert "begins with snapshot 1 (tag 'old')" in (
        cli("create-branch", "db.t", "-n", "other", "--tag", "old", "--snapshot", "1").out
    )
    cli("create-savepoint", "db.t")
    assert "tag 'kept'" in cli("create-branch", "db.t", "-n", "kept", "--savepoint", "1").out
    cli.table.branch("fix").append(rows(100, 2))
    main, *others = told(cli("branches", "db.t", "--json"))
    assert (main["name"], main["is_main"], main["head"]) == ("main", True, 3)
    assert [(b["name"], b["rows_ahead"], b["rows_behind"]) for b in others] == [
        *(("fix", 2, 1), ("kept", 0, 0), ("other", 0, 2)),
    ]
    moved = "(1 snapshot, +2 rows; main 1 snapshot, +1 rows)"
    assert moved in cli("delete-branch", "db.t", "--name", "fix", "--dry-run").out
    assert cli.table.branches() == ["fix", "kept", "other"]
    assert told(cli("delete-branch", "db.t", "--name", "fix", "--json"))["deleted"]
    assert cli.table.branches() == ["kept", "other"]


def test_branches_are_drawn_by_where_they_began(cli):
    for name, begin in (
        ("fix", ["--tag", "good"]),
        ("more", ["--tag", "good"]),
        ("first", ["--snapshot", "1"]),
    ):
        cli("create-branch", "db.t", "--name", name, *begin)
    drawn = cli("branches", "db.t").out.splitlines()
    assert drawn[0].startswith("db.t: main: snapshot 3 of ")
    at = {
        key: n
        for n, line in enumerate(drawn)
        for key in ("tag 'first'", "tag 'good'", "fix:", "more:")
        if key in line
    }
    assert at["tag 'first'"] < at["tag 'good'"] < at["fix:"] < at["more:"]
    assert drawn[at["tag 'good'"]] == "└── snapshot 2, tag 'good'"
    assert "not moved; main 1 snapshot, +1 rows" in drawn[at["fix:"] + 1]


def test_every_verb_works_on_a_branch(cli):
    cli("create-branch", "db.t", "--name", "fix", "--tag", "good")
    cli.table.branch("fix").append(rows(100, 2))
    assert ids(cli, "db.t$branch_fix") == ids(cli, "db.t", "--branch", "fix") == [0, 1, 100, 101]
    cli("create-tag", "db.t", "--branch", "fix", "--name", "own")
    assert [tag["name"] for tag in told(cli("tags", "db.t$branch_fix", "--json"))] == ["good", "own"]
    cli("create-savepoint", "db.t$branch_fix")
    assert len(told(cli("savepoints", "db.t", "--branch", "fix", "--json"))) == 1
    assert told(cli("savepoints", "db.t", "--json")) == []
    cli("alter-table", "db.t$branch_fix", "--add", "n INT")
    assert [f.name for f in cli.table.branch("fix").schema.fields] == ["id", "v", "n"]
    cli("compact", "db.t$branch_fix", "--full")
    cli(
        "expire-snapshots", "db.t$branch_fix", "--retain-max", "2", "--retain-min", "2", "--older-than", "0 s"
    )
    cli("rollback", "db.t$branch_fix", "--to", "good", "--yes")
    assert (ids(cli, "db.t$branch_fix"), ids(cli, "db.t")) == ([0, 1], [0, 1, 2])


def test_what_is_wrong_with_a_branch_is_said(cli):
    assert "branch 'nope' does not exist" in cli("delete-branch", "db.t", "--name", "nope", code=1).err
    assert "tag 'nope' does not exist" in cli("create-branch", "db.t", "-n", "a", "--tag", "nope", code=1).err
    assert "to begin with" in cli("create-branch", "db.t", "-n", "a", code=2).err
    assert "cannot name a branch" in cli("create-branch", "db.t", "-n", "7", "--tag", "good", code=2).err
    cli("create-branch", "db.t", "--name", "fix", "--tag", "good")
    said = cli("create-branch", "db.t", "--name", "fix", "--tag", "good", code=1).err
    assert "exists already" in said
    assert "`delete-branch`" in said
    refused = cli("create-branch", "db.t$branch_fix", "--name", "a", "--tag", "good", code=2).err
    assert "only be created from a tag of main" in refused


def test_what_is_main_or_was_main_is_not_deleted(cli):
    cli("create-branch", "db.t", "--name", "fix", "--tag", "good")
    cli("replace-main-branch", "db.t", "--name", "fix", "--force", "--yes")
    for how in ([], ["--dry-run"]):
        said = cli("delete-branch", "db.t", "--name", "fix", *how, code=2).err
        assert "branch 'fix' is the main branch of 'db.t' and cannot be deleted" in said
    assert (
        "exists already in 'db.t', and is main"
        in cli("create-branch", "db.t", "-n", "fix", "--tag", "good", code=1).err
    )
    planned = told(cli("replace-main-branch", "db.t", "--name", "fix", "--dry-run", "--json"))
    assert (planned["dry_run"], planned["repeated"]) == (True, True)
    assert "'fix' is already main" in cli("replace-main-branch", "db.t", "--name", "fix", "--dry-run").out
    cli("create-branch", "db.t", "--name", "next", "--tag", "good")
    cli("replace-main-branch", "db.t", "--name", "next", "--yes")
    for how in ([], ["--dry-run"]):
        assert "is kept as 'main@2'" in cli("delete-branch", "db.t", "--name", "fix", *how, code=2).err
