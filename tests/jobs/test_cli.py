"""The verb run, as far as it needs no Spark."""

import json
import sys

import pytest

from anabranch.cli.jobs import _line
from anabranch.cli.main import run
from anabranch.jobs.supervise import JobStatus, State
from tests.jobs.files import CLEAN, write


@pytest.fixture
def cli(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(text, *words, code=0):
        found = run(["-w", str(tmp_path / "wh"), "run", str(write(tmp_path, text)), *words])
        output = capsys.readouterr()
        assert found == code, output
        return output

    return call


DAILY = 'anabranch.sql_job("daily", "SELECT * FROM o", sources={"o": "db.orders"}, sink="db.daily")\n'


def test_the_plan_is_shown_in_the_order_of_the_starts(cli, tmp_path):
    plan = json.loads(cli(f"{DAILY}{CLEAN.replace('import anabranch', '')}", "--dry-run", "--json").out)
    assert [(one["job"], one["after"], one["trigger"]) for one in plan] == [
        ("clean", [], "every 5000 ms"),
        ("daily", ["clean"], "continuous"),
    ]
    assert plan[0]["sources"] == ["raw: table db.raw"]
    text = cli(DAILY + CLEAN.replace("import anabranch", ""), "--dry-run", "--job", "daily").out
    assert "o: table db.orders" in text
    assert "clean" not in text
    assert not (tmp_path / "wh").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--job", "no"), 1, "there is no job 'no'"),
        (("--available-now", "--once"), 2, "give one of the two"),
        (("--conf", "x"), 2, "write --option key=value"),
        (("--max-restarts", "-1"), 2, "--max-restarts"),
    ],
)
def test_wrong_use_is_told(cli, words, code, said):
    assert said in cli(CLEAN, *words, code=code).err


def test_a_wrong_file_is_told_without_a_trace(cli):
    said = cli("x = 1 / 0\n", code=1).err
    assert "jobs_of_test.py cannot be run: line 2: ZeroDivisionError" in said
    assert "Traceback" not in said
    assert "declares no jobs" in cli("x = 1\n", code=2).err


def test_lines_say_what_has_changed():
    started = JobStatus("clean", "db.t", State.RUNNING)
    assert _line(started, None) == "clean: running"
    assert _line(JobStatus("clean", "db.t", State.RUNNING, 3, 17), started) == "clean: batch 3, 17 rows"
    paused = JobStatus("clean", "db.t", State.PAUSING, 3, 17, message="away")
    assert _line(paused, started) == "clean: pausing: away"
    assert (
        _line(JobStatus("clean", "db.t", State.RUNNING, 3, 17, restarts=1), paused)
        == "clean: running (start 2)"
    )
