"""`anabranch merge-branch`, as its users type it."""

import json

import pytest

import anabranch
from anabranch.cli.main import run
from tests.branches.merging import rows


@pytest.fixture
def table(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table(
        "db.t", "id BIGINT NOT NULL, dt STRING", partition_by=["dt"]
    )
    table.append(rows([1], "a"))
    table.append(rows([2], "b"))
    table.create_tag("good")
    table.create_branch("fix", "good")
    return table


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*arguments, code=0):
        assert run(["-w", str(tmp_path), "merge-branch", "db.t", "--name", "fix", *arguments]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return call


def conflicting(table):
    fix = table.branch("fix")
    for dt in "abc":
        fix.append(rows([10], dt))
    for dt in "ab":
        table.overwrite(rows([20], dt))


def ids(table):
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_it_says_what_it_did(cli, table):
    table.branch("fix").append(rows([10, 11], "a"))
    shown = cli("--dry-run")
    assert "would merge branch 'fix' into db.t" in shown
    assert ids(table) == [1, 2]
    shown = cli()
    assert "dt=a" in shown
    assert "merged branch 'fix' into db.t: snapshot 3" in shown
    assert ids(table) == [1, 2, 10, 11]
    assert "nothing to merge" in cli()


def test_all_conflicts_are_listed_with_exit_code_3(cli, table):
    conflicting(table)
    for how in ((), ("--dry-run",)):
        shown = cli(*how, code=3)
        assert "2 conflicts" in shown
        assert shown.count("APPEND_VS_OVERWRITE") == 2
        assert "dt=a" in shown
        assert "dt=b" in shown
        assert shown.count("hint: choose 'ours'") == 1
    found = json.loads(cli("--json", code=3))
    assert [(c["kind"], c["partition"], c["snapshots"]) for c in found["conflicts"]] == [
        ("APPEND_VS_OVERWRITE", "dt=a", [3]),
        ("APPEND_VS_OVERWRITE", "dt=b", [4]),
    ]


def test_choices_for_all_and_for_one(cli, table):
    conflicting(table)
    assert "1 conflict\n" in cli("--resolve", "dt=a:theirs", code=3)
    found = json.loads(cli("--resolve", "dt=a:theirs", "--resolve", "ours", "--json"))
    assert [(p["partition"], p["outcome"], p["chosen"]) for p in found["partitions"]] == [
        ("dt=a", "replaced", "theirs"),
        ("dt=b", "kept", "ours"),
        ("dt=c", "added", None),
    ]
    assert ids(table) == [1, 10, 10, 20]


def test_wrong_usage(cli, table):
    assert "'mine'" in cli("--resolve", "mine", code=2)
    assert "branch 'fix' does not exist" not in cli()
    table.delete_branch("fix")
    assert "branch 'fix' does not exist" in cli(code=1)
