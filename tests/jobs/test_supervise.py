"""Jobs are kept running, started again with pauses, and ended cleanly: with fakes in the place of Spark."""

import pytest

from anabranch.errors import (
    CommitConflictError,
    CorruptTableError,
    NotFoundError,
    OptionError,
    PositionLostError,
    SealedBranchError,
    SourceReplacedError,
    StorageError,
    WarehouseMissingError,
)
from anabranch.jobs.failure import JobFailedError
from anabranch.jobs.status import Activity, State
from anabranch.jobs.task import Policy
from tests.jobs.supervising import Story, failing
from tests.support.lengths import first_short


def ending(fake):
    fake.end()


AWAY = StorageError("the brokers do not answer", retryable=True)
WRONG = JobFailedError("ZeroDivisionError: division by zero")


def test_what_ends_by_itself_has_ended():
    story = Story().job("a", ending).job("b", ending)
    assert story.run() == {"a": State.ENDED, "b": State.ENDED}
    assert story.events == [("a", "start"), ("b", "start"), ("a", "complete"), ("b", "complete")]


def test_a_failure_is_followed_by_a_start_after_a_pause():
    story = Story(first_pause=4.0).job("a", failing(AWAY), ending)
    assert story.run() == {"a": State.ENDED}
    assert story.states("a") == ["running", "pausing", "running", "ended"]
    assert story.ended["a"].restarts == 1
    assert 3.0 <= story.time.now <= 4.5  # 4 s, made shorter by chance to 3 s
    assert story.events == [("a", "start"), ("a", "fail"), ("a", "start"), ("a", "complete")]


def test_pauses_grow_to_a_limit_and_differ_by_chance():
    policy = Policy(first_pause=1.0, longest_pause=30.0)
    assert [policy.pause(n, 1.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert [policy.pause(n, 0.0) for n in (1, 7, 2000)] == [0.5, 15, 15]


def test_a_job_is_given_up_after_so_many_failures_in_a_row():
    story = Story(most=3).job("a", *[failing(WRONG)] * 9).job("b")
    story.at(100, story.stop.ask)
    assert story.run() == {"a": State.FAILED, "b": State.STOPPED}
    assert story.ended["a"].message == "ZeroDivisionError: division by zero"
    assert story.events.count(("a", "start")) == 4
    assert story.started[1].stops == [True]  # that is b, which nobody else's failures concern


def test_a_batch_in_between_begins_the_count_anew():
    def batch_then_fail(number):
        def happens(fake):
            fake.batch = number
            fake.fail(WRONG)

        return happens

    story = Story(most=2).job("a", *[batch_then_fail(n) for n in range(8)], ending)
    assert story.run() == {"a": State.ENDED}
    same = Story(most=2).job("a", *[batch_then_fail(0) for n in range(8)], ending)
    assert same.run() == {"a": State.FAILED}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (SealedBranchError("main was replaced", hint="end this query"), State.FENCED),
        (OptionError("no such option"), State.FAILED),
        (CommitConflictError("another query"), State.FAILED),
    ],
)
def test_what_the_next_start_meets_as_well_is_not_tried_again(error, state):
    for outcomes in ([error], [failing(error), error], [failing(error), failing(error)]):
        story = Story().job("a", *outcomes, ending)
        assert story.run() == {"a": state}
        assert story.ended["a"].message == error.message


def test_what_would_be_final_is_met_twice_before_it_is():
    """A warehouse went away and was back before the query had ended: nothing tells that from damage any more."""
    damaged = CorruptTableError("schema 0 is referred to, but does not exist")

    def batch_then_fail(fake):
        fake.batch = len(story.started)
        fake.fail(damaged)

    story = Story(most=2).job("a", failing(damaged), ending)
    assert story.run() == {"a": State.ENDED}
    (paused, *_) = story.told("a", state=State.PAUSING, message=damaged.message)
    assert paused < 1.0, "it is told at once"
    story = Story(most=2).job("a", batch_then_fail, batch_then_fail, batch_then_fail, ending)
    assert story.run() == {"a": State.ENDED}, "a batch in between, and it begins anew"
    story = Story(most=2).job("a", failing(AWAY), damaged, damaged, ending)
    assert story.run() == {"a": State.FAILED}
    assert len(story.started) == 1
    story = Story(most=2).job("a", failing(damaged), failing(AWAY), failing(damaged), ending)
    assert story.run() == {"a": State.ENDED}, "the start in between met something else: it went away twice"


def test_a_job_that_has_waited_for_rows_met_nothing_final():
    damaged = CorruptTableError("schema 0 is referred to, but does not exist")
    story = Story(most=2).job("a", failing(damaged), None, ending)
    story.at(60, lambda: story.started[-1].fail(damaged))
    assert story.run() == {"a": State.ENDED}
    story = Story(most=2).job("a", failing(damaged), None, ending)
    story.at(3, lambda: story.started[-1].fail(damaged))
    assert story.run() == {"a": State.FAILED}


def test_what_is_not_there_is_a_mistake_at_the_first_start_only():
    gone = NotFoundError("there is no table")
    assert Story().job("a", gone, ending).run() == {"a": State.FAILED}
    assert Story().job("a", failing(gone), gone, ending).run() == {"a": State.ENDED}
    assert Story().job("a", AWAY, ending).run() == {"a": State.ENDED}


def test_what_is_found_wrong_while_the_warehouse_is_away_is_not_final():
    """Half of what a look needs was read before it went: a schema or a snapshot seemed to be missing."""

    def goes_away(fake):
        story.is_away = True
        fake.fail(CorruptTableError("schema 0 is referred to, but does not exist"))

    def comes_back(fake):
        story.is_away = False
        fake.end()

    story = Story().job("a", goes_away, PositionLostError("it has no snapshots"), comes_back)
    assert story.run() == {"a": State.ENDED}
    lost = PositionLostError("it has no snapshots")
    story = Story().job("a", failing(lost), lost, ending)
    assert story.run() == {"a": State.FAILED}


def test_a_warehouse_that_is_away_at_a_jobs_first_start_is_waited_for():
    """The others of the process found it there: a mount went away while it started."""
    away = WarehouseMissingError("there is no warehouse at /mnt/lake")
    assert Story().job("a", away, away, ending).job("b", ending).run() == {"a": State.ENDED, "b": State.ENDED}


def test_doubt_ends():
    """The same final failure each time after it had waited for rows, and a store that blinks in between."""
    damaged = CorruptTableError("schema 0 is referred to, but does not exist")
    story = Story(most=3).job("a", *[failing(damaged), failing(AWAY)] * 20)
    assert story.run() == {"a": State.FAILED}
    assert len(story.started) == 7
    story = Story(most=3).job("a", *[None] * 40)
    for number in range(40):
        story.at(60 * (number + 1), lambda: story.started[-1].fail(damaged))
    assert story.run() == {"a": State.FAILED}
    assert len(story.started) == 4
    assert Story(most=0).job("a", failing(damaged), ending).run() == {"a": State.FAILED}, "no restarts"


@pytest.mark.parametrize(
    "error",
    first_short(
        [
            AWAY,
            NotFoundError("there is no warehouse"),
            Exception(
                "Job aborted: SparkException: Python worker failed to connect back.\n\tat org.apache..."
            ),
            Exception("java.io.IOException: No space left on device"),
        ]
    ),
)
def test_what_may_pass_is_tried_for_as_long_as_the_process_lives(error):
    story = Story(most=2, longest_passing_pause=200.0).job("a", *[failing(error)] * 30, None).job("b")
    story.at(9_000, story.stop.ask)
    assert story.run() == {"a": State.STOPPED, "b": State.STOPPED}
    assert len(story.started) == 32
    last = [now for now, found in story.seen if found["a"].state is State.RUNNING][-1]
    waits = [now for now, found in story.seen if found["a"].state is State.PAUSING and now < last]
    assert waits[-1] - waits[0] > 20 * 100, "slower and slower, up to the longest pause"


def test_a_job_that_somebody_waits_for_is_given_up():
    story = Story(most=3).job("a", *[failing(AWAY)] * 9, ends=True)
    assert story.run() == {"a": State.FAILED}
    assert len(story.started) == 4


def test_failures_that_may_pass_do_not_count_for_those_that_may_be_the_jobs_own():
    story = Story(most=1).job("a", *[failing(AWAY)] * 5, failing(WRONG), failing(AWAY), failing(WRONG), None)
    assert story.run() == {"a": State.FAILED}
    assert len(story.started) == 8


def test_without_its_engine_nothing_is_tried_again():
    story = Story().job("a").job("b").job("c", failing(AWAY))

    def die():
        story.has_engine = False
        story.started[0].fail(ConnectionRefusedError("[Errno 111] Connection refused"))

    story.at(0.5, die)
    assert story.run() == dict.fromkeys("abc", State.LOST)
    assert len(story.started) == 3
    assert "Connection refused" in story.ended["a"].last_error
    assert "memory" in story.ended["b"].hint
    assert story.time.now < 2


def test_a_failure_is_told_until_a_batch_is_done_and_remembered_after_it():
    hinted = StorageError("the brokers do not answer", retryable=True, hint="start them")
    story = Story().job("a", failing(hinted))
    story.at(10, lambda: setattr(story.started[-1], "batch", 0)).at(20, story.stop.ask)
    story.run()
    told = story.told("a", message="the brokers do not answer", hint="start them")
    assert 9 < told[-1] < 11
    assert story.told("a", state=State.RUNNING, message="the brokers do not answer")
    ended = story.ended["a"]
    assert (ended.message, ended.hint) == (None, None)
    assert (ended.last_error, ended.last_hint) == ("the brokers do not answer", "start them")
    assert ended.last_error_millis is not None


def test_one_that_waits_for_rows_is_idle_and_one_that_does_not_get_on_is_stuck():
    story = Story(stuck_after=60.0).job("a").job("b")

    def at(number, activity, batch=None):
        return lambda: (
            setattr(story.started[number], "at", activity),
            setattr(story.started[number], "batch", batch),
        )

    story.at(1, at(1, Activity.WORKING)).at(50, at(1, Activity.WORKING, 0)).at(200, at(1, Activity.IDLE, 1))
    story.at(300, story.stop.ask)
    story.run()
    assert set(story.told("a", activity=Activity.IDLE)) > set(story.told("b", activity=Activity.STUCK))
    stuck = story.told("b", activity=Activity.STUCK)
    assert 109 < stuck[0] < 112
    assert 198 < stuck[-1] < 200
    assert story.told("a", activity=Activity.STUCK) == []


def test_jobs_start_a_few_at_a_time():
    story = Story(at_once=2, longest_start=40.0)
    for name in "abcd":
        story.job(name, lambda fake: setattr(fake, "at", Activity.WORKING))
    story.at(10, lambda: setattr(story.started[0], "batch", 0))
    story.at(100, story.stop.ask)
    story.run()
    first = {name: story.told(name, state=State.RUNNING)[0] for name in "abcd"}
    assert first["a"] == first["b"] == 0
    assert 10 <= first["c"] < 11, "one has come to its first batch"
    assert 40 <= first["d"] < 41, "and one has had its time"


def test_a_batch_job_is_not_done_twice():
    assert Story().job("a", failing(AWAY), ending, restarts=False).run() == {"a": State.FAILED}


def test_jobs_wait_for_the_end_of_those_that_feed_them():
    story = Story().job("a").job("b", ending, after=frozenset({"a"}))
    story.at(5, lambda: ending(story.started[0]))
    assert story.run() == {"a": State.ENDED, "b": State.ENDED}
    assert story.states("b")[0] == "waiting"
    assert story.events.index(("b", "start")) > story.events.index(("a", "complete"))


def test_what_is_not_fed_to_the_end_is_skipped():
    story = (
        Story().job("a", OptionError("no")).job("b", after=frozenset({"a"})).job("c", after=frozenset({"b"}))
    )
    assert story.run() == {"a": State.FAILED, "b": State.SKIPPED, "c": State.SKIPPED}
    assert story.ended["b"].message == "a, which feeds it, did not get to its end"


def test_a_stop_lets_batches_finish_and_ends_those_that_are_fed_first():
    story = Story().job("a").job("b").job("c", failing(AWAY)).job("d", after=frozenset({"a"}))
    story.at(0.25, story.stop.ask)
    ends = []
    for name, fake in (("a", 0), ("b", 1)):
        story.at(0.2, lambda name=name, fake=fake: _note_stop(story.started[fake], name, ends))
    assert story.run() == dict.fromkeys("abcd", State.STOPPED)
    assert ends == ["b", "a"]
    assert [fake.stops for fake in story.started[:2]] == [[True], [True]]
    assert ("a", "abort") in story.events


def _note_stop(fake, name, ends):
    stop = fake.stop
    fake.stop = lambda *, is_urgent: ends.append(name) or stop(is_urgent=is_urgent)


def test_asked_twice_nobody_waits():
    story = Story().job("a")
    story.at(0.25, lambda: (story.stop.ask(), story.stop.ask()))
    assert story.run() == {"a": State.STOPPED}
    assert story.started[0].stops == [False]


def test_an_end_that_fails_does_not_keep_the_others_from_theirs():
    story = Story().job("a").job("b")

    def break_b():
        def stop(*, is_urgent):
            raise OSError("the JVM is gone")

        story.started[1].stop = stop
        story.stop.ask()

    story.at(0.25, break_b)
    assert story.run() == {"a": State.STOPPED, "b": State.STOPPED}
    assert "the JVM is gone" in story.ended["b"].message


def test_how_it_goes_on_is_told_beside_what_failed():
    how = "the job goes on after its last commit, snapshot 3"

    def go_on(fake):
        fake.notices = (how,)

    def go_on_and_fail(fake):
        go_on(fake)
        fake.fail(AWAY)

    story = Story().job("a", failing(AWAY), go_on_and_fail, go_on)
    story.at(3600, story.stop.ask)
    story.run()
    assert story.told("a", state=State.RUNNING, restarts=1, message=f"{how}; {AWAY.message}")
    assert story.told("a", state=State.RUNNING, restarts=2, message=f"{how}; {AWAY.message}")


def test_fail_fast_stops_the_others():
    story = Story(fail_fast=True).job("a").job("b", OptionError("no"))
    assert story.run() == {"a": State.STOPPED, "b": State.FAILED}


def test_a_job_that_ended_as_the_stop_came_has_ended():
    story = Story().job("a")
    story.at(0.25, lambda: (story.started[0].end(), story.stop.ask()))
    assert story.run() == {"a": State.ENDED}


def test_a_job_whose_engine_is_gone_has_failed():
    def lose(fake):
        def gone():
            raise ConnectionError("the JVM is gone")

        fake.is_active = gone

    story = Story(most=1).job("a", lose, lose).job("b")
    story.at(100, lambda: (lose(story.started[1]), story.stop.ask()))
    assert story.run() == {"a": State.FAILED, "b": State.STOPPED}
    assert [status.message for status in story.ended.values()] == ["the JVM is gone", "the JVM is gone"]
    assert story.events.count(("a", "fail")) == 2


class Correction:
    """Told when the tables of a job are corrected."""

    def __init__(self, *, hands_over=False):
        self.done, self.gives, self.looks = False, hands_over, 0

    def is_corrected(self):
        self.looks += 1
        return self.done

    def hands_over(self):
        return self.gives


REPLACED = SourceReplacedError("main of 'db.a' was replaced", hint="`anabranch cascade db.a --plan`")


def test_a_job_whose_source_was_replaced_is_held_and_goes_on_when_that_is_corrected():
    correction = Correction()
    story = Story(look_pause=2.0).job("b", failing(REPLACED), None, correcting=correction)
    story.at(7, lambda: setattr(correction, "done", True)).at(20, story.stop.ask)
    assert story.run() == {"b": State.STOPPED}
    assert story.states("b") == ["running", "held", "running", "stopped"]
    assert len(story.started) == 2
    assert correction.looks == 5, "every two seconds, and not at every look"
    assert story.events == [("b", "start"), ("b", "fail"), ("b", "start"), ("b", "abort")]


def test_a_held_job_is_ended_at_once_and_says_why_it_was_held():
    story = Story().job("b", failing(REPLACED), correcting=Correction())
    story.at(3, story.stop.ask)
    assert story.run() == {"b": State.STOPPED}
    assert story.started[0].stops == []


def test_a_held_job_is_tried_in_any_case_after_a_while():
    story = Story(longest_hold=60.0).job("b", failing(REPLACED), None, correcting=Correction())
    story.at(100, story.stop.ask)
    story.run()
    assert len(story.started) == 2


def test_a_job_that_is_to_end_does_not_wait_for_a_correction():
    assert Story().job("b", failing(REPLACED)).run() == {"b": State.FAILED}


@pytest.mark.parametrize(("hands_over", "starts"), [(True, 2), (False, 1)])
def test_a_fenced_job_goes_on_with_the_work_of_a_run_that_has_ended(hands_over, starts):
    sealed = failing(SealedBranchError("sealed"))
    story = Story().job("b", sealed, None, correcting=Correction(hands_over=hands_over))
    story.at(20, story.stop.ask)
    assert story.run() == {"b": State.STOPPED if hands_over else State.FENCED}
    assert len(story.started) == starts


def test_a_job_that_cannot_be_watched_is_stopped_before_it_starts_again():
    """It may go on: two of them would write the same checkpoint."""

    def unreadable(fake):
        fake.progress = unread

    def unread():
        raise AssertionError("what it left cannot be read")

    story = Story().job("a", unreadable, ending)
    story.run()
    first, second = story.started
    assert (first.stops, first.active) == ([False], False)
    assert second.stops == []
