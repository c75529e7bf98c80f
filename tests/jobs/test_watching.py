"""Figures for Prometheus, and the user's command, from what a supervisor tells."""

import json
import re
import socket
import stat
import struct
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from anabranch.errors import InvalidInputError, OptionError
from anabranch.jobs import hooks
from anabranch.jobs.hooks import Hook, event_of
from anabranch.jobs.metrics import JobMetrics, metrics_of
from anabranch.jobs.status import Activity, JobStatus, State
from tests.support.tables import make_table, rows

RUNNING = JobStatus("clean", "db.t", State.RUNNING, 1, 5, 2.5, activity=Activity.WORKING, batch_millis=7_000)
AWAY = {"message": "away", "hint": "mount it", "last_error": "away", "last_hint": "mount it"}
FAILING = replace(RUNNING, state=State.PAUSING, activity=None, **AWAY, last_error_millis=9_000)
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)+)\} (-?[0-9.e+]+)')


def samples(text):
    """Every line, by name and labels, as the format has it."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter))", line)
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        found[name, labels] = float(value)
    return found


def test_figures_are_served_and_count_what_happened():
    metrics = JobMetrics()
    metrics.note([RUNNING])
    metrics.note([RUNNING])
    metrics.note([replace(RUNNING, batch=2, rows=10, restarts=1)])
    metrics.note([FAILING])
    metrics.note([replace(FAILING, state=State.RUNNING, activity=Activity.IDLE)])
    with metrics.served(0) as address:
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            found = samples(answer.read().decode())
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.replace("metrics", "else"))
        port = int(address.rpartition(":")[2].partition("/")[0])
        with pytest.raises(InvalidInputError, match="--metrics|cannot be served"), metrics.served(port):
            pass
    who = 'job_name="clean",sink="db.t"'
    assert found["anabranch_job_rows_total", who] == 20
    assert found["anabranch_job_batches_total", who] == 3
    assert found["anabranch_job_failures_total", who] == 1
    assert found["anabranch_job_last_batch_timestamp_seconds", who] == 7
    states = {labels: value for (name, labels), value in found.items() if name == "anabranch_job_state"}
    assert [labels for labels, value in states.items() if value] == [f'{who},state="idle"']


def test_who_asks_and_goes_away_leaves_no_traceback(capfd):
    asked, left = threading.Event(), threading.Event()

    def slow(_):
        asked.set()
        assert left.wait(20)
        return {}

    metrics = JobMetrics(slow)
    metrics.note([RUNNING])
    with metrics.served(0) as address:
        port = int(address.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            asking.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert asked.wait(20)
        left.set()
    assert "Traceback" not in capfd.readouterr().err


def test_labels_are_escaped():
    metrics = JobMetrics()
    metrics.note([replace(RUNNING, sink='a"b\\c\nd')])
    assert 'sink="a\\"b\\\\c\\nd"' in metrics.text()
    samples(metrics.text())


def test_how_far_a_job_is_behind_is_asked_of_the_tables(tmp_path):
    table = make_table(tmp_path)
    for number in range(3):
        table.append(rows(number, 1))
    metrics = metrics_of(str(tmp_path))
    metrics.note([replace(RUNNING, read={"db.t": 1, "db.gone": 1})])
    found = samples(metrics.text())
    assert found["anabranch_job_behind_snapshots", 'job_name="clean",sink="db.t",source="db.t"'] == 2
    assert not [labels for _, labels in found if "db.gone" in labels]


STUCK = replace(RUNNING, activity=Activity.STUCK)


@pytest.mark.parametrize(
    ("before", "now", "event"),
    [
        (None, RUNNING, None),
        (RUNNING, replace(RUNNING, batch=2), None),
        (RUNNING, FAILING, "failing"),
        (FAILING, FAILING, None),
        (FAILING, replace(FAILING, last_error_millis=10_000), "failing"),
        (FAILING, replace(FAILING, state=State.RUNNING), None),
        (replace(FAILING, state=State.RUNNING), replace(RUNNING, last_error="away"), "recovered"),
        (FAILING, replace(FAILING, state=State.FAILED), "failed"),
        (None, replace(FAILING, state=State.FENCED), "failed"),
        (RUNNING, STUCK, "stuck"),
        (STUCK, STUCK, None),
        (STUCK, RUNNING, "recovered"),
        (RUNNING, replace(RUNNING, state=State.STOPPED, activity=None), None),
    ],
)
def test_what_a_hook_is_told(before, now, event):
    assert event_of(before, now) == event


def test_a_hook_gets_what_happened_and_cannot_harm_the_jobs(tmp_path, caplog):
    script, said = tmp_path / "alert.sh", tmp_path / "said"
    script.write_text(
        f'#!/bin/sh\necho "$ANABRANCH_EVENT|$ANABRANCH_JOB|$ANABRANCH_MESSAGE|$1" >> {said}\ncat >> {said}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    hook = Hook.of(f"{script} 'an argument'")
    for statuses in ([RUNNING], [FAILING], [replace(FAILING, state=State.FAILED)]):
        hook.note(statuses)
    hook.wait()
    text = said.read_text()
    assert "failing|clean|away|an argument" in text
    assert "failed|clean|away|an argument" in text
    first = json.loads(re.search(r"\{.*?\}(?=\w|$)", text)[0])
    assert (first["event"], first["hint"]) == ("failing", "mount it")
    for command in (str(tmp_path / "nothing"), "false"):
        other = Hook.of(command)
        other.note([FAILING])
        other.wait()
    assert "did not run" in caplog.text
    assert "ended with 1" in caplog.text
    for wrong in ("", "'"):
        with pytest.raises(OptionError):
            Hook.of(wrong)


def test_a_hook_that_hangs_holds_up_neither_the_end_nor_memory(caplog, monkeypatch):
    monkeypatch.setattr(hooks, "_SECONDS", 1.0)
    monkeypatch.setattr(hooks, "_MOST_WAITING", 3)
    hook = Hook.of("sleep 600")
    begun = time.monotonic()
    for number in range(8):
        hook.run("failing", f"job-{number}", "away", None, {})
    hook.wait()
    assert time.monotonic() - begun < 30
    assert "too slow, and is not told of 'job-7': failing" in caplog.text
    assert "not waited for any longer" in caplog.text
