"""Where jobs begin on the branches of a cascade: with nothing twice and nothing left out, whatever became of their past."""

import pytest

from anabranch.cascade import CascadeOptions, plan_cascade, run_cascade
from anabranch.cascade.starts import Corrected, on_corrected
from anabranch.jobs.job import job as declare
from anabranch.jobs.prepare import Run
from anabranch.jobs.source import static
from anabranch.streaming.offsets import BEGINNING, Offset, Position
from tests.cascade.embedded import run, streaming
from tests.cascade.story import BIG, CLEAN, new_lake, plan, rows, spoilt, values
from tests.pipelines.engines import run as run_like_spark
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short

EVERYTHING = {"retain_max": 2, "retain_min": 1, "older_than": 2**52}


def same(found):
    return found


def thousands(found):
    return [{"id": row["id"] + 1_000, "v": row["v"]} for row in found]


A = streaming("a", ["db.orders"], "db.out", same)
B = streaming("b", ["db.other"], "db.out", thousands)


def correct(lake, table, name, tag, *batches):
    """A branch of the tag with these rows is main."""
    lake.table(table).create_branch(name, tag)
    for batch in batches:
        lake.table(table).branch(name).append(batch)
    lake.table(table).replace_main_branch(name)


def two_writers():
    """`b` wrote to the sink only at the beginning, `a` ever since, and at last something bad."""
    lake = new_lake("db.orders", "db.other", "db.out")
    lake.table("db.other").append(rows(0, 2))
    run(B, lake)
    for number in range(3):
        lake.table("db.orders").append(rows(2 * number, 2))
        run(A, lake)
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").append(rows(6, 2, 100))
    run(A, lake)
    return lake


def test_a_job_whose_commits_have_expired_goes_on_where_it_was():
    lake = two_writers()
    before = values(lake, "db.out")
    lake.table("db.out").expire_snapshots(**EVERYTHING)
    correct(lake, "db.orders", "fix", "good", rows(6, 2))
    (step,) = plan_cascade(lake, "db.orders", [A, B]).steps
    assert [(part.job, part.sources[0].begins) for part in step.jobs] == [
        ("a", "after snapshot 3"),
        ("b", "after snapshot 1"),
    ]
    lake.table("db.other").append(rows(50, 1))
    run_cascade(lake, "db.orders", [A, B], CascadeOptions(), runner=run)
    wanted = [(i, v if i not in {6, 7} else i) for i, v in before] + [(1_050, 50)]
    assert values(lake, "db.out") == sorted(wanted)


def test_a_job_of_which_nobody_knows_whether_it_wrote_is_not_begun_anew():
    lake = two_writers()
    expire_as_others(lake.table("db.out"), 3)
    correct(lake, "db.orders", "fix", "good", rows(6, 2))
    late = streaming("late", ["db.other"], "db.out", thousands)
    run(late, lake)
    (step,) = plan_cascade(lake, "db.orders", [A, B, late]).steps
    (problem,) = [problem for problem in step.problems if "'late'" in problem]
    assert "not known whether it had written before" in problem
    assert "removed before lineage saw them" in problem


def test_corrections_of_one_table_that_part_before_one_another():
    """The job read a compaction after what the first correction kept, and before what the second did."""
    lake = new_lake("db.orders", "db.clean")
    orders = lake.table("db.orders")
    orders.append(rows(0, 2))
    orders.append(rows(2, 2))
    orders.create_tag("good")
    orders.compact(full=True)
    run(CLEAN, lake)
    orders.append(rows(100, 2, 100))
    run(CLEAN, lake)
    correct(lake, "db.orders", "first", "good", rows(10, 2), rows(12, 2))
    orders.create_tag("later")
    orders.append(rows(200, 2, 100))
    correct(lake, "db.orders", "second", "later", rows(14, 2))
    assert plan(lake).steps[0].jobs[0].sources[0].begins == "after snapshot 2"
    run_cascade(lake, "db.orders", [CLEAN], runner=run)
    assert values(lake, "db.clean") == [(i, 2 * v) for i, v in values(lake, "db.orders")]


def lagging():
    """`db.clean` was corrected with `db.orders`; then the job of `db.big` read the rest of what was its main."""
    lake = new_lake("db.orders", "db.clean", "db.big")
    lake.table("db.orders").append(rows(0, 2))
    run(CLEAN, lake)
    run(BIG, lake)
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").append(rows(2, 2, 100))
    run(CLEAN, lake)
    correct(lake, "db.orders", "fix", "good", rows(2, 2))
    assert run_cascade(lake, "db.orders", [CLEAN, BIG], runner=run).done == ("db.clean",)
    run(BIG, lake, Run(source_branches={"db.clean": "main@1"}))
    assert values(lake, "db.big") == [(0, 0), (2, 400)]
    return lake


def test_a_table_that_lagged_behind_one_cascade_is_corrected_by_the_next():
    lake = lagging()
    (step,) = plan(lake).steps
    assert (step.table, step.problems) == ("db.big", ())
    run_cascade(lake, "db.orders", [CLEAN, BIG], runner=run)
    assert values(lake, "db.big") == [(0, 0), (2, 4)]
    assert plan(lake).is_done


def test_a_source_that_names_its_branch_is_read_there():
    dev = streaming("dev", ["db.orders", "db.clean$branch_dev"], "db.big", lambda one, other: [*one, *other])
    lake = new_lake("db.orders", "db.clean", "db.big")
    lake.table("db.orders").append(rows(0, 1))
    run(CLEAN, lake)
    lake.table("db.clean").create_branch("dev", snapshot=1)
    lake.table("db.clean").branch("dev").append(rows(50, 1))
    run(dev, lake)
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").append(rows(1, 1, 100))
    run(CLEAN, lake)
    run(dev, lake)
    correct(lake, "db.orders", "fix", "good", rows(1, 1))
    big, clean = plan_cascade(lake, "db.orders", [CLEAN, dev]).steps
    assert (clean.problems, big.problems) == ((), ())
    assert [s.name for s in big.jobs[0].sources] == ["db.orders", "db.clean$branch_dev"]
    assert big.jobs[0].sources[1].begins == "after snapshot 2"


def test_a_branch_that_began_empty_is_nobodys_work_to_do_again():
    lake = new_lake("db.orders", "db.clean")
    orders = lake.table("db.orders")
    orders.append(rows(0, 1))
    orders.create_tag("good")
    orders.append(rows(2, 2, 100))
    run(CLEAN, lake)
    correct(lake, "db.orders", "first", "good", rows(2, 2))
    run_cascade(lake, "db.orders", [CLEAN], runner=run)
    correct(lake, "db.orders", "second", "good", rows(2, 2, 7))
    run(CLEAN, lake)
    lake.table("db.clean").expire_snapshots(**EVERYTHING | {"retain_max": 1})
    (step,) = plan(lake).steps
    assert (step.is_empty, step.problems) == (True, ())
    run_cascade(lake, "db.orders", [CLEAN], runner=run)
    assert values(lake, "db.clean") == [(0, 0), (2, 28), (3, 42)]


def test_a_job_that_began_before_its_source_had_a_row_passes_over_what_an_emptied_branch_had():
    """The first batch of a query is there even if nothing is: its position is before the first snapshot."""
    clean = streaming("clean", ["db.orders"], "db.clean", lambda found: found)
    big = streaming("big", ["db.clean"], "db.big", lambda found: found)
    lake = new_lake("db.orders", "db.clean", "db.big")
    lake.table("db.orders").append(rows(0, 2))
    lake.table("db.orders").create_tag("good")
    run_like_spark(big, lake)
    lake.table("db.orders").append(rows(2, 2, 100))
    for one in (clean, big):
        run_like_spark(one, lake)
    correct(lake, "db.orders", "fix", "good", rows(2, 2))
    result = run_cascade(lake, "db.orders", [clean, big], CascadeOptions(), runner=run_like_spark)
    assert [(step.table, step.is_empty) for step in result.plan.steps] == [
        ("db.clean", True),
        ("db.big", False),
    ]
    assert values(lake, "db.clean") == values(lake, "db.big") == [(i, i) for i in range(4)]


def test_the_beginning_of_a_branch_is_where_it_was_emptied_or_its_first_snapshot():
    lake = new_lake("db.orders")
    lake.table("db.orders").append(rows(0, 2))
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").create_branch("fix", "good")
    main, uuid = lake.table("db.orders").context, lake.table("db.orders$branch_fix").branch_uuid
    emptied = Position(2, "stamp")
    for branch in (uuid, main.branch_uuid):
        begin = Offset(main.table_uuid, branch, "db.orders", BEGINNING)
        for place, fork in ((None, 1), (emptied, 0)):
            one = Corrected("db.orders", main, "fix", fork, uuid, place)
            moved = on_corrected([one])(begin)
            assert (moved.branch_uuid, moved.position) == (uuid, place or BEGINNING)


NEWEST = streaming("newest", ["db.clean"], "db.newest", same, scan_mode="latest")


def newest_of(begins):
    """A job that began with the newest rows, when so many batches of two were there; the third and later ones are wrong."""
    lake = new_lake("db.orders", "db.clean", "db.newest")
    for number in range(5):
        lake.table("db.orders").append(rows(2 * number, 2, 1 if number < 2 else 100))
        if number == 1:
            lake.table("db.orders").create_tag("good")
        run(CLEAN, lake)
        if number + 1 >= begins:
            run(NEWEST, lake)
    return lake


def test_what_began_with_the_newest_rows_begins_there_again():
    """Its table has wrong rows from its first on, so it begins empty; the newest rows are others by now."""
    lake = newest_of(2)
    correct(lake, "db.orders", "fix", "good", *(rows(2 * number, 2) for number in range(2, 5)))
    *_, step = plan_cascade(lake, "db.orders", [CLEAN, NEWEST]).steps
    assert [source.begins for source in step.jobs[0].sources] == ["after snapshot 2"]
    result = run_cascade(lake, "db.orders", [CLEAN, NEWEST], CascadeOptions(), runner=run)
    assert result.group is not None
    assert values(lake, "db.newest") == [(i, 2 * i) for i in range(4, 10)]


@pytest.mark.parametrize("moment", first_short(["snapshot.3", "month-end", "time"]))
def test_what_is_looked_up_at_a_moment_that_is_taken_out_is_done_by_hand(moment):
    """A time would be that of the tag on the branch, whose other snapshots come later."""
    lake = spoilt((CLEAN,), tables=("db.orders", "db.clean", "db.report"))
    bad = lake.table("db.clean").at("snapshot.3").snapshot
    lake.table("db.clean").create_tag("month-end", snapshot=3)
    at = {"scan.timestamp-millis": bad.time_millis} if moment == "time" else {"scan.version": moment}
    report = declare(
        "report", sources={"rows": static("db.clean", options=at)}, sink="db.report", mode="overwrite"
    )(same_rows)
    run(report, lake)
    result = run_cascade(lake, "db.orders", [CLEAN, report], CascadeOptions(), runner=run)
    assert result.group is None
    assert "which was taken out" in result.waiting.problems[0]


def test_what_is_looked_up_at_a_moment_that_is_kept_is_made_again():
    lake = spoilt((CLEAN,), tables=("db.orders", "db.clean", "db.report"))
    report = declare(
        "report", sources={"rows": static("db.clean", at="snapshot.2")}, sink="db.report", mode="overwrite"
    )(same_rows)
    run(report, lake)
    assert run_cascade(lake, "db.orders", [CLEAN, report], CascadeOptions(), runner=run).group is not None


def same_rows(rows):
    return rows


def test_what_began_within_wrong_rows_is_done_by_hand():
    lake = newest_of(3)
    before = values(lake, "db.newest")
    correct(lake, "db.orders", "fix", "good", *(rows(2 * number, 2) for number in range(2, 5)))
    result = run_cascade(lake, "db.orders", [CLEAN, NEWEST], CascadeOptions(), runner=run)
    assert result.group is None
    assert "which was taken out" in result.waiting.problems[0]
    assert values(lake, "db.newest") == before
