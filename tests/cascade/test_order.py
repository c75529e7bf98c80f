"""The order of a cascade's tables: what their jobs read now decides, and what they read before only where nobody says it."""

import pyarrow as pa
import pytest

from anabranch.cascade import CascadeOptions, plan_cascade, plan_correction, run_cascade, run_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import job as declare
from anabranch.jobs.prepare import Run
from anabranch.jobs.source import static
from tests.cascade.embedded import run, streaming
from tests.cascade.story import BIG, CLEAN, correct, doubled, new_lake, rows, spoilt, values
from tests.pipelines.engines import run as run_like_spark


def with_lookup(s0, known):
    """The rows, with what the other table has for the same id added."""
    more = dict(zip(known["id"].to_pylist(), known["v"].to_pylist(), strict=True))
    found = [row | {"v": row["v"] + more.get(row["id"], 0)} for row in s0.to_pylist()]
    return pa.Table.from_pylist(found, s0.schema)


def looking_up(name, table):
    """A job that reads the orders and looks another table up."""
    sources = {"s0": "db.orders", "known": static(table)}
    return declare(name, sources=sources, sink=f"db.{name}")(with_lookup)


def plainly(name):
    return declare(name, sources={"s0": "db.orders"}, sink=f"db.{name}")(lambda s0: s0)


FIRST, SECOND = plainly("first"), looking_up("second", "db.first")
"""As they were."""
NOW_SECOND, NOW_FIRST = looking_up("first", "db.second"), plainly("second")
"""The other way round."""


def reversed_lake(*, tagged="db.orders"):
    """Two good orders and two wrong ones, of which `second` was made with what `first` had."""
    lake = new_lake("db.orders", "db.first", "db.second")
    for number in range(2):
        lake.table("db.orders").append(rows(2 * number, 2, 100 if number else 1))
        for job in (FIRST, SECOND):
            run_like_spark(job, lake)
        if not number:
            lake.table(tagged).create_tag("good")
    return lake


def test_a_job_that_reads_another_corrected_table_now_comes_after_it():
    """What it read before does not say so: it would look up what the other one's branch begins with."""
    other = streaming("other", ["db.orders"], "db.other", doubled)
    lake = spoilt((CLEAN, other), tables=("db.orders", "db.clean", "db.other"))
    with_other = looking_up("clean", "db.other")
    for jobs, order in (([CLEAN, other], ["clean", "other"]), ([with_other, other], ["other", "clean"])):
        assert [step.jobs[0].job for step in plan_cascade(lake, "db.orders", jobs).steps] == order


def test_a_corrected_job_that_reads_what_is_made_from_it_is_refused():
    lake = spoilt((CLEAN, BIG))
    lake.table("db.clean").create_tag("good", snapshot=2)
    with pytest.raises(InvalidInputError, match="circle"):
        plan_correction(lake, "db.clean", "good", [looking_up("clean", "db.big"), BIG])
    assert plan_correction(lake, "db.clean", "good", [CLEAN, BIG]).steps


def test_two_tables_whose_jobs_read_each_other_the_other_way_round_now():
    """What was read before is no reason to refuse: no job reads it any more."""
    lake = reversed_lake()
    correct(lake, 1, 1)
    jobs = [NOW_SECOND, NOW_FIRST]
    result = run_cascade(lake, "db.orders", jobs, CascadeOptions(), runner=run_like_spark)
    assert [step.table for step in result.plan.steps] == ["db.second", "db.first"]
    assert result.group is not None
    assert values(lake, "db.second") == [(0, 0), (1, 2), (2, 2), (3, 3)]  # what is older was twice as much
    assert values(lake, "db.first") == [(0, 0), (1, 1), (2, 4), (3, 6)]


def test_the_corrected_table_itself_may_read_now_what_was_made_from_it():
    lake = reversed_lake(tagged="db.first")
    jobs = [NOW_SECOND, NOW_FIRST]
    assert plan_correction(lake, "db.first", "good", jobs).tables == ("db.second", "db.first")
    result = run_correction(lake, "db.first", "good", jobs, runner=run_like_spark)
    assert result.group is not None
    assert values(lake, "db.second") == [(0, 0), (1, 2), (2, 200), (3, 300)]
    assert values(lake, "db.first") == [(0, 0), (1, 1), (2, 400), (3, 600)]


def test_a_table_that_was_corrected_with_rows_which_its_cascade_takes_out_is_refused():
    """Its branch had looked up what was made from its own wrong rows; nothing but another correction mends that."""
    lake = reversed_lake(tagged="db.first")
    lake.table("db.first").create_branch("fix", "good")
    run_like_spark(NOW_SECOND, lake, Run(branch="fix", from_tag="good"))
    lake.table("db.first").replace_main_branch("fix")
    before = values(lake, "db.second")
    with pytest.raises(
        InvalidInputError, match=r"db\.first is itself made from rows of db\.second"
    ) as refused:
        run_cascade(lake, "db.first", [NOW_SECOND, NOW_FIRST], runner=run_like_spark)
    assert "anabranch correct db.first" in refused.value.hint
    assert values(lake, "db.second") == before


def test_jobs_of_which_only_lineage_knows_what_they_read_are_asked_for():
    """They turned round while they ran, and nobody gives them: what they read now is not known."""
    lake = reversed_lake()
    lake.table("db.orders").append(rows(4, 2, 100))
    for job in (NOW_FIRST, NOW_SECOND):
        run_like_spark(job, lake)
    correct(lake, 1, 2)
    with pytest.raises(InvalidInputError, match="in a circle") as refused:
        plan_cascade(lake, "db.orders", [])
    assert "'first'" in str(refused.value)
    assert "declared in no job file" in str(refused.value)
    assert plan_cascade(lake, "db.orders", [NOW_SECOND, NOW_FIRST]).tables == ("db.second", "db.first")


def test_a_job_of_long_ago_has_no_say_in_the_order():
    """It fed the tables the other way round before the fork, and none of its commits is made again."""
    lake = new_lake("db.orders", "db.clean", "db.big")
    lake.table("db.big").append(rows(100, 1))
    run(streaming("old", ["db.big"], "db.clean", lambda found: found), lake)
    for number in range(2):
        lake.table("db.orders").append(rows(2 * number, 2, 100 if number else 1))
        for job in (CLEAN, BIG):
            run(job, lake)
        if not number:
            lake.table("db.orders").create_tag("good")
    correct(lake, 1, 1)
    assert plan_cascade(lake, "db.orders", [CLEAN, BIG]).tables == ("db.clean", "db.big")
