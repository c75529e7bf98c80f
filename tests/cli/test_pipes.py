"""What goes into a pipe: every row, one line each, and errors that programs can read."""

import io
import json
import subprocess
import sys

import pytest

import anabranch
from anabranch.cli import output
from anabranch.cli.main import run
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows


@pytest.fixture
def lake(tmp_path):
    make_table(tmp_path / "lake").append(rows(0, 150))
    return tmp_path / "lake"


@pytest.fixture
def cli(lake, capsys):
    def call(*words, code=0):
        assert run(["-w", str(lake), *words]) == code
        return capsys.readouterr()

    return call


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(output, "on_terminal", lambda: True)


def test_a_pipe_gets_all_rows_and_nothing_is_said(cli):
    said = cli("read", "db.t", "--json")
    assert [json.loads(line)["id"] for line in said.out.splitlines()] == list(range(150))
    assert said.err == ""
    assert len(cli("read", "db.t").out.splitlines()) == 151


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_terminal_gets_twenty_rows_and_is_told_so_beside_them(cli, terminal, words):
    said = cli("read", "db.t", *words)
    assert len(said.out.splitlines()) == (20 if words else 21)
    assert said.err == "(the first 20 rows; --limit all shows all)\n"
    assert cli("read", "db.t", "--filter", "id < 20", *words).err == "", "there are no more"
    assert len(cli("read", "db.t", "--limit", "all", "--json").out.splitlines()) == 150


@pytest.mark.parametrize(("limit", "count"), [("0", 0), ("7", 7), ("all", 150), ("1000", 150)])
def test_a_limit_that_is_given_means_what_it_means_in_python(cli, lake, limit, count):
    said = cli("read", "db.t", "--json", "--limit", limit)
    assert len(said.out.splitlines()) == count
    assert ("--limit all" in said.err) == (count < 150)
    asked = None if limit == "all" else int(limit)
    import anabranch

    assert anabranch.connect(str(lake)).table("db.t").scan(limit=asked).to_arrow().num_rows == count


def test_what_is_no_limit_is_refused_everywhere(cli, lake):
    import anabranch

    table = anabranch.connect(str(lake)).table("db.t")
    for wrong in (-1, 1.5, True):
        with pytest.raises(anabranch.InvalidInputError, match="no number of rows"):
            table.scan(limit=wrong)
        with pytest.raises(anabranch.InvalidInputError, match="no number of rows"):
            table.diff().rows(limit=wrong)
    for verb in (["read", "db.t"], ["snapshots", "db.t"], ["sql", "SELECT 1"], ["read", "db.t$files"]):
        assert "no number of rows" in cli(*verb, "--limit", "-1", code=2).err


def test_many_rows_in_a_pipe_are_written_as_they_come(cli, monkeypatch):
    monkeypatch.setattr(output, "_LINES_AT_ONCE", 40)
    lines = cli("read", "db.t").out.splitlines()
    assert lines[0].split() == ["id", "v"]
    assert [line.split() for line in lines[1:]] == [[str(i), f"v{i}"] for i in range(150)]


def test_a_row_is_a_line_whatever_the_values_hold(tmp_path, capsys):
    table = make_table(tmp_path, name="db.hostile")
    hostile = ["a\nb", "\x1b[31m", "\r", "\u2028", "x" * 300, "日本", None]
    table.append([{"id": i, "v": value} for i, value in enumerate(hostile)])
    for words in (["read", "db.hostile"], ["read", "db.hostile", "--json"]):
        assert run(["-w", str(tmp_path), *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(hostile) + ("--json" not in words)
    assert run(["-w", str(tmp_path), "describe", "db.hostile"]) == 0
    assert any(line.startswith("location") for line in capsys.readouterr().out.splitlines())


def test_errors_are_json_where_results_are(cli):
    error = json.loads(cli("read", "db.nope", "--json", code=1).err)
    assert error["error"] == "NotFoundError"
    assert "db.nope" in error["message"]
    assert "tables there are: t" in error["hint"]
    assert error["exit_code"] == 1
    assert json.loads(cli("read", "--json", code=2).err)["error"] == "UsageError"
    assert json.loads(cli("read", "db.t", "--json", "--filter", "nope = 1", code=2).err)["exit_code"] == 2


def test_commands_that_are_suggested_run_as_they_are_printed(tmp_path, capsys):
    place = tmp_path / "my lake"
    table = make_table(place)
    for i in range(8):
        table.append(rows(i, 1))
    assert run(["-w", str(place), "health", "db.t"]) == 0
    [command] = [line.strip() for line in capsys.readouterr().out.splitlines() if "anabranch" in line]
    assert command == f"anabranch -w '{place}' compact db.t --full"
    assert run(["-w", str(place), "health", "db.t", "--json"]) == 0
    [state] = json.loads(capsys.readouterr().out)
    assert state["findings"][0]["command"] == command
    import shlex

    assert run(shlex.split(command)[1:]) == 0
    assert run(["-w", str(place), "health", "db.t"]) == 0
    assert "100 of 100" in capsys.readouterr().out


def test_a_warehouse_of_the_environment_needs_no_name(tmp_path, capsys, monkeypatch):
    table = make_table(tmp_path)
    for i in range(8):
        table.append(rows(i, 1))
    monkeypatch.setenv("ANABRANCH_WAREHOUSE", str(tmp_path))
    assert run(["health", "db.t"]) == 0
    assert "  anabranch compact db.t --full\n" in capsys.readouterr().out


def test_a_table_of_a_pipe_is_as_wide_as_it_must(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    output.show_pairs([("name", "v" * 200), ("n", 1234)])
    import sys

    assert sys.stdout.getvalue() == f"name  {'v' * 200}\nn     1,234\n"


@pytest.mark.parametrize(
    "words", first_short([["read", "db.t"], ["read", "db.t", "--json"], ["sql", "SELECT * FROM db.t"]])
)
def test_a_reader_that_goes_away_ends_it_as_other_programs(tmp_path, words):
    anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT").append(
        [{"id": n} for n in range(100_000)]
    )
    code = "import sys; from anabranch.cli.main import main; main()"
    command = [sys.executable, "-c", code, "-w", str(tmp_path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
