"""What runs is ended: a batch under way is waited for, but not beyond the limit, and not once it is urgent."""

import threading
import time

import pytest

from anabranch.errors import AnabranchError
from anabranch.jobs import queries
from anabranch.jobs.queries import RunningBatch, RunningQuery
from anabranch.jobs.task import Stop
from anabranch.runtime import Runtime
from tests.jobs.supervising import Time

NEVER = 600.0


class Work:
    """A batch job that ends when it is let go, or when what Spark does for it is cancelled."""

    def __init__(self, patience, *, deaf_to=0):
        self.go, self.cancels, self.deaf_to, self.failed = threading.Event(), 0, deaf_to, False
        self.running = RunningBatch("run", self._do, self._cancel, "daily", patience_seconds=patience)

    def _do(self):
        assert self.go.wait(60)
        if self.failed:
            raise RuntimeError("cancelled")

    def _cancel(self):
        self.cancels += 1
        if self.cancels > self.deaf_to:
            self.failed = True
            self.go.set()


def test_a_batch_job_that_ends_within_the_limit_is_not_cancelled():
    work = Work(NEVER)
    threading.Timer(0.1, work.go.set).start()
    work.running.stop(is_urgent=lambda: False)
    assert (work.running.is_active(), work.running.failure(), work.cancels) == (False, None, 0)


def test_a_batch_job_is_cancelled_at_the_limit():
    work = Work(0.1)
    work.running.stop(is_urgent=lambda: False)
    assert (work.running.is_active(), work.cancels) == (False, 1)
    assert str(work.running.failure()) == "cancelled"


def test_a_second_signal_cancels_a_batch_job_that_is_waited_for():
    work, stop = Work(NEVER), Stop()
    stop.ask()
    threading.Timer(0.1, stop.ask).start()
    begun = time.monotonic()
    work.running.stop(is_urgent=stop.is_urgent)
    assert not work.running.is_active()
    assert time.monotonic() - begun < 30


def test_a_batch_job_between_two_calls_of_spark_is_cancelled_again():
    work = Work(0, deaf_to=2)
    work.running.stop(is_urgent=lambda: True)
    assert (work.running.is_active(), work.cancels) == (False, 3)


def test_a_batch_job_whose_own_code_does_not_end_is_said_and_left(monkeypatch):
    monkeypatch.setattr(queries, "_CANCEL_SECONDS", 0.3)
    work = Work(0, deaf_to=1_000)
    with pytest.raises(AnabranchError, match="its own code has not ended"):
        work.running.stop(is_urgent=lambda: True)
    work.go.set()


class Query:
    """A streaming query that is at a batch which does not end."""

    runId, lastProgress = "run", None

    def __init__(self):
        self.isActive, self.status = True, {"message": "Processing", "isTriggerActive": True}

    def stop(self):
        self.isActive = False


@pytest.mark.parametrize(("urgent_at", "ends_at"), [(None, 60), (0, 0), (5, 5)])
def test_a_stream_is_waited_for_up_to_the_limit_or_until_it_is_urgent(urgent_at, ends_at):
    clock, stop = Time(), Stop()
    if urgent_at == 0:
        stop.ask()
    elif urgent_at is not None:
        clock.planned.append((urgent_at, stop.ask))
    stop.ask()
    query = Query()
    runtime = Runtime(clock=clock, ids=clock, sleeper=clock)
    RunningQuery(query, patience_seconds=60, runtime=runtime).stop(is_urgent=stop.is_urgent)
    assert not query.isActive
    assert clock.now == pytest.approx(ends_at, abs=0.1)
