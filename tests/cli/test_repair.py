"""`verify` and `repair` on the command line."""

import json

import pytest

from anabranch.cli.main import run
from tests.support.tables import make_table, rows


@pytest.fixture
def warehouse(tmp_path):
    table = make_table(tmp_path)
    for start in range(3):
        table.append(rows(start, 1))
    return tmp_path


@pytest.fixture
def call(warehouse, capsys):
    """Runs a command: its exit code, and what it printed."""

    def call(*words):
        code = run(["-w", str(warehouse), *words])
        return code, capsys.readouterr().out

    return call


def test_nothing_is_wrong(call):
    code, said = call("verify", "db.t", "--deep")
    assert (code, "nothing is wrong" in said) == (0, True)
    (found,) = json.loads(call("verify", "db", "--json")[1])
    assert (found["ok"], found["problems"], found["files"]) == (True, [], 3)
    assert call("repair", "db.t", "--yes")[0] == 0


def test_what_is_wrong_is_told_and_mended(call, warehouse):
    newest = warehouse / "db.db" / "t" / "snapshot" / "snapshot-3"
    newest.unlink()
    code, said = call("verify", "db.t")
    assert code == 1
    assert "head-gone" in said
    assert f"anabranch -w {warehouse} repair db.t --dry-run" in said
    code, said = call("repair", "db.t", "--dry-run")
    assert code == 0
    assert "put snapshot 3 back" in said
    assert not newest.exists()
    (done,) = json.loads(call("repair", "db.t", "--json")[1])
    assert [step["kind"] for step in done["steps"]] == ["head-gone", "hint"]
    assert call("verify", "db.t")[0] == 0


def test_what_is_lost_is_listed(call, warehouse):
    next((warehouse / "db.db" / "t" / "bucket-0").iterdir()).unlink()
    code, said = call("repair", "db.t", "--yes")
    assert code == 1
    assert "1 rows" in said
