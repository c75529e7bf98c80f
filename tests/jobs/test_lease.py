"""One process at a time runs a job, others can tell which one, whether it lives, and ask it to end."""

import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import JobTakenError, StorageError, UnsupportedFeatureError
from anabranch.jobs.board import KEPT_MILLIS, SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.checkpoint import Beginning, default_checkpoint, opened
from anabranch.jobs.command import Run, Schedule, Spark, run
from anabranch.jobs.lease import Wanted
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.taking import take
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.open import open_storage
from tests.jobs.leasing import CLEAN, ELSEWHERE, board_in_memory, record_of, running


@pytest.fixture
def board(request):
    return board_in_memory(request.node.name)


def test_a_job_is_held_until_it_is_over(board):
    leases = take(board, [CLEAN])
    with pytest.raises(JobTakenError, match=r"is run by process \d+ on .* since 20"):
        take(board, [CLEAN])
    leases.note([running(3)])
    leases.beat()
    assert record_of(board).status == running(3)
    with pytest.raises(JobTakenError) as taken:
        take(board, [CLEAN])
    assert "--take-over" in taken.value.hint
    leases.note([replace(running(4), state=State.STOPPED)])
    assert record_of(board).status.state is State.STOPPED, "at once: others may wait for it"
    assert record_of(take(board, [CLEAN]).board).number == 2
    assert board.numbers("clean") == [2], "the old record is removed"


def test_all_jobs_are_taken_or_none(board):
    take(board, [CLEAN])
    with pytest.raises(JobTakenError):
        take(board, [Wanted("daily", "daily", "db.daily"), CLEAN])
    assert board.newest("daily") is None
    take(board, [Wanted("daily", "daily", "db.daily")])


def test_of_many_at_once_one_takes_it(board):
    found = []

    def work():
        try:
            found.append(take(board, [CLEAN]))
        except JobTakenError as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in found if not isinstance(one, JobTakenError)]) == 1
    assert len(found) == 8


def test_a_process_that_was_killed_holds_nothing(board):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from anabranch.jobs.status import Process; print(repr(Process.own()), flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        other = eval(process.stdout.readline(), {"Process": Process})
        board.claim(JobRecord("clean", 1, other, "t", 0, "clean", "db.orders", status=running()))
        with pytest.raises(JobTakenError):
            take(board, [CLEAN])
    finally:
        process.kill()
        process.communicate()
    take(board, [CLEAN])
    assert record_of(board).number == 2


def from_elsewhere(board, beats):
    """A job of another machine whose record is written as long as `beats` last."""
    record = JobRecord("clean", 1, ELSEWHERE, "t", 0, "clean", "db.orders", status=running())
    board.claim(record)
    for number in range(1, beats + 1):
        at = 10.0 * number
        beat = replace(record, beat=number)
        board.runtime.clock.planned.append((at, lambda beat=beat: board.write(beat)))


def test_a_process_of_another_machine_lives_while_its_record_is_written(board):
    from_elsewhere(board, beats=1)
    told = []
    with pytest.raises(JobTakenError, match="process 7 on other-host"):
        take(board, [CLEAN], tell=told.append)
    assert "waiting to see" in told[0]
    assert board.runtime.clock.now < 12
    take(board, [CLEAN])
    assert board.runtime.clock.now >= SILENCE_SECONDS
    assert record_of(board).process == Process.own()


def test_what_was_asked_is_taken_back_where_the_store_fails_before_all_are(board, monkeypatch):
    daily = Wanted("daily", "daily", "db.daily")
    first = take(board, [CLEAN, daily])
    first.note([running(), JobStatus("daily", "db.daily", State.RUNNING)])
    newest = Board.newest

    def fails(self, key):
        if key == "daily":
            raise StorageError("it is away")
        return newest(self, key)

    monkeypatch.setattr(Board, "newest", fails)
    with pytest.raises(StorageError):
        take(board, [CLEAN, daily], take_over=True)
    monkeypatch.undo()
    first.beat()
    assert first.asks() == {}


def test_the_silence_of_a_process_is_waited_for_once(board):
    wanted = [Wanted(name, name, f"db.{name}") for name in ("a", "b", "c", "d", "e")]
    for one in wanted:
        assert board.claim(JobRecord(one.key, 1, ELSEWHERE, "t", 0, one.job, one.sink, 3, 0, running()))
    take(board, wanted)
    assert SILENCE_SECONDS <= board.runtime.clock.now < SILENCE_SECONDS + 5


DAMAGED = [
    b"[" * 100_000,
    b"",
    b'{"version": 1, "token": "t',
    b"[]",
    b"\xff\xfe",
    b'{"version": 1, "process": {}}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_is_of_a_process_that_has_to_be_waited_for(board, content):
    first = take(board, [CLEAN])
    first.note([running()])
    time = board.runtime.clock
    board.storage.put("_jobs/clean/run-1", content)
    time.planned.append((10, first.beat))
    with pytest.raises(JobTakenError, match="is run by"):
        take(board, [CLEAN])
    board.storage.put("_jobs/clean/run-1", content)
    began = time.now
    take(board, [CLEAN])
    assert time.now - began >= SILENCE_SECONDS
    assert record_of(board).number == 2


def test_a_process_that_was_paused_and_overtaken_lets_go(board):
    first = take(board, [CLEAN])
    first.note([running()])
    board.claim(JobRecord("clean", 2, ELSEWHERE, "t", 0, "clean", "db.orders", status=running(9)))
    first.beat()
    assert first.asks() == {"clean": ("yield", "process 7 on other-host")}
    first.note([replace(running(), state=State.TAKEN)])
    first.beat()
    assert record_of(board).process == ELSEWHERE


def test_what_others_ask_is_handed_out_once(board):
    leases = take(board, [CLEAN])
    board.ask(record_of(board), "restart")
    leases.beat()
    assert leases.asks() == {"clean": ("restart", str(Process.own()))}
    leases.beat()
    assert leases.asks() == {}


def test_beats_outlive_a_store_that_is_away(board, monkeypatch):
    leases = take(board, [CLEAN])

    def away(*_):
        raise StorageError("away", retryable=True)

    monkeypatch.setattr(MemoryStorage, "list", away)
    leases.note([running(1)])
    leases.beat()
    monkeypatch.undo()
    leases.beat()
    assert record_of(board).status.batch == 1


def test_each_beat_is_one_write(board, monkeypatch):
    leases, writes = take(board, [CLEAN]), []
    put = MemoryStorage.put
    monkeypatch.setattr(
        MemoryStorage, "put", lambda self, path, *a, **k: (writes.append(path), put(self, path, *a, **k))[1]
    )
    for batch in range(40):
        leases.note([running(batch)])
    assert writes == []
    leases.beat()
    assert writes == ["_jobs/clean/run-1"]


@pytest.mark.parametrize("hangs", ["put", "list"])
def test_who_supervises_is_not_held_up_by_a_store_that_does_not_answer(board, monkeypatch, hangs):
    leases = take(board, [CLEAN])
    begun, answers = threading.Event(), threading.Event()
    asked = getattr(board.storage, hangs)

    def hanging(*args, **how):
        begun.set()
        assert answers.wait(60)
        return asked(*args, **how)

    monkeypatch.setattr(board.storage, hangs, hanging)
    beating = threading.Thread(target=leases.beat)
    beating.start()
    assert begun.wait(60)
    looking = threading.Thread(target=lambda: (leases.note([running(7)]), leases.asks()), daemon=True)
    looking.start()
    looking.join(10)
    is_held_up = looking.is_alive()
    answers.set()
    beating.join()
    assert not is_held_up
    leases.beat()
    assert record_of(board).status == running(7)


def test_records_of_jobs_that_have_been_over_for_long_are_removed(board):
    take(board, [CLEAN]).note([replace(running(), state=State.ENDED)])
    take(board, [Wanted("daily", "daily", "db.daily")]).note([])
    board.sweep()
    assert [one.job for one in board.all()] == ["clean", "daily"]
    board.runtime.clock._now += KEPT_MILLIS + 1
    board.sweep()
    assert [one.job for one in board.all()] == ["daily"], "its process lives"


def test_a_record_of_a_newer_version_is_refused_by_name(board):
    take(board, [CLEAN])
    content = json.loads(board.storage.get("_jobs/clean/run-1"))
    board.storage.put("_jobs/clean/run-1", json.dumps({**content, "version": 2}).encode())
    with pytest.raises(UnsupportedFeatureError, match="written by a newer version"):
        take(board, [CLEAN])


ON_MAIN = Wanted("clean", "clean", "db.orders")
ON_BRANCH = Wanted("clean@fix", "clean", "db.orders$branch_fix")


def corrected(folder, checkpoint=None):
    """A table whose branch ``fix`` is main, and the job that has begun on it with a checkpoint."""
    lake = anabranch.connect(folder)
    table = lake.create_table("db.orders", "id BIGINT", data=[{"id": 1}])
    table.create_tag("good")
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.append([{"id": 2}])
    begun = Beginning("clean", fix.table_uuid, fix.branch_uuid)
    default = default_checkpoint(lake.url, "clean", "fix", {})
    (default if checkpoint is None else opened(checkpoint, {})).beginning(lambda: begun)
    table.replace_main_branch("fix")
    return table


def check_is_held(folder, holder, how):
    clean = anabranch.job("clean", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
    with (
        take(Board(open_storage(folder)), [holder]).beating(),
        pytest.raises(JobTakenError, match="job 'clean' is run by process"),
    ):
        run(str(folder), [clean], how, Schedule(), Spark(), on_status=print)


@pytest.mark.parametrize("branch", [None, "fix"])
@pytest.mark.parametrize("holder", [ON_MAIN, ON_BRANCH], ids=["main", "branch"])
@pytest.mark.parametrize("named", [None, "mine", "mine@fix"])
def test_who_ran_it_on_main_or_the_branch_holds_it_when_that_is_main(tmp_path, branch, holder, named):
    """Both go on with the checkpoint of that branch, also where one is named, by itself or as that of main."""
    corrected(tmp_path, None if named is None else str(tmp_path / "mine@fix"))
    named = None if named is None else str(tmp_path / named)
    check_is_held(tmp_path, holder, Run(branch, checkpoint=named))


def test_who_ran_it_on_main_holds_it_when_its_replacement_is_undone(tmp_path):
    table = corrected(tmp_path)
    table.undo_replace()
    check_is_held(tmp_path, replace(ON_BRANCH, sink="db.orders"), Run())
