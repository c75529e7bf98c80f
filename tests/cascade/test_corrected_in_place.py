"""Corrections on a branch of all there is, which take rows away there: by an overwrite, of partitions, by a rollback."""

import pytest

from anabranch.cascade import CascadeOptions, plan_cascade, run_cascade
from tests.cascade.embedded import run, streaming
from tests.cascade.story import CHAIN, CLEAN, doubled, even, expected, new_lake, rows, values
from tests.support.lengths import first_short

DAYS = "id BIGINT NOT NULL, v BIGINT, day INT"


def spoilt(*, partitioned=False):
    """Six orders in three batches, the last of which is wrong; `clean` and `big` have taken in all of them."""
    lake = new_lake("db.clean", "db.big")
    orders = lake.create_table("db.orders", DAYS, partition_by=["day"] if partitioned else [])
    for number in range(3):
        orders.append(of_day(number, factor=100 if number == 2 else 1))
        if number == 1:
            orders.create_tag("good")
        for job in CHAIN:
            run(job, lake)
    orders.create_branch("fix", orders.create_tag("all").name)
    return lake, orders, orders.branch("fix")


def of_day(number, factor=1):
    return [{**row, "day": number} for row in rows(2 * number, 2, factor)]


def by_replacing(fix):
    fix.replace([row for number in range(3) for row in of_day(number)])


def by_partition(fix):
    fix.overwrite(of_day(2), partition={"day": 2})


def by_compaction_and_partition(fix):
    fix.append(of_day(2, factor=7))
    fix.compact(full=True)
    fix.overwrite(of_day(2), partition={"day": 2})


def by_rollback_and_partition(fix):
    fix.append(of_day(2, factor=7))
    fix.rollback("all")
    fix.overwrite(of_day(2), partition={"day": 2})


def two_steps(fix):
    fix.overwrite([], partition={"day": 2})
    fix.append(of_day(2))


WAYS = [by_replacing, by_partition, by_compaction_and_partition, by_rollback_and_partition, two_steps]


@pytest.fixture(params=first_short(WAYS, 3), ids=lambda way: way.__name__)
def corrected(request):
    lake, orders, fix = spoilt(partitioned="replacing" not in request.param.__name__)
    request.param(fix)
    orders.replace_main_branch("fix")
    return lake


def cascade(lake, jobs=CHAIN, table="db.orders"):
    return run_cascade(lake, table, jobs, CascadeOptions(), runner=run)


def check(lake, ids=range(6)):
    assert values(lake, "db.clean") == expected(ids, doubled)
    assert values(lake, "db.big") == expected(ids, doubled, even)


def test_what_was_made_from_what_the_branch_took_away_is_made_again(corrected):
    assert cascade(corrected).group is not None
    check(corrected)
    assert plan_cascade(corrected, "db.orders", CHAIN).is_done


def test_the_jobs_go_on_from_there(corrected):
    cascade(corrected)
    corrected.table("db.orders").append(of_day(3))
    for job in CHAIN:
        run(job, corrected)
    check(corrected, range(8))


def test_a_correction_after_it_takes_out_only_its_own(corrected):
    cascade(corrected)
    orders = corrected.table("db.orders")
    orders.create_tag("later")
    orders.append(of_day(3, factor=100))
    for job in CHAIN:
        run(job, corrected)
    orders.create_branch("fix2", "later")
    orders.branch("fix2").append(of_day(3))
    orders.replace_main_branch("fix2")
    plan = plan_cascade(corrected, "db.orders", CHAIN)
    assert [step.table for step in plan.steps] == ["db.clean", "db.big"]
    assert not any(step.is_empty for step in plan.steps)
    cascade(corrected)
    check(corrected, range(8))


def test_what_is_taken_back_takes_nothing_out(corrected):
    corrected.table("db.orders").undo_replace()
    assert plan_cascade(corrected, "db.orders", CHAIN).is_done


@pytest.mark.parametrize("whole", [False, True])
def test_a_branch_that_took_back_its_own_first_try(whole):
    lake, orders, _ = spoilt()
    orders.create_branch("again", "good")
    again = orders.branch("again")
    again.append(of_day(2, factor=7))
    if whole:
        again.rollback("good")
        again.append(of_day(2))
    else:
        again.replace([row for number in range(3) for row in of_day(number)])
    orders.replace_main_branch("again")
    cascade(lake)
    check(lake)
    assert plan_cascade(lake, "db.orders", CHAIN).is_done


def test_what_cannot_be_told_apart_is_refused_before_anything_is_published():
    lake = new_lake("db.clean")
    orders = lake.create_table("db.orders", DAYS)
    for number in range(3):
        orders.append(of_day(number, factor=100 if number == 2 else 1))
        if number == 1:
            orders.create_tag("good")
        else:
            run(CLEAN, lake)
    orders.create_branch("fix", "good")
    fix = orders.branch("fix")
    fix.append(of_day(2, factor=7))
    fix.rollback("good")
    fix.append(of_day(2))
    orders.replace_main_branch("fix")
    before = values(lake, "db.clean")
    (problem,) = plan_cascade(lake, "db.orders", [CLEAN]).steps[0].problems
    assert "rows that came after that were taken away by snapshot 4" in problem
    assert cascade(lake, [CLEAN]).group is None
    assert values(lake, "db.clean") == before


def test_a_table_that_was_behind_is_corrected_after_the_table_that_it_reads():
    lake, orders, _ = spoilt()
    orders.create_branch("again", "good")
    late = streaming("late", ["db.clean"], "db.late", even)
    lake.create_table("db.late", "id BIGINT NOT NULL, v BIGINT")
    orders.branch("again").append(of_day(2))
    orders.replace_main_branch("again")
    cascade(lake)
    check(lake)
    read_old_main(lake)
    for table in ("db.clean", "db.orders"):
        plan = plan_cascade(lake, table, [*CHAIN, late])
        assert [step.table for step in plan.steps] == ["db.late"]
    cascade(lake, [*CHAIN, late], table="db.clean")
    assert values(lake, "db.late") == expected(range(6), doubled, even)


def test_a_table_that_was_bad_from_the_beginning_and_one_behind_it():
    lake = new_lake("db.orders", "db.clean", "db.late")
    orders = lake.table("db.orders")
    late = streaming("late", ["db.clean"], "db.late", even)
    orders.append([])
    orders.create_tag("good")
    orders.append(rows(0, 4, 100))
    run(late, lake)
    run(CLEAN, lake)
    orders.create_branch("fix", "good")
    orders.branch("fix").append(rows(0, 4))
    orders.replace_main_branch("fix")
    cascade(lake, [CLEAN, late])
    read_old_main(lake)
    assert values(lake, "db.late") != expected(range(4), doubled, even)
    cascade(lake, [CLEAN, late], table="db.clean")
    assert values(lake, "db.clean") == expected(range(4), doubled)
    assert values(lake, "db.late") == expected(range(4), doubled, even)


def read_old_main(lake):
    """Let `late` read the old main of its table to the end, as a stream that was behind does."""
    run(streaming("late", ["db.clean$branch_main@1"], "db.late", even), lake)
