"""One process at a time carries out a correction; who has lost it to another one, or cannot tell, goes no further."""

import json
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import JobTakenError, StorageError, UnsupportedFeatureError
from anabranch.jobs.board import SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.underway import FOLDER, CorrectionScope, carried_out, underway
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.memory import MemoryStorage
from tests.jobs.supervising import Time

ELSEWHERE = Process("other-host", 7, "1", "another machine")
ORDERS = CorrectionScope("v3", "db.orders", "good", ("db.orders", "db.daily"))
DAY = 24 * 3600 * 1000


class At(Time):
    """A clock that is wrong by some milliseconds."""

    def __init__(self, apart=0):
        super().__init__()
        self.apart = apart

    def now_millis(self):
        return SYSTEM.clock.now_millis() + self.apart


def with_clock(apart=0):
    time = At(apart)
    return Runtime(clock=time, ids=time, sleeper=time)


@pytest.fixture
def lake(request):
    return anabranch.connect(f"memory://{request.node.name.translate(str.maketrans('[]', '--'))}")


def board_of(lake, runtime=SYSTEM):
    return Board(MemoryStorage(lake.url.removeprefix("memory://"), runtime=runtime), runtime, FOLDER)


def claimed_elsewhere(lake, number=1, *, of=ORDERS, said_millis=0, runtime=SYSTEM):
    status = JobStatus(of.name, of.table, State.RUNNING, hint=of.tag, read=dict.fromkeys(of.tables, 0))
    about = f"{of.table}@{of.name}", number, ELSEWHERE, "t", 0, of.name, of.table
    record = JobRecord(*about, written_millis=said_millis, status=status)
    assert board_of(lake, runtime).claim(record)
    return record


def shown(lake, runtime=SYSTEM):
    return [(one.what.table, one.what.name, str(one.process)) for one in underway(lake, runtime)]


def test_others_see_what_is_carried_out_and_what_it_told_last(lake):
    told = []
    with carried_out(lake, ORDERS, told.append) as tell:
        tell("db.orders: running clean")
        (one,) = underway(lake)
        assert (one.what, one.process) == (ORDERS, Process.own())
        with pytest.raises(JobTakenError, match=f"db.orders is carried out by {Process.own()} already"):
            carried_out(lake, ORDERS, told.append).__enter__()
    assert told == ["db.orders: running clean"]
    assert underway(lake) == []


def test_who_was_overtaken_is_told_at_the_next_step(lake):
    told = []
    with carried_out(lake, ORDERS, told.append) as tell:
        tell("one")
        claimed_elsewhere(lake, 2)
        with pytest.raises(JobTakenError, match="'v3' was taken over by process 7 on other-host"):
            tell("two")
    assert told == ["one"]
    assert shown(lake) == [("db.orders", "v3", "process 7 on other-host")], "its record is left alone"


def test_who_cannot_write_that_it_lives_goes_on_only_as_long_as_others_wait(lake, monkeypatch):
    def away(*_, **__):
        raise StorageError("away", retryable=True)

    runtime, told = with_clock(), []
    with carried_out(lake, ORDERS, told.append, runtime) as tell:
        monkeypatch.setattr(MemoryStorage, "list", away)
        runtime.sleeper.sleep(SILENCE_SECONDS - 1)
        tell("one")
        runtime.sleeper.sleep(2)
        with pytest.raises(JobTakenError, match="cannot be told whether"):
            tell("two")
    assert told == ["one"]
    monkeypatch.undo()
    assert underway(lake) == []


def test_branches_of_one_name_are_other_branches_of_other_tables(lake):
    other = CorrectionScope("v3", "db.other", "good", ("db.other",))
    with carried_out(lake, ORDERS, print), carried_out(lake, other, print):
        assert shown(lake) == [(t, "v3", str(Process.own())) for t in ("db.orders", "db.other")]


@pytest.mark.parametrize("other", ["db.other", "db.a"])
def test_a_table_that_two_corrections_of_one_name_reach_has_one_branch_of_that_name(lake, other):
    shared = CorrectionScope("v3", other, "good", (other, "db.daily"))
    with carried_out(lake, ORDERS, print):
        with pytest.raises(JobTakenError, match="db.daily"), carried_out(lake, shared, print):
            pytest.fail("both would write to it")
        with carried_out(lake, replace(shared, name="v4"), print):
            assert len(underway(lake)) == 2
    with carried_out(lake, shared, print):
        pass


def test_a_record_of_a_newer_version_stops_only_its_own_correction(lake):
    newer = json.dumps({"version": 99}).encode()
    board_of(lake).storage.put(f"{FOLDER}/db.a@v1/run-1", newer)
    with carried_out(lake, ORDERS, print):
        assert shown(lake) == [
            ("db.a", "v1", "an unknown process"),
            ("db.orders", "v3", str(Process.own())),
        ]
        (told, _) = underway(lake)
        assert "newer" in told.said
    with pytest.raises(UnsupportedFeatureError):
        carried_out(lake, CorrectionScope("v1", "db.a", "good", ("db.a",)), print).__enter__()


@pytest.mark.parametrize("apart", [-DAY // 2, DAY // 2], ids=["behind", "ahead"])
def test_whether_it_lives_does_not_depend_on_the_clocks_of_machines(lake, apart):
    claimed_elsewhere(lake, said_millis=SYSTEM.clock.now_millis() - apart)
    assert shown(lake, with_clock(apart)) == [("db.orders", "v3", "process 7 on other-host")]


def test_one_that_is_silent_by_the_clock_of_the_store_is_none(lake):
    claimed_elsewhere(lake, said_millis=SYSTEM.clock.now_millis() + DAY, runtime=with_clock(-DAY // 2))
    assert shown(lake) == []


def test_what_is_waited_for_is_called_a_correction(lake):
    claimed_elsewhere(lake)
    runtime, told = with_clock(), []
    with carried_out(lake, ORDERS, told.append, runtime):
        pass
    assert told == ["correction 'v3' was run by process 7 on other-host: waiting to see whether it still is"]
