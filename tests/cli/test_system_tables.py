"""System tables and rolling back, as typed at a terminal."""

import json

import pytest

import anabranch
from anabranch.cli.main import run


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path / "lake"), *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


@pytest.fixture
def orders(cli, tmp_path):
    cli(
        "create-table",
        "db.orders",
        "id BIGINT, city STRING",
        "--partition-by",
        "city",
        "-o",
        "write-only=true",
    )
    for number, city in enumerate(["Bonn", "Rome", "Rome"]):
        source = tmp_path / f"{number}.jsonl"
        source.write_text(json.dumps({"id": number, "city": city}))
        cli("append", "db.orders", str(source))


def _rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_system_tables_by_name(cli, orders):
    found = _rows(
        cli("read", "db.orders$files", "--json", "-c", "partition,record_count", "-f", "schema_id = 0")
    )
    assert sorted(row["partition"] for row in found) == ["city=Bonn", "city=Rome", "city=Rome"]
    assert len(_rows(cli("read", "db.orders$files", "--json", "--at", "1"))) == 1
    assert len(cli("read", "db.orders$snapshots", "--limit", "2").splitlines()) == 3
    assert [row["table_name"] for row in _rows(cli("read", "sys.tables", "--json"))] == ["orders"]
    assert "did you mean 'files'" in cli("read", "db.orders$fils", code=1)
    assert "no past" in cli("read", "sys.tables", "--at", "1", code=2)
    assert "tells what there is now" in cli("read", "db.orders$tags", "--at", "1", code=2)


def test_system_tables_as_verbs(cli, orders):
    assert [row["file_count"] for row in _rows(cli("partitions", "db.orders", "--json"))] == [1, 2]
    assert "city=Rome" in cli("buckets", "db.orders", "--at", "2")
    assert len(_rows(cli("manifests", "db.orders", "--json"))) == 3
    assert {row["key"] for row in _rows(cli("options", "db.orders", "--json"))} >= {"write-only"}
    assert len(_rows(cli("schemas", "db.orders", "--json"))) == 1


def test_rollback(cli, orders):
    assert "1 in 1 files" in cli("rollback", "db.orders", "--to", "2", "--dry-run")
    assert len(_rows(cli("read", "db.orders", "--json"))) == 3
    done = json.loads(cli("rollback", "db.orders", "--to", "2", "--json"))
    assert (done["snapshot"], done["rows_removed"], done["done"], done["destructive"]) == (4, 1, True, False)
    assert len(_rows(cli("read", "db.orders", "--json"))) == 2
    assert "does not exist" in cli("rollback", "db.orders", "--to", "nowhere", code=1)


def test_a_destructive_rollback(cli, orders, tmp_path):
    anabranch.connect(str(tmp_path / "lake")).table("db.orders").create_tag("late")
    said = cli("rollback", "db.orders", "--to", "1", "--destructive", "--dry-run")
    assert "removed for good: snapshots 2 to 3" in said
    assert "tag 'late' (snapshot 3)" in said
    refused = cli("rollback", "db.orders", "--to", "1", "--destructive", "--yes", code=3)
    assert "STILL_REFERRED_TO" in refused
    done = json.loads(cli("rollback", "db.orders", "--to", "1", "--destructive", "--force", "--json"))
    assert done["removed_snapshots"] == [3, 2]
    assert done["removed_references"] == [{"kind": "tag", "name": "late", "snapshot": 3}]
    assert [row["id"] for row in _rows(cli("read", "db.orders", "--json"))] == [0]
