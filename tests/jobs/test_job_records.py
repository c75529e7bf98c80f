"""What runs on a warehouse, from another terminal: `jobs`, `stop` and `restart`."""

import json
import os
import threading
from dataclasses import replace

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.jobs.board import Board, JobRecord
from anabranch.jobs.lease import Wanted
from anabranch.jobs.status import Activity, JobStatus, Process, State
from anabranch.jobs.taking import take
from anabranch.storage.open import open_storage
from tests.support.tables import make_table, rows

CLEAN = Wanted("clean", "clean", "db.orders")
RUNNING = JobStatus("clean", "db.orders", State.RUNNING, 3, 5, 70.5, activity=Activity.WORKING)


@pytest.fixture
def warehouse(tmp_path):
    raw = make_table(tmp_path / "wh", "db.raw")
    for number in range(5):
        raw.append(rows(number, 1))
    return tmp_path / "wh"


@pytest.fixture
def board(warehouse):
    return Board(open_storage(str(warehouse)))


@pytest.fixture
def cli(warehouse, capsys):
    def call(*words, code=0):
        capsys.readouterr()
        found = run(["-w", str(warehouse), *words])
        output = capsys.readouterr()
        assert found == code, output
        return output

    return call


def noted(board, *statuses):
    leases = take(board, [Wanted(one.job, one.job, one.sink) for one in statuses])
    leases.note(statuses)
    leases.beat()
    return leases


def test_without_jobs_there_is_nothing_and_a_code_for_it(cli):
    assert cli("jobs", "--json", code=8).out == ""


def test_a_job_is_shown_with_who_runs_it_and_how_far_it_is(cli, board):
    own = Process.own()
    noted(board, replace(RUNNING, read={"db.raw": 3}, last_error="away", last_error_millis=5, batch_millis=6))
    (said,) = map(json.loads, cli("jobs", "--json").out.splitlines())
    assert (said["job"], said["host"], said["pid"], said["state"]) == ("clean", own.host, own.pid, "running")
    assert (said["batch"], said["rows_per_second"], said["last_error"]) == (3, 70.5, "away")
    assert said["behind"]["db.raw"]["snapshots"] == 2
    assert 0 < said["late_seconds"] < 600
    text = cli("jobs").out
    assert f"{own.host}:{own.pid}" in text
    assert "db.raw: 2 (" in text
    assert "recovered; " in text


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        (replace(RUNNING, activity=Activity.IDLE), "idle", 0),
        (replace(RUNNING, activity=Activity.STARTING), "starting", 0),
        (replace(RUNNING, activity=Activity.STUCK), "stuck", 6),
        (replace(RUNNING, state=State.PAUSING, activity=None, message="away", hint="mount it"), "pausing", 0),
        (replace(RUNNING, state=State.FAILED, activity=None, message="no", hint="do this"), "failed", 1),
        (replace(RUNNING, state=State.STOPPED, activity=None), "stopped", 0),
    ],
)
def test_what_a_job_is_doing_is_a_word_and_an_exit_code(cli, board, status, state, code):
    noted(board, status)
    (said,) = map(json.loads, cli("jobs", "--json", code=code).out.splitlines())
    assert said["state"] == state
    assert (said["message"], said["hint"]) == (status.message, status.hint)
    if status.hint:
        assert f"(hint: {status.hint})" in cli("jobs", code=code).out


def test_a_job_that_is_late_has_a_code(cli, board):
    noted(board, replace(RUNNING, read={"db.raw": 3}))
    cli("jobs", "--late-after", "0", code=7)
    cli("jobs", "--late-after", "3600")


def test_a_job_whose_process_was_killed_is_gone(cli, board):
    here = Process.own()
    dead = replace(here, born="1")
    board.claim(JobRecord("clean", 1, dead, "t", 0, "clean", "db.orders", status=RUNNING))
    (said,) = map(json.loads, cli("jobs", "--json", code=1).out.splitlines())
    assert said["state"] == "gone"
    assert f"process {here.pid} on {here.host} has ended" in cli("stop", "clean", code=1).err


def test_a_job_that_was_left_to_one_that_never_came_is_gone(cli, board):
    """Nobody runs it, and whoever watches is to see that."""
    taken = replace(RUNNING, state=State.TAKEN, message="process 7 on b took it over")

    def written(seconds_ago):
        now = board.runtime.clock.now_millis() - int(seconds_ago * 1000)
        return JobRecord("clean", 1, Process.own(), "t", 0, "clean", "db.orders", 3, now, taken)

    board.claim(written(20))
    assert json.loads(cli("jobs", "--json").out)["state"] == "taken"
    board.write(written(200))
    (said,) = map(json.loads, cli("jobs", "--json", code=1).out.splitlines())
    assert (said["state"], said["message"]) == ("gone", "process 7 on b took it over")


def test_a_process_that_lives_and_does_not_write_its_record_is_silent(cli, board):
    def written(seconds_ago):
        now = board.runtime.clock.now_millis() - int(seconds_ago * 1000)
        return JobRecord("clean", 1, Process.own(), "t", 0, "clean", "db.orders", 3, now, RUNNING)

    board.claim(written(60))
    assert json.loads(cli("jobs", "--json").out)["state"] == "running"
    board.write(written(200))
    assert json.loads(cli("jobs", "--json", code=1).out)["state"] == "silent"


def test_a_damaged_record_is_shown(cli, board, warehouse):
    leases = noted(board, RUNNING)
    noted(board, JobStatus("daily", "db.daily", State.ENDED))
    file = warehouse / "_jobs" / "clean" / "run-1"
    file.write_bytes(file.read_bytes()[:100])
    said = {one["job"]: one for one in map(json.loads, cli("jobs", "--json").out.splitlines())}
    assert "damaged" in said["clean"]["message"]
    os.utime(file, (1e9, 1e9))
    assert "silent" in cli("jobs", code=1).out
    leases.beat()
    assert "damaged" not in cli("jobs").out, "its process mends it"


@pytest.mark.parametrize(
    "wrong",
    [
        {"restarts": "x"},
        {"batch_millis": "now"},
        {"batch": 10**400},
        {"state": "flying"},
        {"activity": []},
        {"message": 5},
        {"read": ["x"]},
        {"read": {"db.raw": "x"}},
        {"rows_per_second": "fast"},
        {"last_error_millis": 10**20},
        {"job": {}},
    ],
)
def test_a_made_up_record_is_a_damaged_one(cli, board, warehouse, wrong):
    noted(board, RUNNING)
    file = warehouse / "_jobs" / "clean" / "run-1"
    record = json.loads(file.read_bytes())
    file.write_text(json.dumps({**record, "status": {**record["status"], **wrong}}))
    (said,) = map(json.loads, cli("jobs", "--json").out.splitlines())
    assert "damaged" in said["message"]


def test_a_record_leaves_out_what_an_earlier_release_did_not_write(board, warehouse):
    leases = noted(board, RUNNING)
    file = warehouse / "_jobs" / "clean" / "run-1"
    record = json.loads(file.read_bytes())
    kept = {key: value for key, value in record["status"].items() if value is not None}
    file.write_text(json.dumps({**record, "status": kept}))
    found = board.newest("clean")
    assert found is not None
    assert (found.status, found.process) == (RUNNING, Process.own())
    leases.beat()
    assert board.newest("clean").status == RUNNING


def test_what_cannot_be_asked_says_who_runs(cli, board):
    dead = replace(Process.own(), born="1")
    board.claim(JobRecord("clean", 1, dead, "t", 0, "clean", "db.orders", status=RUNNING))
    said = cli("stop", "clean", code=1).err
    assert "has ended" in said
    assert "there run" not in said
    noted(board, replace(RUNNING, job="daily"))
    assert "there run: daily." in cli("stop", "clean", code=1).err


def supervised(board, leases, *, stops=True):
    """What the process of a job does when it looks: it takes in what is asked, and does it at the next look."""
    done = threading.Event()

    def work():
        asked, restarts = {}, 0
        while not done.wait(0.05):
            leases.beat()
            for what, _ in asked.values():
                if what == "stop" and stops:
                    leases.note([replace(RUNNING, state=State.STOPPED, activity=None)])
                elif what == "restart":
                    restarts += 1
                    leases.note([replace(RUNNING, restarts=restarts)])
            asked = leases.asks()

    thread = threading.Thread(target=work)
    thread.start()
    return lambda: (done.set(), thread.join())


def test_a_job_is_stopped_and_restarted_from_another_terminal(cli, board):
    end = supervised(board, noted(board, RUNNING))
    try:
        assert "clean: running, process" in cli("restart", "clean").out
        assert "clean: stopped, process" in cli("stop", "clean").out
        assert "it is over (stopped)" in cli("stop", "clean", code=1).err
        assert "clean: running, process" in cli("restart", "clean").out
        assert "nobody runs it" in cli("stop", "daily", code=1).err
    finally:
        end()


def test_one_that_does_not_stop_is_told(cli, board):
    end = supervised(board, noted(board, RUNNING), stops=False)
    try:
        said = cli("stop", "clean", "--limit", "0.5", code=1).err
    finally:
        end()
    assert "has not within" in said
    assert "it is still asked" in said
    assert f"{Process.own().pid} on {Process.own().host}" in said


def test_records_are_no_database(warehouse, board):
    noted(board, RUNNING)
    assert anabranch.connect(str(warehouse)).databases() == ["db"]
