"""What can be said about running jobs together before any of them is started."""

import os
import signal
import threading

import pytest

import anabranch
from anabranch.errors import InvalidInputError
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.signals import stopping
from anabranch.jobs.trigger import AVAILABLE_NOW, ONCE, Schedule, Trigger, trigger_of, with_trigger


def job(name, source, sink):
    return anabranch.job(name, sources={"raw": source}, sink=sink)(lambda raw: raw)


PIPELINE = [job("daily", "db.orders", "db.daily"), job("clean", "db.raw", "db.orders")]


def test_jobs_that_feed_each_other_are_corrected_one_at_a_time(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    with pytest.raises(InvalidInputError, match="job 'daily' reads what job 'clean' writes: on branch 'fix'"):
        run_jobs(PIPELINE, lake, Run(branch="fix"))
    with pytest.raises(InvalidInputError, match="one checkpoint is named for 2 jobs"):
        run_jobs(PIPELINE, lake, Run(checkpoint="/x"))


def test_triggers_as_spark_takes_them():
    assert trigger_of("1 minute", "").spark() == {"processingTime": "60000 milliseconds"}
    assert trigger_of(None, "").spark() == {}
    assert trigger_of("Available-Now", "") == AVAILABLE_NOW
    assert (AVAILABLE_NOW.spark(), ONCE.spark()) == ({"availableNow": True}, {"once": True})
    assert [t.ends for t in (AVAILABLE_NOW, ONCE, Trigger("interval", 5))] == [True, True, False]


def test_flags_take_the_place_of_declared_triggers():
    assert with_trigger(Schedule(), available_now=True, once=False).trigger is AVAILABLE_NOW
    assert with_trigger(Schedule(), available_now=False, once=True).trigger is ONCE
    assert with_trigger(Schedule(), available_now=False, once=False).trigger is None


def test_signals_ask_for_the_end_and_then_for_it_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        assert not stop.is_asked()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.is_asked(), stop.is_urgent()) == (True, False)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_urgent()
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_signals_alone():
    before, found = signal.getsignal(signal.SIGINT), []

    def work():
        with stopping() as stop:
            found.append((signal.getsignal(signal.SIGINT) is before, stop.is_asked()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(True, False)]
