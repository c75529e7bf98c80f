"""One process at a time carries a correction out, whichever door it came by, and the next one follows a dead one."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from anabranch.cascade import run_cascade, run_correction
from anabranch.errors import JobTakenError
from anabranch.jobs.board import Board, JobRecord
from anabranch.jobs.status import Process
from anabranch.jobs.underway import FOLDER, CorrectionScope, carried_out, underway
from anabranch.lake import connect
from anabranch.storage.open import open_storage
from tests.cascade.embedded import SCHEMA, run
from tests.cascade.one_at_a_time_job import BAD, GOOD, JOBS, RIGHT
from tests.cascade.story import rows, values
from tests.support.lengths import first_short

ELSEWHERE = Process("other-host", 7, "1", "another machine")
TABLES = ("db.orders", "db.clean", "db.big")


def spoilt(warehouse, door):
    """Orders of which the second batch is wrong; for a cascade main of them is replaced already."""
    lake = connect(warehouse)
    for name in ("db.raw", *TABLES):
        lake.create_table(name, SCHEMA)
    for first, made_by in ((0, GOOD), (2, BAD)):
        lake.table("db.raw").append(rows(first, 2))
        for job in (made_by, *JOBS):
            run(job, lake)
        if not first:
            lake.table("db.orders").create_tag("good")
    if door == "cascade":
        lake.table("db.orders").create_branch("fix", "good")
        lake.table("db.orders").branch("fix").append(rows(2, 2))
        lake.table("db.orders").replace_main_branch("fix")
    return lake


def again(lake, door):
    if door == "correct":
        return run_correction(lake, "db.orders", "good", RIGHT, runner=run)
    return run_cascade(lake, "db.orders", JOBS, runner=run)


@contextmanager
def elsewhere(warehouse, door):
    command = [sys.executable, "-m", "tests.cascade.one_at_a_time_job", str(warehouse), door]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "waits\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("door", first_short(["correct", "cascade"]))
def test_the_second_process_is_refused_and_follows_when_the_first_is_dead(tmp_path, door):
    lake = spoilt(tmp_path / "wh", door)
    before = [values(lake, table) for table in TABLES]
    with elsewhere(tmp_path / "wh", door) as process:
        with pytest.raises(JobTakenError, match=f"carried out by process {process.pid} on .* already"):
            again(lake, door)
        assert [values(lake, table) for table in TABLES] == before
        (one,) = underway(lake)
        assert (one.what.table, one.process.pid, one.what.tables[-1]) == ("db.orders", process.pid, "db.big")
        process.kill()
        process.wait()
        assert again(lake, door).group is not None
    assert [values(lake, table) for table in TABLES] == [
        [(i, i) for i in range(4)],
        [(i, 2 * i) for i in range(4)],
        [(i, 2 * i) for i in (0, 2)],
    ]
    assert underway(lake) == []
    assert again(lake, door).group is None, "nothing is left to do"


@pytest.mark.long
def test_a_thread_of_the_same_process_is_another_one(tmp_path):
    lake, refused = spoilt(tmp_path / "wh", "correct"), []

    def runner(job, lake, how):
        with pytest.raises(JobTakenError) as error:
            again(connect(tmp_path / "wh"), "correct")
        refused.append(error)
        return run(job, lake, how)

    assert run_correction(lake, "db.orders", "good", RIGHT, runner=runner).group is not None
    assert len(refused) >= 3


def test_what_another_one_has_published_while_this_one_waited_is_not_done_again(tmp_path):
    """It waits to see whether a process of another machine lives, which has done everything meanwhile."""
    lake, others = spoilt(tmp_path / "wh", "correct"), []
    record = JobRecord("db.orders@correct-db.orders-good", 1, ELSEWHERE, "t", 0, "v", "db.orders")
    board = Board(open_storage(lake.url, {}), folder=FOLDER)
    board.claim(record)

    def tell(said):
        if not others and "waiting to see" in said:
            board.storage.delete_folder(f"{FOLDER}/{record.key}")
            others.append(again(connect(tmp_path / "wh"), "correct"))

    result = run_correction(lake, "db.orders", "good", RIGHT, runner=run, tell=tell)
    assert (len(others), result.group, result.is_published) == (1, None, True)
    assert len(lake.groups()) == 1


@pytest.mark.parametrize("name", first_short(["correct-db.orders-good", "another"]))
def test_who_holds_it_already_carries_it_out_by_the_same_record(tmp_path, name):
    """A command holds it before it starts Spark. One that holds another correction takes this one besides."""
    lake, held = spoilt(tmp_path / "wh", "correct"), []

    def runner(job, lake, how):
        held.append(sorted(one.what.name for one in underway(lake)))
        return run(job, lake, how)

    with carried_out(lake, CorrectionScope(name, "db.orders", "good", ("db.orders",)), print) as tell:
        assert run_correction(lake, "db.orders", "good", RIGHT, runner=runner, tell=tell).group is not None
        assert [one.what.name for one in underway(lake)] == [name], "until the command ends"
    assert held[0] == sorted({name, "correct-db.orders-good"})
    assert underway(lake) == []
