"""A cascade in words: what each step guarantees, and the command that comes next."""

import shlex

from anabranch.cascade import CascadeOptions, plan_correction, run_cascade, run_correction, undo_correction
from anabranch.cascade.telling import command_of, told_groups, told_plan, told_result
from anabranch.jobs.status import JobStatus, State
from tests.cascade.embedded import BATCH_MILLIS, batch, run, streaming
from tests.cascade.story import CHAIN, CLEAN, cascade, doubled, even, plan, rows, spoilt


def told(lines):
    return "\n".join(lines)


def test_a_plan():
    lake = spoilt()
    text = told(told_plan(plan(lake), ["jobs.py"]))
    assert (
        "replacement 1 of main of db.orders took out snapshots 3..4 of main@1; 2 tables to correct, in this order:"
        in text
    )
    assert (
        "2. db.big: snapshots 3..4 are spoilt; its branch begins with snapshot 2; 2 commits (2 rows) made again"
        in text
    )
    assert text.count("     time: its batches took 2 min 2 s or more the first time") == 2
    assert "changes no main before all of them, at once" in text
    assert text.endswith("next: anabranch cascade db.orders --run --jobs jobs.py")
    assert plan(lake).to_dict()["took_millis"] == 4 * BATCH_MILLIS, "two commits of each job"


def test_a_name_in_a_command_is_a_word_and_never_a_command():
    lake, tag = spoilt(), "so far; $(touch x) it's `fine`"
    lake.table("db.orders").create_tag(tag, 1)
    found = plan_correction(lake, "db.orders", tag, [])
    words = ["anabranch", "correct", "db.orders", "--from-tag", tag, "--run", "--jobs", "my jobs.py"]
    assert shlex.split(command_of(found, ["my jobs.py"])) == words


def test_a_correction_by_a_name_of_its_own_is_gone_on_with_and_taken_back_by_that():
    lake = spoilt()
    lake.table("db.orders").create_tag("so far", 1)
    what = ["correct", "db.orders", "--from-tag", "so far", "--name", "other"]

    def words(line):
        return shlex.split(line)[1:]

    def correct(**options):
        jobs = [streaming("orders", ["db.raw"], "db.orders", doubled), *CHAIN]
        how = CascadeOptions(by_hand=["db.orders"], **options)
        return run_correction(lake, "db.orders", "so far", jobs, how, name="other", runner=run)

    found = plan_correction(lake, "db.orders", "so far", [], name="other")
    assert words(command_of(found, ["a.py"])) == [*what, "--run", "--jobs", "a.py"]
    *_, last = told_result(correct(publish=False), ["a.py"])
    assert words(last.removeprefix("next: ")) == [*what, "--run", "--jobs", "a.py"]
    *_, last = told_result(correct(), ["a.py"])
    assert words(last.removeprefix("to take all of it back: ")) == [*what, "--undo"]
    undone = undo_correction(lake, "db.orders", "so far", name="other")
    assert "db.orders" in {name for name, _ in undone.tables}


def test_batch_jobs_are_not_run_again_after_they_were_published():
    """Run a second time, one that appends would write its rows twice; and a single checkpoint is for the stream."""
    jobs = CLEAN, batch("big", "db.clean", "db.big", even, mode="overwrite")
    result = cascade(spoilt(jobs), jobs, checkpoint="at")
    assert [part.job for step in result.plan.steps for part in step.jobs] == ["clean", "big"]
    text = told(told_result(result, ["jobs.py"], kept=["--checkpoint", "at"]))
    assert "next: anabranch run jobs.py --job clean --checkpoint at\n" in text


def test_a_plan_after_two_corrections_names_both_old_mains_and_counts_right():
    lake = spoilt(bad=1)
    lake.table("db.orders").append(rows(6, 2))
    run(CHAIN[0], lake)
    lake.table("db.orders").create_tag("well")
    lake.table("db.orders").append(rows(8, 2))
    lake.table("db.orders").create_branch("next", "well")
    lake.table("db.orders").replace_main_branch("next")
    text = told(told_plan(plan(lake)))
    assert "replacement 2 of main of db.orders took out snapshots 3 of main@1, 5 of main@2; 2 tables" in text
    assert "2. db.big: snapshot 3 is spoilt;" in text


def test_what_was_published_says_how_to_go_on_and_back():
    lake = spoilt()
    text = told(told_result(cascade(lake), ["jobs.py"]))
    assert "group 1: replaced main of db.clean, db.big, all of them at once" in text
    assert "All readers see the corrected tables from one moment on" in text
    assert "next: anabranch run jobs.py --job clean --job big" in text
    assert text.endswith("to take all of it back: anabranch cascade --undo 1")
    assert told(told_result(cascade(lake))).startswith("nothing to do")
    assert "group 1, replaced: " in told(told_groups(lake.groups()))


def test_what_is_held_back_says_where_to_look():
    text = told(told_result(cascade(spoilt(), publish=False), ["jobs.py"]))
    assert "made again on branch cascade-db.orders-1: db.clean, db.big. Nothing is published" in text
    assert "look at it: anabranch diff db.clean main..cascade-db.orders-1" in text
    assert text.endswith("next: anabranch cascade db.orders --run --jobs jobs.py")


def test_what_waits_says_for_what():
    lake = spoilt()
    lake.table("db.clean").append(rows(500, 1))
    text = told(told_result(cascade(lake), ["jobs.py"]))
    assert "db.clean waits for somebody: snapshot 5 was committed by hand" in text
    assert "Write these rows to db.clean$branch_cascade-db.orders-1" in text
    assert text.endswith("next: anabranch cascade db.orders --run --jobs jobs.py --by-hand db.clean")


def test_what_failed_says_that_nothing_has_changed():
    lake = spoilt()

    def failing(job, lake, how):
        if job.name == "big":
            return [JobStatus(job.name, job.sink, State.FAILED, message="no space", hint="make some.")]
        return run(job, lake, how)

    result = run_cascade(lake, "db.orders", CHAIN, runner=failing)
    assert (result.done, result.group) == (("db.clean",), None)
    text = told(told_result(result, ["jobs.py"]))
    assert "big: failed: no space\n  hint: make some." in text
    assert "all mains are as they were" in text
    assert cascade(lake).group is not None


def test_the_next_command_checks_what_this_one_would_have():
    more = ("--checks", "my checks.yml")
    text = told(told_plan(plan(spoilt()), ["jobs.py"], more))
    assert "--jobs jobs.py --checks 'my checks.yml'" in text
    text = told(told_result(cascade(spoilt(), publish=False), ["jobs.py"], more))
    assert "--jobs jobs.py --checks 'my checks.yml'" in text
