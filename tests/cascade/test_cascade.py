"""After a correction: what was made from what it took out is made again, and all of it published at once."""

import json

import pytest

from anabranch.cascade import plan_cascade, undo_cascade
from anabranch.errors import CommitConflictError, InvalidInputError, NotFoundError
from tests.cascade.embedded import batch, run, streaming
from tests.cascade.story import (
    BIG,
    CHAIN,
    CLEAN,
    all_of,
    cascade,
    correct,
    doubled,
    even,
    expected,
    new_lake,
    plan,
    rows,
    spoilt,
    values,
)
from tests.support.lengths import first_short

NAME = "cascade-db.orders-1"
ALL = range(8)


def is_corrected(lake, ids=ALL):
    return values(lake, "db.clean") == expected(ids, doubled) and values(lake, "db.big") == expected(
        ids, doubled, even
    )


def test_a_plan_says_what_begins_where_and_in_which_order():
    lake = spoilt()
    found = plan(lake)
    assert (found.table, found.number, found.taken_out) == ("db.orders", 1, ((3, 4),))
    assert found.taken_from == ("main@1",)
    assert found.tables == ("db.clean", "db.big")
    clean, big = found.steps
    assert (clean.branch, clean.fork, clean.bad, clean.anew, clean.is_there) == (NAME, 2, ((3, 4),), 2, False)
    assert [(part.job, part.commits, part.is_batch) for part in clean.jobs] == [("clean", 2, False)]
    assert [(s.name, s.begins) for s in clean.jobs[0].sources] == [("db.orders", "after snapshot 2")]
    assert [(s.name, s.begins) for s in big.jobs[0].sources] == [
        (f"db.clean$branch_{NAME}", "after snapshot 2")
    ]
    assert not [*clean.problems, *big.problems, *found.warnings, *found.beside]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["steps"][1]["jobs"][0]["job"] == "big"
    assert told["done"] is False
    assert lake.table("db.clean").branches() == []


def test_it_is_run_published_taken_back_and_published_again():
    lake = spoilt()
    before = values(lake, "db.big")
    told = []
    result = cascade(lake)
    assert (result.done, result.failed, result.waiting) == (("db.clean", "db.big"), (), None)
    assert repr(result) == "<CascadeResult published: db.clean, db.big>"
    assert [name for name, _ in result.group.tables] == ["db.clean", "db.big"]
    assert lake.groups()[-1].reason == "cascade of db.orders after replacement 1"
    assert is_corrected(lake)
    assert plan(lake).is_done
    assert cascade(lake).is_published
    json.dumps(result.to_dict())

    back = undo_cascade(lake, table="db.orders")
    assert back.undoes == result.group.number
    assert values(lake, "db.big") == before
    assert not plan(lake).is_done

    assert undo_cascade(lake, table="db.orders").repeated

    assert cascade(lake).group is not None
    assert is_corrected(lake)
    assert not told


def test_the_last_cascade_of_a_table_is_none_that_was_taken_back():
    lake = spoilt()
    first = cascade(lake).group.number
    lake.table("db.orders").create_tag("again")
    lake.table("db.orders").append(rows(100, 2, factor=100))
    for job in CHAIN:
        run(job, lake)
    lake.table("db.orders").create_branch("again", "again")
    lake.table("db.orders").replace_main_branch("again")
    second = cascade(lake).group.number
    assert undo_cascade(lake, table="db.orders").undoes == second
    assert undo_cascade(lake, table="db.orders").repeated, "who repeats a call does not mean the one before"
    assert undo_cascade(lake, first).undoes == first
    assert undo_cascade(lake, table="db.orders").undoes == first


def test_jobs_go_on_with_the_branch_that_is_main_now():
    lake = spoilt()
    cascade(lake)
    lake.table("db.orders").append(rows(8, 2))
    for job in CHAIN:
        run(job, lake)
    assert is_corrected(lake, range(10))


def test_it_can_be_looked_at_before_it_is_published():
    lake = spoilt()
    before = values(lake, "db.clean")
    result = cascade(lake, publish=False)
    assert repr(result) == "<CascadeResult not published>"
    assert result.group is None
    assert not result.is_published
    assert values(lake, "db.clean") == before
    assert values(lake, f"db.clean$branch_{NAME}") == expected(ALL, doubled)
    assert plan(lake).steps[0].is_there
    lake.table("db.orders").append(rows(8, 2))
    cascade(lake)
    assert is_corrected(lake, range(10)), "what came meanwhile is taken in"


def test_audits_stand_before_publishing(tmp_path):
    lake = spoilt()
    checks = tmp_path / "checks.yml"
    checks.write_text("name: rows\nchecks:\n  - row_count: {min: 100}\n")
    before = values(lake, "db.clean")
    with pytest.raises(CommitConflictError, match="did not pass its audit"):
        cascade(lake, audits={"db.clean": checks})
    assert values(lake, "db.clean") == before
    with pytest.raises(InvalidInputError, match="'db.unknown' is not to be corrected"):
        cascade(lake, audits={"db.unknown": checks})
    checks.write_text("name: rows\nchecks:\n  - row_count: {min: 8}\n")
    cascade(lake, audits={"db.clean": checks})
    assert is_corrected(lake)


def test_nothing_is_to_be_done_where_nothing_was_made_from_it():
    lake = new_lake("db.orders", "db.other")
    orders = lake.table("db.orders")
    orders.append(rows(0, 2))
    orders.create_tag("good")
    with pytest.raises(NotFoundError, match="main of 'db.orders' was not replaced"):
        plan(lake)
    orders.append(rows(2, 2))
    correct(lake, 1, 1)
    assert plan(lake).is_done
    assert cascade(lake).is_published
    with pytest.raises(NotFoundError, match="no cascade of 'db.orders'"):
        undo_cascade(lake, table="db.orders")


def test_a_table_that_was_bad_from_the_beginning_begins_empty():
    lake = new_lake("db.orders", "db.clean", "db.big")
    lake.table("db.orders").append(rows(0, 2))
    lake.table("db.orders").create_tag("good")
    lake.table("db.orders").append(rows(2, 2, factor=100))
    for job in CHAIN:
        run(job, lake)
    correct(lake, 1, 1)
    steps = plan(lake).steps
    assert [(s.fork, s.is_empty, s.bad) for s in steps] == [(1, True, ((1, 1),))] * 2
    assert steps[1].jobs[0].sources[0].begins == "as declared"
    cascade(lake, publish=False)
    assert [(s.fork, s.is_empty) for s in plan(lake).steps] == [(1, True)] * 2
    cascade(lake)
    assert is_corrected(lake, range(4))


def test_good_commits_after_a_fork_are_made_again_and_so_is_what_was_made_from_them():
    """Of two writers of db.clean only one took in something bad; a reader of the other's rows is affected too."""
    other = streaming("other", ["db.more"], "db.clean", doubled)
    lake = spoilt(
        (CLEAN, other, BIG), tables=("db.orders", "db.more", "db.clean", "db.big"), after_good=_more
    )
    lake.table("db.more").append(rows(200, 2))
    for job in (other, BIG):
        run(job, lake)
    jobs = (CLEAN, other, BIG)
    clean, big = plan(lake, jobs).steps
    assert [(part.job, part.commits) for part in clean.jobs] == [("clean", 2), ("other", 2)]
    assert big.bad[0][0] == big.fork + 1
    cascade(lake, jobs)
    both = sorted(expected(ALL, doubled) + expected(_MORE, doubled))
    assert values(lake, "db.clean") == both
    assert values(lake, "db.big") == [one for one in both if one[0] % 2 == 0]


_MORE = [100, 101, 200, 201]


def _more(lake):
    lake.table("db.more").append(rows(100, 2))


def test_a_table_that_is_made_from_two_comes_after_both():
    left = streaming("left", ["db.orders"], "db.left", doubled)
    right = streaming("right", ["db.orders"], "db.right", even)
    both = streaming("both", ["db.left", "db.right"], "db.both", all_of)
    after = streaming("after", ["db.both"], "db.after", even)
    jobs = (left, right, both, after)
    lake = spoilt(jobs, tables=("db.orders", "db.left", "db.right", "db.both", "db.after"))
    assert plan(lake, jobs).tables == ("db.left", "db.right", "db.both", "db.after")
    cascade(lake, reversed(jobs) and jobs[::-1])
    wanted = sorted([*expected(ALL, doubled), *((i + 1_000, v) for i, v in expected(ALL, even))])
    assert values(lake, "db.both") == wanted
    assert values(lake, "db.after") == [one for one in wanted if one[0] % 2 == 0]


def test_what_no_job_makes_again_is_said_and_waited_for():
    lake = spoilt()
    lake.table("db.clean").append(rows(500, 1))
    lake.table("db.clean").append(rows(501, 1))
    step = plan(lake).steps[0]
    assert step.problems == (
        "snapshots 5, 6 were committed by hand, or by somebody who did not say from what",
    )
    result = cascade(lake)
    assert result.waiting.table == "db.clean"
    assert repr(result) == "<CascadeResult not published: waits for 'db.clean', which somebody has to finish>"
    assert not result.done
    lake.table(f"db.clean$branch_{NAME}").append(rows(500, 1))
    assert cascade(lake).waiting is not None
    result = cascade(lake, by_hand={"db.clean"})
    assert result.group is not None
    assert values(lake, "db.clean") == sorted([*expected(ALL, doubled), (500, 500)])
    with pytest.raises(InvalidInputError, match="is not to be corrected"):
        cascade(spoilt(), by_hand={"db.unknown"})


@pytest.mark.parametrize(
    ("jobs", "problem"),
    first_short(
        [
            ((CLEAN,), "job 'big' made 2 commits of what is taken out, and it is declared in no job file"),
            ((CLEAN, streaming("big", ["db.clean"], "db.else", even)), "writes 'db.else'"),
            ((CLEAN, streaming("big", ["db.orders"], "db.big", even)), "no recorded position is certain"),
        ]
    ),
    ids=["undeclared", "other-sink", "other-source"],
)
def test_a_job_that_is_not_as_it_was(jobs, problem):
    lake = spoilt()
    found = plan(lake, jobs)
    assert not found.steps[0].problems
    assert problem in found.steps[1].problems[0]
    result = cascade(lake, jobs)
    assert (result.done, result.waiting.table) == (("db.clean",), "db.big")
    assert cascade(lake).group is not None
    assert is_corrected(lake)


def test_a_merged_branch_is_merged_by_hand():
    def merge(lake):
        table = lake.table("db.clean")
        table.create_branch("more", snapshot=2)
        table.branch("more").append(rows(300, 1))

    lake = spoilt(after_good=merge)
    lake.table("db.clean").merge_branch("more")
    (problem,) = plan(lake).steps[0].problems
    assert "brought in a branch (merge-branch more)" in problem


def test_a_fork_that_has_expired_is_looked_for_among_tags():
    lake = spoilt(good=3, after_good=lambda lake: lake.table("db.clean").create_tag("kept", 2))
    for table in ("db.clean", "db.big"):
        lake.table(table).expire_snapshots(retain_max=1, retain_min=1, older_than=2**52)
    clean, big = plan(lake).steps
    assert (clean.fork, clean.bad, clean.anew) == (2, ((4, 5),), 3)
    assert big.fork is None
    assert "begin again at snapshot 3" in big.problems[0]
    with pytest.raises(InvalidInputError, match=r"'db\.big' cannot be corrected"):
        cascade(lake)


def test_a_branch_of_that_name_that_begins_otherwise():
    lake = spoilt()
    lake.table("db.big").create_branch(NAME, snapshot=4)
    assert plan(lake).steps[1].fork == 2
    with pytest.raises(InvalidInputError, match="begins otherwise than with snapshot 2"):
        cascade(lake)


def test_what_changes_meanwhile_is_not_lost():
    lake = spoilt()

    def other_work(job, lake, how):
        if job is BIG:
            lake.table("db.clean").append(rows(900, 1))
        return run(job, lake, how)

    from anabranch.cascade import run_cascade

    with pytest.raises(CommitConflictError, match="has changed while it was being done"):
        run_cascade(lake, "db.orders", CHAIN, runner=other_work)
    assert (900, 900) in values(lake, "db.clean")
    assert cascade(lake).waiting.table == "db.clean"


def test_corrections_one_after_the_other_are_done_together():
    lake = spoilt()
    orders = lake.table("db.orders")
    orders.create_branch("again", "good")
    orders.branch("again").append(rows(4, 2))
    orders.replace_main_branch("again")
    found = plan(lake)
    assert found.number == 2
    assert found.steps[0].branch == "cascade-db.orders-2"
    cascade(lake)
    assert is_corrected(lake, range(6))


@pytest.mark.long
def test_a_correction_that_is_taken_back_is_a_correction_too():
    lake = spoilt()
    wrong = [values(lake, table) for table in ("db.clean", "db.big")]
    cascade(lake)
    lake.table("db.orders").undo_replace()
    found = plan(lake)
    assert found.number == 2
    assert found.tables == ("db.clean", "db.big")
    cascade(lake)
    assert [values(lake, table) for table in ("db.clean", "db.big")] == wrong


def test_a_table_that_a_job_reads_beside_is_left_as_it_is():
    both = streaming("both", ["db.orders", "db.more"], "db.both", all_of)
    lake = spoilt((both,), tables=("db.orders", "db.more", "db.both"), after_good=_more)
    found = plan(lake, (both,))
    assert [(s.name, s.begins) for s in found.steps[0].jobs[0].sources] == [
        ("db.orders", "after snapshot 2"),
        ("db.more", "with all rows of snapshot 1"),
    ]
    cascade(lake, (both,))
    assert values(lake, "db.both") == sorted([*expected(ALL), *((i + 1_000, i) for i in (100, 101))])


def test_branches_that_are_not_main_are_named():
    lake = spoilt()
    lake.table("db.clean").create_branch("mine", snapshot=3)
    mine = lake.table("db.clean").branch("mine")
    run(CLEAN, lake, _on("mine"))
    assert mine.snapshot.id > 3
    found = plan_cascade(lake, "db.orders", CHAIN)
    assert found.tables == ("db.clean", "db.big")


def _on(branch):
    from anabranch.jobs.prepare import Run

    return Run(branch=branch)


def test_a_batch_that_made_nothing_of_bad_rows_is_made_again_too():
    """The wrong unit made the filter drop them; what is right would have passed."""
    low = streaming("low", ["db.orders"], "db.low", lambda found: [row for row in found if row["v"] < 50])
    after = streaming("after", ["db.low"], "db.after", doubled)
    lake = spoilt((low, after), tables=("db.orders", "db.low", "db.after"))
    assert values(lake, "db.low") == expected(range(4))
    found = plan(lake, (low, after))
    assert [(s.table, s.bad, s.fork) for s in found.steps] == [
        ("db.low", ((3, 4),), 2),
        ("db.after", ((3, 4),), 2),
    ]
    cascade(lake, (low, after))
    assert values(lake, "db.low") == expected(ALL)
    assert values(lake, "db.after") == expected(ALL, doubled)
    assert plan(lake, (low, after)).is_done


def test_who_read_a_batch_that_came_to_nothing_is_made_again_from_before_it():
    """The reader had taken it in together with good rows, so its commit has rows, none of them wrong."""
    low = streaming("low", ["db.orders"], "db.low", lambda found: [row for row in found if row["v"] < 50])
    after = streaming("after", ["db.low"], "db.after", doubled)
    lake = new_lake("db.orders", "db.low", "db.after")
    for number, factor in enumerate((1, 1, 100)):
        lake.table("db.orders").append(rows(2 * number, 2, factor))
        if number == 1:
            lake.table("db.orders").create_tag("good")
        run(low, lake)
        if number != 1:
            run(after, lake)
    correct(lake, 2, 1)
    assert [(s.table, s.bad, s.fork) for s in plan(lake, (low, after)).steps] == [
        ("db.low", ((3, 3),), 2),
        ("db.after", ((2, 2),), 1),
    ]
    cascade(lake, (low, after))
    assert values(lake, "db.after") == expected(range(6), doubled)


@pytest.mark.parametrize(("mode", "times"), [("append", 1), ("overwrite", 3)])
def test_a_batch_job_is_run_once(mode, times):
    daily = batch("daily", "db.orders", "db.daily", doubled, mode)
    lake = new_lake("db.orders", "db.daily")
    orders = lake.table("db.orders")
    orders.append(rows(0, 2))
    orders.create_tag("good")
    if mode == "overwrite":
        run(daily, lake)
    orders.append(rows(2, 2, factor=100))
    for _ in range(times):
        run(daily, lake)
    correct(lake, 1, 1)
    (part,) = plan(lake, (daily,)).steps[0].jobs
    assert part.is_batch
    assert [(s.name, s.begins) for s in part.sources] == [("db.orders", "as it is")]
    cascade(lake, (daily,), publish=False)
    cascade(lake, (daily,))
    assert values(lake, "db.daily") == expected(range(4), doubled)


def test_a_batch_job_that_appended_more_than_once_is_no_job_to_run_again():
    daily = batch("daily", "db.orders", "db.daily", doubled)
    lake = new_lake("db.orders", "db.daily")
    orders = lake.table("db.orders")
    orders.append(rows(0, 2))
    orders.create_tag("good")
    run(daily, lake)
    for number in range(2):
        orders.append(rows(2 + number, 1, factor=100))
        run(daily, lake)
    correct(lake, 1, 1)
    (problem,) = plan(lake, (daily,)).steps[0].problems
    assert "job 'daily' made 2 commits of what is taken out as a batch job that appends" in problem
