"""Standard streams that are closed or full: what was asked is done, once, and said where it can be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.support.lengths import first_short

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "one.csv").write_text("id\n3\n")
    return anabranch.connect(str(tmp_path / "lake")).create_table("db.t", "id BIGINT")


@pytest.fixture
def shell(tmp_path, table):
    """Run a command with redirections of a shell, and return it done."""

    def call(words, redirections, **how):
        line = f'exec "$0" -m anabranch -w lake {words} {redirections}'
        return subprocess.run(
            ["sh", "-c", line, sys.executable],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            **how,
        )

    return call


def ids(table):
    return [row["id"] for row in table.scan().to_arrow().to_pylist()]


@pytest.mark.parametrize("closed", first_short([">&-", "2>&-", "<&- >&- 2>&-"]))
def test_closed_streams_lead_nowhere(shell, table, closed):
    done = shell("append db.t one.csv", closed)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.split() else "appended 1 rows to db.t: snapshot 1\n")
    assert ids(table) == [3]


@pytest.mark.long
def test_an_error_keeps_its_exit_code_where_nobody_hears_it(shell):
    assert shell("read db.t --filter 'nope = 1'", ">&- 2>&-").returncode == 2


@pytest.mark.parametrize(
    "words", first_short(["append db.t - --format csv", "append db.t - --format json", "sql -f -"])
)
def test_a_closed_standard_input_is_named(shell, table, words):
    done = shell(words, "<&-")
    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
    assert "name a file" in done.stderr
    assert ids(table) == []


@needs_full
def test_what_was_done_is_not_taken_for_failed_where_its_output_is_lost(shell, table):
    done = shell("append db.t one.csv", "> /dev/full")
    assert done.returncode == 74
    assert done.stderr == (
        "Error: standard output cannot be written: No space left on device\n"
        "  hint: what was asked was done; do not run it again for what it would have printed.\n"
    )
    done = shell("create-tag db.t --name g --json", "> /dev/full")
    assert done.returncode == 74
    assert json.loads(done.stderr) == {
        "error": "OutputLost",
        "message": "standard output cannot be written: No space left on device",
        "hint": "what was asked was done; do not run it again for what it would have printed.",
        "exit_code": 74,
    }
    assert (ids(table), list(table.tags())) == ([3], ["g"])


@pytest.mark.long
@needs_full
def test_work_goes_on_to_its_end_where_its_output_is_lost_on_the_way(shell, table):
    for n in range(2):
        table.append([{"id": n}])
    done = shell("maintain db", "> /dev/full")
    assert done.returncode == 74, done.stderr
    assert "what was asked was done" in done.stderr


@needs_full
@pytest.mark.parametrize(
    "words",
    first_short(["read db.t", "read db.t --json", "read -h", "remove-orphan-files db.t --dry-run"], 2),
)
def test_output_that_is_not_all_there_is_told(shell, table, words):
    table.append([{"id": 1}])
    done = shell(words, "> /dev/full")
    assert done.returncode == 74
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "what was printed is not all" in done.stderr


@pytest.mark.long
@needs_full
def test_a_full_standard_error_changes_nothing(shell, table):
    done = shell("append db.t one.csv --stats", "2> /dev/full")
    assert (done.returncode, done.stdout) == (0, "appended 1 rows to db.t: snapshot 1\n")
    assert shell("read db.t --filter 'nope = 1'", "2> /dev/full").returncode == 2
    assert shell("append db.t one.csv", "> /dev/full 2> /dev/full").returncode == 74
    assert ids(table) == [3, 3]


def test_what_nobody_reads_is_done_to_its_end(tmp_path, table):
    command = [sys.executable, "-m", "anabranch", "-w", "lake", "append", "db.t", "one.csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
    assert ids(table) == [3]
