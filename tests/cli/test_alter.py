"""`anabranch alter-table`, as its users type it."""

import json

import pytest

import anabranch
from anabranch.cli.main import run
from tests.support.tables import make_table


@pytest.fixture
def cli(tmp_path, capsys):
    def call(*words, code=0):
        assert run(["-w", str(tmp_path), "alter-table", "db.t", *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return call


@pytest.fixture
def table(tmp_path):
    return make_table(
        tmp_path, schema="id BIGINT NOT NULL, city STRING, n INT, r ROW<x INT>, a ARRAY<ROW<y INT>>"
    )


def _columns(table):
    return ", ".join(f"{f.name} {f.type}" for f in table.schema.fields)


def test_one_call_makes_one_version(cli, table):
    said = cli(
        *("--add", "zip STRING COMMENT 'of the house' AFTER city", "--add", "r.z DECIMAL(4, 2) FIRST"),
        *("--rename", "city=town", "--widen", "n=BIGINT", "--widen", "a.element.y=DOUBLE"),
        *("--nullable", "id", "--drop", "r.x", "--move", "n FIRST"),
        *("--comment", "all of them", "--column-comment", "town=where = there", "--set", "owner = me"),
    )
    assert _columns(table) == (
        "n BIGINT, id BIGINT, town STRING, zip STRING, r ROW<z DECIMAL(4, 2)>, a ARRAY<ROW<y DOUBLE>>"
    )
    schema = table.schema
    assert (schema.id, schema.comment, schema.options["owner"]) == (1, "all of them", "me")
    assert (schema.field("zip").description, schema.field("town").description) == (
        "of the house",
        "where = there",
    )
    assert "version 1" in said
    assert "renamed 'city' to 'town'" in said
    cli("--unset", "owner", "--comment", "", "--column-comment", "town=")
    schema = table.schema
    assert ("owner" in schema.options, schema.comment, schema.field("town").description) == (
        False,
        None,
        None,
    )


def test_changes_are_made_in_the_order_in_which_they_are_given(cli, table):
    cli("--rename", "n=m", "--add", "n STRING", "--drop", "n", "--add", "n BIGINT", "--rename", "m=old")
    assert _columns(table).endswith("old INT, r ROW<x INT>, a ARRAY<ROW<y INT>>, n BIGINT")
    assert "'n' does not exist" in cli("--drop", "n", "--widen", "n=DOUBLE", code=2)
    assert table.schema.id == 1


def test_a_dry_run_says_what_would_be_and_does_nothing(cli, table):
    info = json.loads(cli("--drop", "n", "--set", "bucket=-1", "--dry-run", "--json"))
    assert (info["schema_before"], info["schema_id"], info["applied"]) == (0, 1, False)
    assert info["changes"] == ["dropped 'n'", "set option 'bucket' to '-1'"]
    assert [column["name"] for column in info["columns"]] == ["id", "city", "r", "a"]
    assert "would become version 1" in cli("--drop", "n", "--dry-run")
    assert "does not hold all its values" in cli("--widen", "id=INT", "--dry-run", code=2)
    assert [schema.id for schema in table.schemas()] == [0]


def test_what_changes_nothing_is_said_to(cli, table):
    assert "nothing changes" in cli("--nullable", "city")
    assert json.loads(cli("--widen", "n=INT", "--json"))["applied"] is False
    assert table.schema.id == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to change"),
        (("--add", "z"), "expected a type"),
        (("--add", "z INT BESIDE n"), "expected COMMENT, FIRST"),
        (("--add", "z INT AFTER gone"), "'gone' does not exist"),
        (("--add", "r. INT"), "the name of a field|no path|expected"),
        (("--move", "n"), "expected FIRST, LAST"),
        (("--move", "n FIRST LAST"), "expected the end"),
        (("--rename", "n"), "old=new"),
        (("--widen", "=INT"), "column=TYPE"),
        (("--column-comment", "n"), "column=text"),
        (("--set", "owner"), "key=value"),
        (("--set", "anabranch.nope=1"), "unknown option"),
        (("--set", "primary-key=id"), "complete records"),
        (("--what", "n"), "No such option"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(cli, table, words, told):
    code = 1 if "primary-key=id" in words else 2
    assert any(part in cli(*words, code=code) for part in told.split("|"))
    assert [schema.id for schema in table.schemas()] == [0]


def test_a_branch_that_is_not_there_is_named(cli, table):
    assert "'fix'" in cli("--drop", "n", "--branch", "fix", code=1)


def test_a_conflict_has_its_own_exit_code(cli, table, monkeypatch):
    begin = anabranch.Table.alter

    def overtaken(self):
        mine = begin(self)
        begin(self).rename_column("n", "m").apply()
        return mine

    monkeypatch.setattr(anabranch.Table, "alter", overtaken)
    assert "renamed 'n' to 'm'" in cli("--drop", "n", code=3)
