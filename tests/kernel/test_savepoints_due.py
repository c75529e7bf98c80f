"""Savepoints that commits make when they are due."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.refs.savepoints import due_savepoint
from anabranch.runtime import Runtime, SystemClock
from tests.kernel.savepointing import branch_of, check_settled, check_whole, rows_of
from tests.support.deaths import each_death, through
from tests.support.faults import no_space, run
from tests.support.moments import copied_history, set_times
from tests.support.tables import make_table, rows


@pytest.fixture
def table():
    return copied_history()


# On time


HOURLY = {"savepoint.create-interval": "1 h"}
HOUR = 3_600_000


def _commit_at(table, millis):
    """A commit made by a job whose clock says so."""

    class At(SystemClock):
        def now_millis(self):
            return millis

    job = anabranch.Table(replace(table.context, runtime=Runtime(clock=At())))
    return job.append(rows(0, 1)).id


def _saved(table):
    return [s.saved_snapshot_id for s in table.savepoints()]


def test_commits_create_savepoints_when_they_are_due():
    table = make_table("memory://savepoints-due", options=HOURLY)
    start = 10**12
    for minutes in (0, 10, 59, 60, 61, 119, 121, 600, 601, 659, 660):
        _commit_at(table, start + minutes * 60_000)
    times = [(s.saved_time - start) // 60_000 for s in table.savepoints()]
    assert times == [0, 60, 121, 600, 660], "a long pause makes one, not many"
    assert [s.id for s in table.savepoints()] == [1, 2, 3, 4, 5]


def test_without_the_option_there_are_none(table):
    table.append(rows(10, 1))
    assert due_savepoint(table.context, table.options) is None
    assert table.savepoints() == []


def test_an_option_of_the_job_counts(table):
    job = table.with_options(HOURLY)
    job.append(rows(10, 1))
    assert _saved(job) == [7]
    job.append(rows(11, 1))
    assert _saved(job) == [7]


def test_a_savepoint_that_was_missed_is_made_by_the_next_commit(table, caplog):
    faulty = anabranch.Table(
        through(table, no_space("put_if_absent", where="savepoint/*")).context, options=HOURLY
    )
    faulty.append(rows(10, 1))
    assert "savepoint that is due was not made" in caplog.text
    assert _saved(table) == []
    table.with_options(HOURLY).append(rows(11, 1))
    assert _saved(table) == [8]
    check_settled(table)


def test_of_many_who_find_one_due_one_makes_it(table):
    set_times(table, {6: 10**10})
    table.create_savepoint(1)
    together = threading.Barrier(6)

    def work(_):
        context = replace(table.context)
        together.wait(30)
        return due_savepoint(context, HOURLY)

    with ThreadPoolExecutor(6) as pool:
        made = [*pool.map(work, range(6))]
    assert [s.id for s in made if s is not None] == [2]
    assert _saved(table) == [1, 6]
    check_settled(table)


def test_where_none_is_due_a_listing_and_a_small_read_tell(table):
    made = table.create_savepoint()
    watched = through(table)
    assert watched.branch_uuid == made.branch_uuid  # read once
    watched.context.storage.forget_calls()
    assert due_savepoint(watched.context, HOURLY, made.saved_snapshot) is None
    assert watched.context.storage.counts() == {"list": 1, "get": 1}
    watched.context.storage.forget_calls()
    assert due_savepoint(watched.context, {}, made.saved_snapshot) is None
    assert watched.context.storage.calls == []


def test_due_looks_again_when_another_took_the_number(table):
    """Another branch may have taken it, and this one's is still due."""
    fix = branch_of(table, "fix")

    for competitor, expected in [(fix, True), (table, False)]:
        set_times(table, {6: table.snapshot.time_millis + 2 * HOUR})
        compete = run(
            "before",
            "put_if_absent",
            lambda _, other=competitor: other.create_savepoint(),
            where="savepoint/*",
        )
        assert (due_savepoint(through(table, compete).context, HOURLY) is not None) == expected


def test_dying_while_one_is_due_makes_it_once():
    def make():
        table = copied_history()
        set_times(table, {6: 10**10})
        return table

    for table, *where in each_death(make, lambda t: due_savepoint(t.context, HOURLY)):
        due_savepoint(table.context, HOURLY)
        due_savepoint(table.context, HOURLY)
        assert _saved(table) == [6], where
        check_whole(table, rows_of)
