"""A job is taken over from the process that runs it, or goes on there: never in both, and never in none."""

from dataclasses import replace

import pytest

from anabranch.errors import JobTakenError, OptionError, StorageError
from anabranch.jobs.board import SILENCE_SECONDS, Board
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.taking import take
from tests.jobs.leasing import CLEAN, DAILY, ELSEWHERE, board_in_memory, record_of, running
from tests.jobs.supervising import Story, failing


@pytest.fixture
def board(request):
    return board_in_memory(request.node.name)


def test_a_job_is_taken_over_once_the_other_process_has_ended_it(board):
    first = take(board, [CLEAN])
    first.note([running()])
    first.beat()
    time = board.runtime.clock
    time.planned.append((5, first.beat))
    asked = []
    time.planned.append((6, lambda: asked.append(first.asks())))
    time.planned.append((9, lambda: first.note([replace(running(), state=State.TAKEN)])))
    second = take(board, [CLEAN], take_over=True)
    ((what, who),) = [found["clean"] for found in asked]
    assert what == "yield"
    assert who == str(Process.own())
    assert 9 <= time.now < 11
    second.note([running(1)])
    second.beat()
    assert record_of(board).number == 2
    first.release()
    assert record_of(board).status.batch == 1


def test_a_process_that_does_not_end_a_job_keeps_it(board):
    take(board, [CLEAN]).note([running()])
    with pytest.raises(JobTakenError, match="did not within 30 s"):
        take(board, [CLEAN], take_over=True, patience_seconds=30)


def test_who_gives_up_waiting_takes_back_what_it_asked(board, monkeypatch):
    paused = take(board, [CLEAN])
    paused.note([running()])
    with pytest.raises(JobTakenError) as refused:
        take(board, [CLEAN], take_over=True, patience_seconds=30)
    assert "kill it" in refused.value.hint
    assert "it goes on there" in refused.value.hint
    with monkeypatch.context() as frozen:
        frozen.setattr(Board, "silence_millis", lambda *_: 60_000)
        with pytest.raises(JobTakenError, match="asked to end it") as refused:
            take(board, [CLEAN], take_over=True, patience_seconds=30)
    assert "not written for 60 s: the process is paused, or hangs" in refused.value.hint
    assert "--take-over" not in refused.value.hint, "it was just tried"
    paused.beat()
    assert paused.asks() == {}, "nobody would run the job"


def test_of_several_jobs_those_that_were_left_in_vain_go_on_where_they_were(board):
    """The other process ends the first one, and is at a long batch of the second one, which it is told to start again after it."""
    first = take(board, [CLEAN, DAILY])
    first.note([running(), JobStatus("daily", "db.daily", State.RUNNING)])
    time = board.runtime.clock
    time.planned.append((5, first.beat))
    asked = []
    time.planned.append((6, lambda: asked.append(first.asks())))
    time.planned.append((9, lambda: first.note([replace(running(), state=State.TAKEN)])))
    with pytest.raises(JobTakenError, match="job 'daily' is run by"):
        take(board, [CLEAN, DAILY], take_over=True, patience_seconds=30)
    assert asked[0]["clean"][0] == "yield"
    first.beat()
    assert {job: what for job, (what, _) in first.asks().items()} == dict.fromkeys(
        ("clean", "daily"), "restart"
    )
    first.note([running(4)])
    first.beat()
    assert record_of(board).process == Process.own()
    assert record_of(board).number == 1
    assert record_of(board).status.batch == 4


def test_all_jobs_of_a_deployment_are_asked_for_at_once(board):
    """One after the other, the first one stood still while each of the others came to its next look."""
    first = take(board, [CLEAN, DAILY])
    statuses = [running(), JobStatus("daily", "db.daily", State.RUNNING)]
    first.note(statuses)
    time, asked = board.runtime.clock, []
    time.planned.append((0.5, lambda: (first.beat(), asked.append(first.asks()))))
    time.planned.append((3, lambda: first.note([replace(one, state=State.TAKEN) for one in statuses])))
    take(board, [CLEAN, DAILY], take_over=True)
    assert {job: what for job, (what, _) in asked[0].items()} == {"clean": "yield", "daily": "yield"}
    assert time.now < 4


def test_a_job_that_is_taken_back_at_that_moment_is_asked_for_again(board):
    """Who takes it has seen it end, and waits for another one: two processes would run it."""
    holder, other = take(board, [CLEAN]), take(board, [DAILY])
    holder.note([running()])
    other.note([JobStatus("daily", "db.daily", State.RUNNING)])
    time, back = board.runtime.clock, []
    time.planned.append((3, lambda: holder.note([replace(running(), state=State.TAKEN)])))

    def take_back():
        back.append(holder.take_back("clean"))
        holder.note([running(1)])

    time.planned.append((15, take_back))
    time.planned.append((16, lambda: other.note([JobStatus("daily", "db.daily", State.TAKEN)])))
    time.planned.append((25, lambda: (holder.beat(), back.append(holder.asks()))))
    time.planned.append((26, lambda: holder.note([replace(running(2), state=State.TAKEN)])))
    taken = take(board, [CLEAN, DAILY], take_over=True, patience_seconds=60)
    assert back[0] is True
    assert back[1]["clean"][0] == "yield", "asked again"
    assert time.now >= 26
    assert record_of(board).number == 3
    assert not holder.take_back("clean"), "it is the other's now"
    taken.release()


def test_a_process_that_ends_one_job_after_the_other_has_the_time_for_all_of_them(board):
    first = take(board, [CLEAN, DAILY])
    statuses = {job: JobStatus(job, f"db.{job}", State.RUNNING) for job in ("clean", "daily")}
    first.note(statuses.values())
    time = board.runtime.clock
    for moment, job in ((55, "daily"), (110, "clean")):
        time.planned.append((moment, lambda job=job: first.note([replace(statuses[job], state=State.TAKEN)])))
    take(board, [CLEAN, DAILY], take_over=True, patience_seconds=60)
    assert 110 <= time.now < 112


def test_who_waits_asks_again_where_another_one_took_back_what_both_had_asked(board):
    first = take(board, [CLEAN])
    first.note([running()])
    time, seen = board.runtime.clock, []
    time.planned.append((4, lambda: board.withdraw(record_of(board), "yield")))
    time.planned.append((5, lambda: (first.beat(), seen.append(first.asks()))))
    time.planned.append((15, lambda: (first.beat(), seen.append(first.asks()))))
    time.planned.append((16, lambda: first.note([replace(running(), state=State.TAKEN)])))
    take(board, [CLEAN], take_over=True)
    assert [sorted(asked) for asked in seen] == [[], ["clean"]]


def test_what_was_left_to_one_that_is_not_heard_of_any_more_goes_on(board, monkeypatch):
    """On another machine nobody can tell that it died, and here it may hang."""
    leases, time = take(board, [CLEAN]), board.runtime.clock
    leases.note([running()])
    with monkeypatch.context() as other:
        other.setattr(Process, "own", lambda: ELSEWHERE)
        board.ask(record_of(board), "yield")
    leases.beat()
    leases.asks()
    leases.note([replace(running(), state=State.TAKEN)])
    assert leases.are_awaited()
    time.now += 2 * SILENCE_SECONDS - 1
    assert leases.are_awaited()
    assert leases.asks() == {}
    time.now += 2
    assert leases.are_awaited(), "it has to go on"
    ((what, who),) = leases.asks().values()
    assert (what, who.endswith("which was not heard of any more before it took it over")) == ("restart", True)
    assert leases.take_back("clean")
    assert record_of(board).number == 2
    assert record_of(board).status.state is State.PAUSING
    leases.note([running(1)])
    assert not leases.are_awaited()


def test_what_has_to_go_on_is_awaited_although_it_was_left_after_that_was_asked(board):
    """It was at a long batch when who had asked for it gave up, and all others here were over."""
    leases = take(board, [CLEAN])
    leases.note([running()])
    board.ask(record_of(board), "yield")
    leases.beat()
    leases.asks()
    board.ask(record_of(board), "restart")
    leases.beat()
    leases.note([replace(running(), state=State.TAKEN)])
    assert leases.are_awaited()
    assert leases.asks()["clean"][0] == "restart"
    assert leases.take_back("clean")


def test_a_beat_while_a_job_is_taken_back_does_not_let_go_of_it(board, monkeypatch):
    leases = take(board, [CLEAN])
    leases.note([running()])
    leases.note([replace(running(), state=State.TAKEN)])
    claim = Board.claim

    def and_beat(self, record):
        done = claim(self, record)
        leases.beat()
        return done

    monkeypatch.setattr(Board, "claim", and_beat)
    assert leases.take_back("clean")
    leases.note([running(7)])
    leases.beat()
    assert leases.asks() == {}
    assert (record_of(board).number, record_of(board).status.batch) == (2, 7)


@pytest.mark.parametrize("state", [State.FAILED, State.ENDED, State.STOPPED])
def test_nobody_waits_until_a_job_is_taken_that_is_over_by_itself(board, state):
    """Who waits for other jobs asks again for this one too."""
    leases = take(board, [CLEAN])
    leases.note([running()])
    board.ask(record_of(board), "yield")
    leases.beat()
    leases.note([replace(running(), state=state)])
    board.ask(record_of(board), "yield")
    leases.beat()
    assert not leases.are_awaited()


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_job_is_taken_back_once_the_store_answers(board, monkeypatch, is_stored):
    leases = take(board, [CLEAN])
    leases.note([running()])
    board.ask(record_of(board), "restart")
    leases.note([replace(running(), state=State.TAKEN)])
    leases.beat()
    claim = Board.claim

    def fails(self, record):
        if is_stored:
            claim(self, record)
        raise StorageError("it is away")

    with monkeypatch.context() as away:
        away.setattr(Board, "claim", fails)
        assert not leases.take_back("clean")
    assert leases.are_awaited()
    assert leases.asks()["clean"][0] == "restart"
    assert leases.take_back("clean")
    leases.note([running(2)])
    leases.beat()
    assert leases.asks() == {}, "it is its own"
    assert (record_of(board).number, record_of(board).status.batch) == (2, 2)


def test_a_batch_job_that_ends_while_it_is_asked_for_is_not_done_again(board):
    batch = replace(CLEAN, is_batch=True)
    first = take(board, [batch])
    first.note([running()])
    time = board.runtime.clock
    time.planned.append((5, lambda: first.note([replace(running(), state=State.ENDED)])))
    with pytest.raises(JobTakenError, match="a batch job, came to its end at process"):
        take(board, [batch], take_over=True)
    take(board, [batch])
    assert record_of(board).number == 2


def test_who_has_left_a_job_knows_when_it_is_taken(board):
    leases, time = take(board, [CLEAN]), board.runtime.clock
    leases.note([running()])
    board.ask(record_of(board), "yield")
    leases.beat()
    leases.asks()
    leases.note([replace(running(), state=State.TAKEN)])
    assert leases.are_awaited()
    take(board, [CLEAN])
    time.now += 1
    assert not leases.are_awaited()


def test_jobs_are_taken_in_one_order_by_all(board, monkeypatch):
    """Two that took the same ones in two orders each waited for what the other had."""
    taken = []
    claim = Board.claim
    monkeypatch.setattr(Board, "claim", lambda self, one: taken.append(one.key) or claim(self, one))
    for wanted in ([CLEAN, DAILY], [DAILY, CLEAN]):
        take(board, wanted).release()
    assert taken == ["clean", "daily"] * 2


def test_a_job_that_was_left_to_a_process_which_dies_before_it_takes_it_goes_on(board, monkeypatch):
    leases = take(board, [CLEAN])
    leases.note([running()])
    board.ask(record_of(board), "yield")
    leases.beat()
    assert leases.asks() == {"clean": ("yield", str(Process.own()))}
    leases.note([replace(running(), state=State.TAKEN)])
    leases.beat()
    assert leases.asks() == {}, "it waits for the others that it asked for"
    monkeypatch.setattr(Process, "is_dead", lambda _: True)
    leases.beat()
    ((what, who),) = leases.asks().values()
    assert (what, who.endswith("which died before it took it over")) == ("restart", True)
    leases.note([replace(running(), state=State.PAUSING)])
    assert record_of(board).status.state is State.PAUSING, (
        "at once: others would take it for one that is over"
    )
    leases.note([replace(running(), state=State.STOPPED)])
    leases.beat()
    assert leases.asks() == {}, "one that was stopped since stays so"


def test_a_job_whose_taker_dies_while_it_ends_goes_on():
    story = Story().job("a", None, None).job("b")
    story.is_wanted = False
    asking(story, 5, "yield")
    story.at(100, story.stop.ask)
    assert story.run() == {"a": State.STOPPED, "b": State.STOPPED}
    assert story.states("a") == ["running", "pausing", "running", "stopped"]


def test_a_job_is_not_left_to_a_process_that_has_died(board, monkeypatch):
    leases = take(board, [CLEAN])
    leases.note([running()])
    dead = replace(Process.own(), born="1")
    for what in ("yield", "stop"):
        with monkeypatch.context() as other:
            other.setattr(Process, "own", lambda: dead)
            board.ask(record_of(board), what)
        leases.beat()
        assert leases.asks() == ({} if what == "yield" else {"clean": ("stop", str(dead))})


def asking(story, moment, what):
    story.at(moment, lambda: story.asked.update({"a": (what, "process 5 on h")}))


def test_a_job_is_stopped_alone():
    story = Story().job("a").job("b")
    asking(story, 5, "stop")
    story.at(20, story.stop.ask)
    assert story.run() == {"a": State.STOPPED, "b": State.STOPPED}
    assert story.started[0].stops == [True]
    assert 5 <= story.told("a", state=State.STOPPED)[0] < 6
    assert story.ended["a"].message == "stopped by process 5 on h"


def test_a_job_that_another_process_takes_over_is_ended_after_its_batch():
    story = Story().job("a")
    asking(story, 5, "yield")
    assert story.run() == {"a": State.TAKEN}
    assert story.started[0].stops == [True]


@pytest.mark.parametrize("what", ["yield", "restart", "stop"])
def test_a_batch_job_that_came_to_its_end_meanwhile_is_not_done_again(what):
    """Its rows would be there twice."""
    story = Story().job("a", lambda fake: setattr(fake, "ends_when_stopped", True), restarts=False)
    story.is_wanted = False
    asking(story, 5, what)
    assert story.run() == {"a": State.ENDED}
    assert len(story.started) == 1


def test_who_has_left_all_its_jobs_waits_until_they_are_taken():
    story = Story().job("a", None, None)
    story.are_awaited = True
    asking(story, 5, "yield")
    asking(story, 60, "restart")
    asking(story, 80, "yield")
    story.at(100, lambda: setattr(story, "are_awaited", False))
    assert story.run() == {"a": State.TAKEN}
    assert story.states("a") == ["running", "taken", "pausing", "running", "taken"]
    assert 100 <= story.time.now < 102


def test_a_job_that_somebody_has_taken_meanwhile_is_not_restarted():
    story = Story().job("a").job("b")
    story.is_taken = True
    asking(story, 5, "yield")
    asking(story, 50, "restart")
    story.at(100, story.stop.ask)
    assert story.run() == {"a": State.TAKEN, "b": State.STOPPED}
    assert len(story.started) == 2


def test_a_job_that_was_left_to_others_is_restarted():
    story = Story().job("a", None, None).job("b")
    asking(story, 5, "yield")
    asking(story, 50, "restart")
    story.at(100, story.stop.ask)
    story.run()
    assert story.states("a") == ["running", "taken", "pausing", "running", "stopped"]


def test_a_job_is_restarted_also_one_that_was_given_up():
    wrong = failing(OptionError("no"))
    story = Story().job("a", None, wrong, wrong, None).job("b")
    asking(story, 5, "restart")
    asking(story, 50, "restart")
    story.at(100, story.stop.ask)
    story.run()
    assert len(story.started) == 5
    assert story.started[0].stops == [True]
    again = ["pausing", "running"]
    assert story.states("a") == ["running", *again, *again, "failed", *again, "stopped"]


def left_both(board):
    """A process that has left two jobs to another one."""
    leases = take(board, [CLEAN, DAILY])
    statuses = {job: JobStatus(job, f"db.{job}", State.RUNNING) for job in ("clean", "daily")}
    leases.note(statuses.values())
    board.runtime.clock.planned.append((1, leases.beat))
    for moment, job in ((2, "daily"), (3, "clean")):
        done = replace(statuses[job], state=State.TAKEN)
        board.runtime.clock.planned.append((moment, lambda done=done: leases.note([done])))
    return leases


@pytest.mark.parametrize("error", [StorageError("it is away"), KeyboardInterrupt()])
def test_who_takes_one_job_and_then_fails_gives_it_back(board, monkeypatch, error):
    first, claim = left_both(board), Board.claim

    def fails(self, record):
        if record.key == "daily":
            raise error
        return claim(self, record)

    with monkeypatch.context() as away:
        away.setattr(Board, "claim", fails)
        with pytest.raises(type(error)):
            take(board, [CLEAN, DAILY], take_over=True)
    assert record_of(board).number == 2, "it was taken"
    assert first.are_awaited()
    assert {job: what for job, (what, _) in first.asks().items()} == {"clean": "restart", "daily": "restart"}
    assert all(first.take_back(job) for job in ("clean", "daily"))
    assert (record_of(board).number, board.newest("daily").number) == (3, 2)
    assert record_of(board).process == Process.own()
    first.note([running(1)])
    first.beat()
    assert first.asks() == {}


def test_a_job_counts_as_taken_once_its_taker_has_all_that_it_wants(board):
    first = left_both(board)
    second = take(board, [CLEAN, DAILY], take_over=True)
    assert not record_of(board).may_go_back
    board.runtime.clock.now += 2
    assert not first.are_awaited(), "it is not kept up"
    second.release()


def taken_elsewhere(board):
    """The record of a process of another machine that has taken the job, and not yet the others that it wants."""
    taken = replace(record_of(board), number=2, process=ELSEWHERE, token="other", beat=0, status=None)
    assert board.claim(taken)
    return taken


def test_what_was_taken_by_one_that_died_before_it_had_all_goes_on(board, monkeypatch):
    """On another machine: nobody can tell but by its silence."""
    leases, time = take(board, [CLEAN]), board.runtime.clock
    leases.note([running()])
    with monkeypatch.context() as other:
        other.setattr(Process, "own", lambda: ELSEWHERE)
        board.ask(record_of(board), "yield")
        leases.beat()
        leases.note([replace(running(), state=State.TAKEN)])
        taken = taken_elsewhere(board)
    time.now += 2 * SILENCE_SECONDS - 1
    assert leases.are_awaited()
    assert "clean" not in {job for job, (what, _) in leases.asks().items() if what == "restart"}
    time.now += 2
    assert leases.are_awaited()
    assert leases.asks()["clean"][0] == "restart"
    assert leases.take_back("clean")
    assert record_of(board).number == 3
    board.write(replace(taken, beat=1))  # it wakes up, and finds at its next look that the job is another's
    assert record_of(board).number == 3


def test_what_its_taker_has_begun_is_not_taken_back(board):
    leases = take(board, [CLEAN])
    leases.note([running()])
    leases.note([replace(running(), state=State.TAKEN)])
    taken = taken_elsewhere(board)
    board.write(replace(taken, beat=1))
    assert not leases.take_back("clean")
    assert record_of(board).number == 2
