"""What somebody commits to a main while a cascade is at work: it is made again, or nothing is published."""

import pytest

from anabranch.cascade import CascadeOptions, run_cascade
from anabranch.errors import CommitConflictError
from tests.branches.grouping import lake_on, storage_of
from tests.cascade.embedded import run
from tests.cascade.story import CHAIN, CLEAN, cascade, doubled, expected, plan, rows, spoilt, values
from tests.support.faults import FaultyStorage
from tests.support.faults import run as call

BRANCH = "db.clean$branch_cascade-db.orders-1"


def at_the_last_moment(lake, work, *, times=1):
    """A warehouse in which others do this after the last look, right before the mains are sealed."""
    hook = call("before", "put_if_absent", lambda _path: work(), where="groups/GROUP-*", times=times)
    return lake_on(FaultyStorage(storage_of(lake), [hook]))


def test_rows_that_come_after_the_last_look_are_not_lost():
    lake = spoilt()
    before = values(lake, "db.big")
    with pytest.raises(CommitConflictError, match="has changed while it was being done"):
        cascade(at_the_last_moment(lake, lambda: lake.table("db.clean").append(rows(777, 1))))
    assert (777, 777) in values(lake, "db.clean")
    assert values(lake, "db.big") == before
    assert plan(lake).steps[0].problems
    assert cascade(lake).waiting.table == "db.clean"


def test_what_a_job_of_the_cascade_commits_then_is_made_again():
    lake = spoilt()

    def goes_on():
        lake.table("db.orders").append(rows(8, 2))
        run(CLEAN, lake)
        lake.table("db.clean").compact(full=True)

    result = cascade(at_the_last_moment(lake, goes_on))
    assert result.group is not None
    assert values(lake, "db.clean") == expected(range(8), doubled)
    run(CLEAN, lake)
    assert values(lake, "db.clean") == expected(range(10), doubled)


def test_a_main_that_was_replaced_then_stays():
    lake = spoilt()
    clean = lake.table("db.clean")
    clean.create_branch("mine", snapshot=2)
    clean.branch("mine").append(rows(900, 1))
    clean.branch("mine").append(rows(901, 1))

    with pytest.raises(CommitConflictError):
        cascade(at_the_last_moment(lake, lambda: clean.replace_main_branch("mine")))
    assert (901, 901) in values(lake, "db.clean")


@pytest.mark.long
def test_who_did_by_hand_what_was_to_be_done_did_not_do_what_came_later():
    lake = spoilt()
    lake.table("db.clean").append(rows(500, 1))
    assert cascade(lake).waiting.table == "db.clean"
    lake.table(BRANCH).append(rows(500, 1))

    def others(job, there, how):
        if job is CLEAN:
            lake.table("db.clean").append(rows(501, 1))
        return run(job, there, how)

    by_hand = CascadeOptions(by_hand={"db.clean"})
    with pytest.raises(CommitConflictError, match="has changed while it was being done"):
        run_cascade(lake, "db.orders", CHAIN, by_hand, runner=others)
    assert (501, 501) in values(lake, "db.clean")
    lake.table(BRANCH).append(rows(501, 1))
    assert run_cascade(lake, "db.orders", CHAIN, by_hand, runner=run).group is not None
    assert {(500, 500), (501, 501)} < {*values(lake, "db.clean")}
