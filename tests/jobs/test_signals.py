"""A second signal ends a process that waits for a store which never answers; one that ends by itself is left alone."""

import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from anabranch.jobs.signals import interruptible, stopping
from tests.support.lengths import first_short

CHILD = """
import os, signal, sys, threading, time
from contextlib import ExitStack
from anabranch.jobs import signals
from anabranch.storage.open import open_storage
signals._SECONDS = float(sys.argv[2])
options = {"s3.endpoint": sys.argv[1], "s3.access-key": "a", "s3.secret-key": "b", "s3.region": "us-east-1"}
with ExitStack() as stack:
    stack.enter_context(signals.interruptible())
    stop = stack.enter_context(signals.stopping()) if sys.argv[3] == "running" else None
    storage = open_storage("s3://bucket/warehouse", options)
    print("waiting", flush=True)
    if sys.argv[4] == "store":
        storage.get("never")
    if sys.argv[4] == "children":
        for _ in range(3):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            time.sleep(0.2)
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
        time.sleep(3)
        os._exit(7)
    while not stop.is_urgent():
        threading.Event().wait(0.05)
print("over", flush=True)
"""

IGNORING = (
    "import os, signal, sys; signal.signal(signal.{}, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture
def silent():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def accept():
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", held
        for one in held:
            one.close()


def started(endpoint, seconds, scene, waits_for, ignored=None):
    """A process that waits; with a signal that it ignores from the beginning."""
    words = [sys.executable, "-c", CHILD, endpoint, str(seconds), scene, waits_for]
    if ignored is not None:
        words[1:1] = ["-c", IGNORING.format(ignored.name), sys.executable]
    child = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "waiting\n"
    return child


@pytest.mark.parametrize(
    ("scene", "ignored"),
    first_short(
        [
            ("running", None),
            ("beginning", None),
            pytest.param("beginning", signal.SIGINT, id="begun in the background by a shell"),
        ]
    ),
)
def test_a_second_signal_ends_what_waits_for_a_store_that_never_answers(silent, scene, ignored):
    endpoint, held = silent
    with started(endpoint, 1.0, scene, "store", ignored) as child:
        end = time.monotonic() + 30
        while not held and time.monotonic() < end:
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert child.poll() is None  # one signal lets it wait
        child.send_signal(signal.SIGINT)
        assert child.wait(15) == 130
        assert "ended without an answer" in child.stderr.read()


@pytest.mark.long
def test_what_a_second_signal_ends_is_not_ended_for_it(silent):
    with started(silent[0], 10.0, "running", "signals") as child:
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert child.wait(15) == 0
        assert child.stdout.read() == "over\n"


@pytest.mark.long
def test_what_nohup_has_started_outlives_its_terminal(silent):
    with started(silent[0], 1.0, "running", "signals", signal.SIGHUP) as child:
        for _ in range(3):
            child.send_signal(signal.SIGHUP)
            time.sleep(0.5)
        assert child.poll() is None
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert child.wait(15) == 0, child.stderr.read()


def test_signals_of_forked_processes_do_not_count(silent):
    """A function of a job may have a pool of processes, which is ended by signals."""
    with started(silent[0], 1.0, "running", "children") as child:
        assert child.wait(30) == 7, child.stderr.read()


def test_nothing_is_left_behind():
    def watching():
        return [one for one in threading.enumerate() if one.name == "anabranch-signals"]

    for _ in range(20):
        with interruptible(), stopping():
            assert signal.set_wakeup_fd(-1) != -1
    assert signal.set_wakeup_fd(-1) == -1
    end = time.monotonic() + 10
    while watching() and time.monotonic() < end:
        time.sleep(0.02)
    assert watching() == []
