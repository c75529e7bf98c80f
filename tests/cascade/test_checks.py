"""What must not be published: rows of other corrections, of a job's former code, of some partitions only; and tags that move."""

import pytest

from anabranch.cascade import CascadeOptions, run_correction, undo_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.status import JobStatus, State
from tests.cascade.correcting import plus
from tests.cascade.embedded import batch, run, streaming
from tests.cascade.story import new_lake, rows, values


def union(a, b):
    return [*a, *({"id": 1000 + row["id"], "v": row["v"]} for row in b)]


A, WRONG_A = (streaming("a", ["db.raw"], "db.a", plus(number)) for number in (0, 900))
B, WRONG_B = (streaming("b", ["db.raw"], "db.b", plus(number)) for number in (0, 500))
BOTH = streaming("both", ["db.a", "db.b"], "db.both", union)


def feed(lake, number, jobs):
    lake.table("db.raw").append(rows(2 * number, 2))
    for one in jobs:
        run(one, lake)


def spoilt():
    """Two tables that go wrong at one time, and one that is made from both."""
    lake = new_lake("db.raw", "db.a", "db.b", "db.both")
    for number in range(4):
        feed(lake, number, (A, B, BOTH) if number < 2 else (WRONG_A, WRONG_B, BOTH))
        if number == 1:
            lake.table("db.a").create_tag("good")
            lake.table("db.b").create_tag("good")
    return lake


def correct_a(lake, **how):
    return run_correction(lake, "db.a", "good", (A, WRONG_B, BOTH), runner=run, **how)


def correct_b(lake, **how):
    return run_correction(lake, "db.b", "good", (A, B, BOTH), runner=run, **how)


RIGHT = sorted([(i, i) for i in range(8)] + [(1000 + i, i) for i in range(8)])


def test_two_corrections_one_after_the_other():
    lake = spoilt()
    assert correct_a(lake).group is not None
    assert correct_b(lake).group is not None
    assert values(lake, "db.both") == RIGHT


@pytest.mark.long
def test_a_correction_made_beside_another_is_not_published_over_it():
    lake, done = spoilt(), []

    def meanwhile(job, lake, how):
        ended = run(job, lake, how)
        if job.name == "both" and not done:
            done.append(correct_a(lake))
        return ended

    before_b = values(lake, "db.b")
    with pytest.raises(
        InvalidInputError, match="has read main of 'db.a' up to snapshot 4, and that main was replaced"
    ) as no:
        run_correction(lake, "db.b", "good", (WRONG_A, B, BOTH), runner=meanwhile)
    assert done[0].group is not None
    assert "--name correct-db.b-good.again" in no.value.hint
    assert values(lake, "db.b") == before_b
    with pytest.raises(InvalidInputError, match="that main was replaced"):
        correct_b(lake)
    assert correct_b(lake, name="again").group is not None
    assert values(lake, "db.both") == RIGHT


def test_what_was_taken_back_is_not_published_again_over_another_correction():
    lake = spoilt()
    assert correct_a(lake).group is not None
    undo_correction(lake, "db.a", "good")
    assert correct_b(lake).group is not None
    with pytest.raises(InvalidInputError, match="has read main of 'db.b'"):
        run_correction(lake, "db.a", "good", (A, B, BOTH), runner=run)
    assert run_correction(lake, "db.a", "good", (A, B, BOTH), runner=run, name="again").group is not None
    assert values(lake, "db.both") == RIGHT


def test_a_tag_that_is_moved_begins_another_correction():
    lake = spoilt()
    assert correct_a(lake).group is not None
    lake.table("db.a").delete_tag("good")
    lake.table("db.a").create_tag("good")
    feed(lake, 4, (WRONG_A, WRONG_B, BOTH))
    result = correct_a(lake)
    assert (result.plan.name, result.group is not None) == ("correct-db.a-good.2", True)
    assert values(lake, "db.a") == [(i, i) for i in range(10)]
    assert correct_a(lake).plan.is_done
    undo_correction(lake, "db.a", "good")
    assert values(lake, "db.a") == [(i, i if i < 8 else i + 900) for i in range(10)]


@pytest.mark.long
def test_long_tags_that_begin_alike_are_other_corrections():
    lake, tags = spoilt(), [f"before-the-release-of-november-{number}" for number in (1, 2)]
    for snapshot, tag in zip((2, 1), tags, strict=True):
        lake.table("db.a").create_tag(tag, snapshot=snapshot)
    jobs = (A, WRONG_B, BOTH)
    assert run_correction(lake, "db.a", tags[0], jobs, runner=run).group is not None
    feed(lake, 4, (WRONG_A, WRONG_B, BOTH))
    assert run_correction(lake, "db.a", tags[1], jobs, runner=run).group is not None
    assert values(lake, "db.a") == [(i, i) for i in range(10)]


def total(given):
    return [{"id": 0, "v": sum(row["v"] for row in given)}]


def test_a_batch_table_is_made_of_what_is_published_and_not_of_what_was_there_when_it_was_looked_at():
    report = batch("report", "db.a", "db.report", total, "overwrite")
    lake = new_lake("db.raw", "db.a", "db.report")
    for number in range(3):
        feed(lake, number, (A if number < 1 else WRONG_A, report))
        if number == 0:
            lake.table("db.a").create_tag("good")
    jobs = (A, report)
    held = run_correction(lake, "db.a", "good", jobs, CascadeOptions(publish=False), runner=run)
    assert held.group is None
    feed(lake, 3, (WRONG_A, report))
    assert run_correction(lake, "db.a", "good", jobs, runner=run).group is not None
    assert values(lake, "db.a") == [(i, i) for i in range(8)]
    assert values(lake, "db.report") == [(0, sum(range(8)))]


def test_a_batch_job_is_run_again_though_it_is_not_known_what_else_it_had_read():
    report = batch("report", "db.a", "db.report", total, "overwrite")
    lake = new_lake("db.raw", "db.a", "db.report")

    def beside(job, lake, how=None):
        if job.name != "report":
            return run(job, lake, how)
        on = "" if how is None or how.branch is None else f"$branch_{how.branch}"
        with lake.job("report") as current:
            current.problem("its rows may be made of what a thread has read")
            lake.table(f"db.report{on}").replace(total(lake.table(f"db.a{on}").scan().to_arrow().to_pylist()))
        return [JobStatus(job.name, job.sink, State.ENDED)]

    for number in range(3):
        feed(lake, number, (A if number < 1 else WRONG_A,))
        beside(report, lake)
        if number == 0:
            lake.table("db.a").create_tag("good")
    assert run_correction(lake, "db.a", "good", (A, report), runner=beside).group is not None
    assert values(lake, "db.report") == [(0, sum(range(6)))]


def test_partitions_that_a_batch_job_does_not_make_again_are_waited_for():
    lake = new_lake("db.raw", "db.a")
    lake.create_table("db.daily", "day BIGINT, v BIGINT", partition_by=["day"])
    today = [0]
    daily = batch("daily", "db.a", "db.daily", None, "overwrite")

    def by_day(job, lake, how=None):
        """As Spark's batch jobs: a partitioned table has those partitions replaced that there are rows of."""
        if job.name != "daily":
            return run(job, lake, how)
        on = "" if how is None or how.branch is None else f"$branch_{how.branch}"
        with lake.job("daily"):
            given = lake.table(f"db.a{on}").scan().to_arrow().to_pylist()
            of_day = [row["v"] for row in given if row["id"] // 2 == today[0]]
            lake.table(f"db.daily{on}").overwrite([{"day": today[0], "v": sum(of_day)}])
        return [JobStatus(job.name, job.sink, State.ENDED)]

    for number in range(4):
        today[0] = number
        feed(lake, number, (A if number < 1 else WRONG_A,))
        by_day(daily, lake)
        if number == 0:
            lake.table("db.a").create_tag("good")
    result = run_correction(lake, "db.a", "good", (A, daily), runner=by_day)
    assert result.group is None
    assert "day=1, day=2; run it for each" in result.waiting.problems[0]
    for number in (1, 2):
        today[0] = number
        with lake.job("daily"):
            given = lake.table(f"db.a$branch_{result.plan.name}").scan().to_arrow().to_pylist()
            day = {"day": number, "v": sum(row["v"] for row in given if row["id"] // 2 == number)}
            lake.table(f"db.daily$branch_{result.plan.name}").overwrite([day])
    assert run_correction(lake, "db.a", "good", (A, daily), runner=by_day).group is not None
    found = lake.table("db.daily").scan().to_arrow().to_pylist()
    assert sorted((row["day"], row["v"]) for row in found) == [(n, 4 * n + 1) for n in range(4)]
