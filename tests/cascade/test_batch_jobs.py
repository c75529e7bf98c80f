"""Batch jobs whose commits, or declarations, do not say that they are batches: none of their rows is lost, or comes twice."""

import pytest

from anabranch.cascade import plan_correction, run_correction
from anabranch.jobs.job import job as declare
from anabranch.jobs.source import static
from anabranch.jobs.status import JobStatus, State
from tests.cascade.story import new_lake, rows, values

SOURCES = {"table": static("db.raw"), "function": lambda spark: spark}


def nightly(source, mode):
    """A job that is run for a day at a time; Spark alone can tell whether what a function returns is a stream."""
    return declare("nightly", sources={"raw": SOURCES[source]}, sink="db.daily", mode=mode)(lambda raw: raw)


def made(lake, name, number, mode, factor=1):
    """A run of it, which does not say what it read."""
    table = lake.table(name)
    with lake.job("nightly") as job:
        job.read_from("a service")
        (table.append if mode == "append" else table.replace)(rows(number, 1, factor))


def corrected(lake, source, mode, number):
    runs = []

    def runner(one, lake, how):
        runs.append(one.name)
        made(lake, f"db.daily$branch_{how.branch}", number, mode)
        return [JobStatus(one.name, one.sink, State.ENDED)]

    return run_correction(lake, "db.daily", "good", [nightly(source, mode)], runner=runner), runs


def spoilt(mode, bad):
    lake = new_lake("db.raw", "db.daily")
    made(lake, "db.daily", 0, mode)
    lake.table("db.daily").create_tag("good")
    for number in range(bad):
        made(lake, "db.daily", 1 + number, mode, factor=900)
    return lake


@pytest.mark.parametrize("source", SOURCES)
def test_one_run_that_appends_is_made_again_once(source):
    lake = spoilt("append", 1)
    result, runs = corrected(lake, source, "append", 1)
    assert result.group is not None
    assert runs == ["nightly"]
    assert values(lake, "db.daily") == [(0, 0), (1, 1)]


@pytest.mark.parametrize("source", SOURCES)
def test_two_runs_that_append_are_done_by_hand(source):
    lake = spoilt("append", 2)
    (step,) = plan_correction(lake, "db.daily", "good", [nightly(source, "append")]).steps
    (problem,) = step.problems
    assert problem.startswith("job 'nightly' made 2 commits of what is taken out as a batch job that appends")
    result, runs = corrected(lake, source, "append", 1)
    assert (result.waiting.table, runs) == ("db.daily", [])


def test_what_overwrites_by_a_function_is_made_anew_as_often_as_something_may_have_come():
    lake = spoilt("overwrite", 2)
    result, runs = corrected(lake, "function", "overwrite", 7)
    assert result.group is not None
    assert len(runs) == 2
    assert values(lake, "db.daily") == [(7, 7)]
