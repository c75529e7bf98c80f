"""The verb run, as far as it needs no Spark."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch
from anabranch.cli.job_statuses import ShownStatuses
from anabranch.cli.job_statuses import line_of as _line
from anabranch.cli.main import run
from anabranch.jobs.status import Activity, JobStatus, State
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


def test_the_plan_says_which_table_is_not_there(cli, tmp_path):
    assert "still to be made: there is no warehouse" in cli(DAILY, "--dry-run").out
    anabranch.connect(tmp_path / "wh").create_table("db.orders", "id BIGINT")
    (planned,) = json.loads(cli(DAILY, "--dry-run", "--json").out)
    assert planned["changes"][0].startswith("still to be made: table 'db.daily' does not exist")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--job", "no"), 1, "there is no job 'no'"),
        (("--available-now", "--once"), 2, "give one of the two"),
        (("--conf", "x"), 2, "write --option key=value"),
        (("--max-restarts", "-1"), 2, "--max-restarts"),
        (("--checkpoint", "a", "--checkpoints", "b"), 2, "give one of them"),
        (("--checkpoint", "a", "--checkpoints", "b", "--dry-run"), 2, "give one of them"),
    ],
)
def test_wrong_use_is_told(cli, words, code, said):
    assert said in cli(CLEAN, *words, code=code).err


def test_several_jobs_have_no_single_checkpoint(cli):
    both = DAILY + CLEAN.replace("import anabranch", "")
    said = cli(both, "--checkpoint", "a", code=2).err
    assert "one checkpoint is named for 2 jobs" in said
    assert "--checkpoints, or choose one job with --job" in said


def test_a_batch_job_beside_it_leaves_a_single_checkpoint_to_a_stream(cli):
    nightly = 'anabranch.sql_job("nightly", "SELECT * FROM o", sources={"o": anabranch.static("db.o")}, sink="db.n")\n'
    assert "nightly" in cli(DAILY + nightly, "--checkpoint", "a", "--dry-run").out


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


def _shown(json=False):
    return ShownStatuses(json=json)


AWAY = {"message": "the disk is full", "hint": "free some space"}


def test_hints_are_shown_with_failures_and_what_is_given_up_is_told_at_once(capsys):
    with _shown() as shown:
        shown.update([JobStatus("a", "db.a", State.PAUSING, **AWAY)])
        assert capsys.readouterr().out == "a: pausing: the disk is full\n  hint: free some space\n"
        gone = JobStatus("a", "db.a", State.FAILED, **AWAY)
        other = JobStatus("b", "db.b", State.RUNNING)
        shown.update([gone, other])
        assert capsys.readouterr().err == "Error: job 'a': the disk is full\n  hint: free some space\n"
        shown.update([gone, JobStatus("b", "db.b", State.STOPPED)])
        assert capsys.readouterr().err == "", "once"


def test_waiting_for_rows_and_working_by_turns_is_no_event_but_getting_stuck_is(capsys):
    with _shown() as shown:
        for activity in (Activity.STARTING, Activity.IDLE, Activity.WORKING, Activity.IDLE):
            shown.update([JobStatus("a", "db.a", State.RUNNING, 3, 5, activity=activity)])
        assert capsys.readouterr().out == "a: running\n"
        shown.update([JobStatus("a", "db.a", State.RUNNING, 3, 5, activity=Activity.STUCK)])
        assert capsys.readouterr().out == "a: stuck\n"
        shown.update([JobStatus("a", "db.a", State.RUNNING, 4, 5, activity=Activity.WORKING)])
        assert capsys.readouterr().out == "a: running\n"


def test_errors_in_json_keep_their_hint_and_their_time(capsys):
    with _shown(json=True) as shown:
        failed = JobStatus(
            "a", "db.a", State.PAUSING, **AWAY, last_error="the disk is full", last_error_millis=5
        )
        shown.update([failed])
        shown.update([replace(failed, state=State.RUNNING)])
        for line in capsys.readouterr().out.splitlines():
            said = json.loads(line)
            assert (said["hint"], said["last_error_millis"]) == ("free some space", 5)
            assert said["time_millis"] > 1_700_000_000_000


def test_a_closed_pipe_stops_the_jobs(tmp_path):
    program = (
        "from anabranch.cli.job_statuses import ShownStatuses\n"
        "from anabranch.jobs.status import Activity, JobStatus, State\n"
        "import sys\n"
        "with ShownStatuses(json=False) as shown:\n"
        "    shown.on_closed = lambda: print('stopped', file=sys.stderr)\n"
        "    sys.stdin.readline()\n"
        "    for batch in range(3):\n"
        "        shown.update([JobStatus('a', 'db.a', State.RUNNING, batch)])\n"
        "sys.exit(7 if shown.is_closed else 0)\n"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    process.stdout.close()
    _, said = process.communicate("\n", timeout=60)
    assert process.returncode == 7
    assert said == "standard output is closed, nobody reads it: the jobs are stopped\nstopped\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_below_the_output_stops_the_jobs():
    program = (
        "from anabranch.cli import streams\n"
        "from anabranch.cli.job_statuses import ShownStatuses\n"
        "from anabranch.jobs.status import JobStatus, State\n"
        "import sys\n"
        "streams.make_ready()\n"
        "with ShownStatuses(json=True) as shown:\n"
        "    shown.on_closed = lambda: print('stopped', file=sys.stderr)\n"
        "    for batch in range(3):\n"
        "        shown.update([JobStatus('a', 'db.a', State.RUNNING, batch)])\n"
        "sys.exit(7 if shown.is_closed else 0)\n"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 7
    said = "standard output cannot be written (No space left on device): the jobs are stopped\nstopped\n"
    assert done.stderr == said


def test_a_jvm_that_is_gone_has_an_exit_code_of_its_own(cli, monkeypatch):
    from py4j.protocol import Py4JNetworkError

    from anabranch.jobs import command as service

    def run(*_, **__):
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(service, "run", run)
    said = cli(CLEAN, code=5).err
    assert "Spark's JVM is gone" in said
    assert "not an error we know" not in said


@pytest.mark.parametrize(
    ("states", "code"),
    [("ended stopped", 0), ("stopped failed", 1), ("fenced stopped", 3), ("lost failed", 5), ("skipped", 1)],
)
def test_exit_codes_say_what_happened(cli, monkeypatch, states, code):
    from anabranch.jobs import command as service

    ended = [JobStatus(f"j{n}", "db.t", State(name)) for n, name in enumerate(states.split())]
    monkeypatch.setattr(service, "run", lambda *_, **__: ended)
    cli(CLEAN, code=code)


def test_a_quiet_job_is_written_again_after_a_while_with_how_far_it_is_behind(capsys):
    from anabranch.jobs.records import Behind
    from anabranch.runtime import Runtime
    from tests.jobs.supervising import Time

    time = Time()
    runtime = Runtime(clock=time, ids=time, sleeper=time)
    behind = {"db.raw": Behind(2, 4.5)}
    idle = JobStatus("a", "db.a", State.RUNNING, 3, 5, activity=Activity.IDLE)
    over = JobStatus("b", "db.b", State.FAILED)
    with ShownStatuses(json=True, heartbeat_seconds=10, lag=lambda job: behind, runtime=runtime) as shown:
        for seconds in (0, 9, 10.5, 12, 20.4, 20.6):
            time.now = seconds
            shown.update([idle, over])
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["job"], one["event"]) for one in said] == [
        *(("a", "change"), ("b", "change")),
        *(("a", "heartbeat"), ("a", "heartbeat")),
    ]
    assert said[-1]["behind"] == {"db.raw": {"snapshots": 2, "seconds": 4.5}}
    assert (said[-1]["activity"], said[-1]["batch"]) == ("idle", 3)


def test_on_a_terminal_a_table_shows_times_that_pass(monkeypatch):
    from io import StringIO

    from rich.console import Console

    from anabranch.cli import job_statuses
    from anabranch.jobs.records import Behind
    from anabranch.runtime import SYSTEM

    screen = StringIO()
    monkeypatch.setattr(job_statuses, "console", Console(file=screen, force_terminal=True, width=160))
    done = SYSTEM.clock.now_millis() - 300_000
    status = JobStatus("a", "db.a", State.RUNNING, 3, 5, 2.5, activity=Activity.IDLE, batch_millis=done)
    with ShownStatuses(json=False, lag=lambda job: {"db.raw": Behind(7, 130)}) as shown:
        shown.update([status])
    text = screen.getvalue()
    for part in ("running (idle)", "5 min ago", "db.raw: 7 (2 min)"):
        assert part in text
