"""The verb sql: what needs no Spark here, and one script through a Spark that it starts itself."""

import json
import subprocess
import sys

import pytest

from anabranch.cli import main


def anabranch(*arguments, given=None):
    """Exit code, output and errors of a process of its own."""
    code = f"import sys; from anabranch.cli.main import run; sys.exit(run({list(arguments)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=280)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "there is no statement"),
        (["/* nothing */"], 2, "there is no statement"),
        (["SELECT 'x"], 2, "the quote is never closed"),
        (["-f", "nowhere.sql"], 1, "cannot read 'nowhere.sql'"),
        (["SELECT 1", "-f", "x.sql"], 2, "a statement and a file are given"),
    ],
)
def test_what_is_wrong_before_spark_starts(arguments, code, said, capsys, tmp_path):
    assert main.run(["-w", str(tmp_path), "sql", *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.spark
def test_a_script(tmp_path):
    script = """
        CREATE TABLE t (id INT, v STRING) WITH ('bucket' = '-1');  -- as the proposals write it
        INSERT INTO t VALUES (1, 'a;b'), (2, NULL);
        SELECT id, v, named_struct('at', DATE'2024-02-29') AS s FROM t ORDER BY id;
        SELECT nope FROM t;
        DROP TABLE t"""
    code, out, err = anabranch("-w", str(tmp_path), "sql", "--json", "-", given=script)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": 1, "v": "a;b", "s": {"at": "2024-02-29"}},
        {"id": 2, "v": None, "s": {"at": "2024-02-29"}},
    ]
    assert code == 1
    said = json.loads(err)
    assert said["message"].startswith(
        "A column, variable, or function parameter with name `nope` cannot be resolved."
    )
    assert "Traceback" not in err
    assert "WARN" not in err


@pytest.mark.spark
@pytest.mark.long
def test_tables_for_people(tmp_path):
    code, out, err = anabranch(
        "-w", str(tmp_path), "sql", "SELECT id FROM range(3); SHOW DATABASES", "--limit", "2"
    )
    assert (code, err) == (0, "(the first 2 rows; --limit all shows all)\n")
    assert out.split("\n")[:3] == ["id", " 0", " 1"]
    code, out, err = anabranch("-w", str(tmp_path), "sql", "DELETE FROM db.nope")
    assert code == 1
    assert "cannot be found" in err
