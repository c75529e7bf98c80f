"""Every verb is there in Python, as a command, in SQL and as JSON, and does what its declaration says."""

import inspect
import json

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.format.schema.ddl import parse_columns
from anabranch.jobs import records
from anabranch.verbs.caller import Caller, Session
from anabranch.verbs.registry import PROCEDURES, VERBS, call, in_order
from tests.support.tables import make_table, rows

ONLY_COMMANDS = {"ui", "report", "doctor", "demo"}
"""What is about this machine."""
NOT_IN_SQL = {"run", "lineage export"}
"""They would hold up the statement for ever."""


def test_every_verb_has_every_form():
    for words, verb in VERBS.items():
        assert verb.help.endswith("."), words
        assert verb.has_json == (words != "ui"), words
        if words in ONLY_COMMANDS:
            continue
        holder, _, name = verb.python.rpartition(".")
        places = {"Table": anabranch.Table, "Lake": anabranch.Lake, "anabranch.jobs.records": records}
        assert name in dir(places[holder]), words
        assert (verb.columns or verb.sql) or words in NOT_IN_SQL, words


def test_names_in_sql_are_given_once_and_columns_can_be_read():
    assert len(PROCEDURES) == sum(verb.columns is not None for verb in VERBS.values())
    for name, verb in PROCEDURES.items():
        assert name.isidentifier()
        names = [parameter.sql_name for parameter in verb.of_procedure]
        assert len(names) == len(set(names)), name
        assert parse_columns(verb.columns)


def test_help_has_few_groups():
    groups = list(dict.fromkeys(verb.group for verb in in_order()))
    assert len(groups) <= 7
    assert groups[0] == "Tables and rows"


def test_flags_are_given_once():
    for words, verb in VERBS.items():
        flags = [flag for parameter in verb.parameters for flag in parameter.option.flags]
        assert len(flags) == len(set(flags)), words
        assert not {"-h", "--json"} & set(flags), words


def of_one_table(verb):
    required = [parameter.name for parameter in verb.parameters if parameter.is_required]
    return required == ["table"] and verb.parent is None


LOOKS = [verb for verb in VERBS.values() if of_one_table(verb) and not verb.changes]


def stored(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", LOOKS, ids=lambda verb: verb.words)
def test_a_verb_that_only_looks_changes_nothing_and_answers_in_json(verb, tmp_path, capsys):
    table = make_table(tmp_path)
    for i in range(3):
        table.append(rows(i, 2))
    table.create_tag("good", 2)
    table.create_savepoint(1)
    table.create_branch("fix", "good")
    before = stored(tmp_path)
    assert run(["-w", str(tmp_path), verb.name, "db.t", "--json"]) == 0, capsys.readouterr()
    for line in capsys.readouterr().out.splitlines():
        json.loads(line)
    assert run(["-w", str(tmp_path), verb.name, "db.t"]) == 0, capsys.readouterr()
    assert capsys.readouterr().out or verb.name == "options"
    assert stored(tmp_path) == before


DRY = [
    verb
    for verb in VERBS.values()
    if of_one_table(verb) and "dry_run" in inspect.signature(verb.function).parameters
]


@pytest.mark.parametrize("verb", DRY, ids=lambda verb: verb.words)
def test_a_dry_run_changes_nothing(verb, tmp_path, capsys):
    table = make_table(tmp_path)
    for i in range(12):
        table.append(rows(i, 2))
    before = stored(tmp_path)
    more = ["--drop", "v"] if verb.name == "alter-table" else []
    code = run(["-w", str(tmp_path), verb.name, "db.t", "--dry-run", *more])
    said = capsys.readouterr()
    assert code == 0 or "partition.expiration-time" in said.err, said
    assert stored(tmp_path) == before


def test_groups_are_made_listed_and_taken_back_by_procedures(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    for name in ("db.a", "db.b"):
        table = lake.create_table(name, "id BIGINT")
        table.append([{"id": 1}])
        table.create_tag("good")
        table.create_branch("fix", "good")
        table.branch("fix").append([{"id": 2}])

    def called(name, **given):
        verb = PROCEDURES[name]
        columns = [field.name for field in parse_columns(verb.columns)]
        found = call(verb, Session(lambda: anabranch.connect(str(tmp_path)), None), given)
        return [dict(zip(columns, row, strict=True)) for row in found]

    made = called("replace_group", branches="db.a=fix, db.b=fix")
    assert [(row["table"], row["branch"]) for row in made] == [("db.a", "fix"), ("db.b", "fix")]
    assert {(row["table"], row["outcome"]) for row in called("groups")} == {
        ("db.a", "replaced"),
        ("db.b", "replaced"),
    }
    assert lake.table("db.a").scan().count() == 2
    undone = called("undo_group")
    assert {row["table"] for row in undone} == {"db.a", "db.b"}
    assert lake.table("db.b").scan().count() == 1


def test_a_verb_is_called_as_a_function(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 2))
    verb = VERBS["create-tag"]
    (answer,) = verb.answers(Caller(str(tmp_path)), {"table": "db.t", "name": "good"})
    assert (answer.value.name, answer.value.rows, table.tags()) == ("good", 2, ["good"])
