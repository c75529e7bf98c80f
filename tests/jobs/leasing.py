"""What tests of jobs that processes hold against each other share."""

from anabranch.jobs.board import Board
from anabranch.jobs.lease import Wanted
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.jobs.supervising import Time

CLEAN = Wanted("clean", "clean", "db.orders")
DAILY = Wanted("daily", "daily", "db.daily")
ELSEWHERE = Process("other-host", 7, "1", "another machine")


def board_in_memory(name):
    """Records in a store of this process, with a clock that sleeping moves on."""
    time = Time()
    runtime = Runtime(clock=time, ids=time, sleeper=time)
    return Board(MemoryStorage(name, runtime=runtime), runtime)


def running(batch=0):
    return JobStatus("clean", "db.orders", State.RUNNING, batch, 5)


def record_of(board):
    return board.newest("clean")
