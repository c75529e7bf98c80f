"""What the command line says to do next can be typed there."""

import ast
import re
from pathlib import Path

import pytest
import typer.main

import anabranch
from anabranch.cli.main import app, run
from tests.support.tables import make_table, rows

SOURCES = Path(anabranch.__file__).parent
PYTHON_CALL = re.compile(r"\b[a-z][a-z_]*(\.[a-z_]+)*\(")
VERBS = {*typer.main.get_command(app).commands}
SHARED = ("kernel", "maintenance", "catalog", "verbs", "system_tables", "format/schema/change_text.py")
"""What the command line reaches; other parts speak of the Python values they were given."""
OF_OPTIONS = {"truncate("}
"""Values of options that are written so."""


@pytest.fixture
def said(tmp_path, capsys):
    """The message and the hint of a command that fails, on a table of three snapshots and a queue."""
    table = make_table(tmp_path, partition_by=["v"])
    for i in range(3):
        table.append(rows(i, 1))
    table.create_tag("good", 2)
    table.create_savepoint(1)
    anabranch.connect(str(tmp_path)).create_table("db.queue", "id BIGINT", options={"bucket": "1"})
    (tmp_path / "nulls.csv").write_text("id,v\n,1\n")

    def call(*words):
        words = [word.replace("TMP", str(tmp_path)) for word in words]
        assert run(["-w", str(tmp_path), *words]) in (1, 2, 3), capsys.readouterr()
        message, _, hint = capsys.readouterr().err.partition("\n  hint: ")
        assert message.startswith("Error: ")
        return message, hint

    return call


FAILING = [
    ("create-tag db.t --name good", "`replace-tag`"),
    ("create-tag db.t --name 5", ""),
    ("create-tag db.t --name x --snapshot 99", "nearest"),
    ("delete-tag db.t --name anabranch-savepoint-1", "`delete-savepoint`"),
    ("delete-tag db.t --name nope", "good"),
    ("replace-tag db.t --name good --retained x", "7 d"),
    ("delete-savepoint db.queue --id 1 --yes", "`create-savepoint`"),
    ("delete-savepoint db.t --id 7 --yes", "1"),
    ("create-savepoint db.queue", ""),
    ("read db.t --at nope", "good"),
    ("read db.t --at 2001-01-01", "snapshot.1"),
    ("read db.t --at savepoint.9", "1"),
    ("read db.t --filter nope>1", ""),
    ("read db.t --columns nope", ""),
    ("read db.nope", ""),
    ("read nope.t", ""),
    ("read db.t$nope", ""),
    ("describe db.t$files", "anabranch read"),
    ("describe sys.tables", "anabranch read"),
    ("create-table db.t id_BIGINT", ""),
    ("create-table db.u x", ""),
    ("alter-table db.t --drop v", ""),
    ("alter-table db.t --set bucket=4", ""),
    ("alter-table db.t --widen id=INT", ""),
    ("append db.t TMP/nope.csv", ""),
    ("append db.t TMP/nulls.csv", ""),
    ("append db.t TMP/nulls.xyz", "--format"),
    ("sort-compact db.queue --order-by id", "`compact`"),
    ("sort-compact db.t --order-by v", ""),
    ("sort-compact db.t --order-by id --strategy nope", "zorder"),
    ("compact db.t --partition nope", ""),
    ("compact db.t --partition-idle-time nope", ""),
    ("expire-snapshots db.t --older-than nope --yes", ""),
    ("expire-snapshots nope --yes", ""),
    ("remove-orphan-files db.t --older-than nope --yes", ""),
    ("remove-orphan-files db.t --older-than 5 --yes", "30 min"),
    ("restore-orphan-files db.t --run 7", ""),
    ("rollback db.t --to nope --yes", "good"),
    ("rollback db.t --to 1 --destructive --yes", ""),
    ("rollback db.t --to good --branch nope --yes", "main"),
    ("consumers db.t --delete nope --yes", ""),
    ("consumers db.t --reset nope", ""),
    ("health db.nope", ""),
]


@pytest.mark.parametrize(("command", "expected"), FAILING, ids=[command for command, _ in FAILING])
def test_a_hint_can_be_followed_on_the_command_line(said, command, expected):
    message, hint = said(*(word.replace("id_BIGINT", "id BIGINT") for word in command.split()))
    assert expected in hint
    for text in (message, hint):
        assert not PYTHON_CALL.search(text), text
    named = set(re.findall(r"`([a-z_-]+)`", hint))
    assert named <= VERBS, hint


def test_hints_of_shared_parts_name_operations_without_calling_them():
    files = [
        file
        for part in SHARED
        for file in ([SOURCES / part] if part.endswith(".py") else (SOURCES / part).rglob("*.py"))
    ]
    hints = [(file, hint) for file in files for hint in _hints(ast.parse(file.read_text()))]
    assert len(hints) > 80
    for file, hint in hints:
        calls = {found[0] for found in PYTHON_CALL.finditer(hint)} - OF_OPTIONS
        assert not calls, f"{file}: {hint}"


def _hints(tree):
    """The texts that are handed over as hints, or are given that name before."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="hint", value=given) | ast.Assign(targets=[ast.Name("hint")], value=given):
                texts = (part.value for part in ast.walk(given) if isinstance(part, ast.Constant))
                yield from (text for text in texts if isinstance(text, str))
