"""`correct`: a table and all that was made from it, from a tag, by corrected jobs, published as one."""

import pytest

from anabranch.cascade import CascadeOptions, plan_correction, run_correction, undo_correction
from anabranch.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    JobTakenError,
    NotFoundError,
)
from tests.branches.grouping import copy_of, lake_on, storage_of
from tests.cascade.correcting import plus
from tests.cascade.embedded import SCHEMA, batch, run, streaming
from tests.cascade.story import doubled, even, new_lake, rows, values
from tests.support.lengths import first_short

GOOD, BAD = (
    streaming("orders", ["db.raw"], "db.orders", plus(0)),
    streaming("orders", ["db.raw"], "db.orders", plus(900)),
)
CLEAN = streaming("clean", ["db.orders"], "db.clean", doubled)
BIG = streaming("big", ["db.clean"], "db.big", even)
RIGHT, WRONG = (GOOD, CLEAN, BIG), (BAD, CLEAN, BIG)
TABLES = ("db.orders", "db.clean", "db.big")


def feed(lake, first, jobs):
    lake.table("db.raw").append(rows(first, 2))
    for one in jobs:
        run(one, lake)


def spoilt():
    """Two batches are right and tagged, two are wrong."""
    lake = new_lake("db.raw", *TABLES)
    for number in range(4):
        feed(lake, 2 * number, RIGHT if number < 2 else WRONG)
        if number == 1:
            lake.table("db.orders").create_tag("good")
    return lake


def found(lake):
    return [values(lake, table) for table in TABLES]


def wanted(count):
    numbers = range(count)
    return [
        [(i, i) for i in numbers],
        [(i, 2 * i) for i in numbers],
        [(i, 2 * i) for i in numbers if i % 2 == 0],
    ]


def correct(lake, jobs=RIGHT, **how):
    return run_correction(lake, "db.orders", "good", jobs, runner=run, **how)


def damaged(lake, table):
    """A lake of its own, in which nothing is kept in memory and the newest snapshot of a table is torn."""
    storage = storage_of(copy_of(lake))
    path = f"{table.replace('.', '.db/')}/snapshot/snapshot-{lake.table(table).snapshot.id}"
    storage.put(path, storage.get(path)[:20])
    return lake_on(storage)


def test_a_damaged_table_that_may_have_to_be_corrected_is_named():
    with pytest.raises(CorruptTableError, match=r"db\.clean is damaged: snapshot/snapshot-\d") as refused:
        plan_correction(damaged(spoilt(), "db.clean"), "db.orders", "good", RIGHT)
    assert "db.clean" in refused.value.hint


def test_the_table_and_all_that_was_made_from_it_are_published_as_one():
    lake = spoilt()
    wrong = found(lake)
    plan = plan_correction(lake, "db.orders", "good", RIGHT)
    assert plan.tables == TABLES
    assert [step.rows for step in plan.steps] == [4, 4, 2]
    assert found(lake) == wrong

    result = correct(lake)
    assert sorted(table for table, _, _ in lake.groups()[-1].tables) == sorted(TABLES)
    assert result.group.number == lake.groups()[-1].number
    assert found(lake) == wanted(8)

    feed(lake, 8, RIGHT)
    assert found(lake) == wanted(10)


def test_main_of_a_table_that_nobody_confirmed_is_not_changed():
    """Another job has made something of the table since somebody looked at the plan."""
    lake = spoilt()
    confirmed, wrong = TABLES[:-1], found(lake)
    with pytest.raises(CommitConflictError, match=f"{TABLES[-1]}, which was not confirmed"):
        correct(lake, options=CascadeOptions(only=confirmed))
    assert found(lake) == wrong
    assert [lake.table(name).branches() for name in TABLES] == [[]] * len(TABLES), "nothing was begun"
    correct(lake, options=CascadeOptions(only=TABLES))
    assert found(lake) == wanted(8)


def test_the_same_call_again_changes_nothing_and_undo_takes_it_back():
    lake = spoilt()
    wrong = found(lake)
    correct(lake)
    heads = [lake.table(table).snapshot for table in TABLES]
    again = correct(lake)
    assert again.plan.is_done
    assert [lake.table(table).snapshot for table in TABLES] == heads

    undo_correction(lake, "db.orders", "good")
    assert found(lake) == wrong
    correct(lake)
    assert found(lake) == wanted(8)


def test_a_check_that_fails_stops_before_anything_downstream_is_made(tmp_path):
    lake = spoilt()
    wrong = found(lake)
    checks = tmp_path / "checks.yml"
    checks.write_text("name: small\nchecks:\n  - range: {column: v, max: 900}\n")
    with pytest.raises(CommitConflictError, match="did not pass its audit"):
        correct(lake, WRONG, checks=checks)
    assert found(lake) == wrong
    assert lake.table("db.clean").snapshot.id == 4
    with pytest.raises(NotFoundError):
        undo_correction(lake, "db.orders", "good")


def test_what_nobody_makes_again_stops_it_and_says_so():
    lake = spoilt()
    lake.table("db.orders").append(rows(100, 1))
    wrong = found(lake)
    result = correct(lake)
    assert result.group is None
    assert "committed by hand" in result.waiting.problems[0]
    assert found(lake) == wrong


def test_rows_that_came_to_the_sources_meanwhile_are_in_it():
    lake = spoilt()
    calls = []

    def runner(job, lake, how):
        if not calls:
            feed(lake, 8, WRONG)
        calls.append(job.name)
        return run(job, lake, how)

    run_correction(lake, "db.orders", "good", RIGHT, runner=runner)
    assert found(lake) == wanted(10)


class _KilledError(BaseException):
    pass


@pytest.mark.parametrize("last", first_short(range(6)))
def test_killed_between_jobs_it_goes_on(last):
    lake = spoilt()
    wrong = found(lake)
    calls = []

    def runner(job, lake, how):
        if len(calls) == last:
            raise _KilledError
        calls.append(job.name)
        return run(job, lake, how)

    with pytest.raises(_KilledError):
        run_correction(lake, "db.orders", "good", RIGHT, runner=runner)
    assert found(lake) == wrong
    correct(lake)
    assert found(lake) == wanted(8)


@pytest.mark.long
def test_a_second_correction_from_the_same_tag_has_a_name_of_its_own():
    lake = spoilt()
    correct(lake, WRONG)
    plan = plan_correction(lake, "db.orders", "good", RIGHT, name="better")
    assert any("came after tag 'good'" in warning for warning in plan.warnings)
    correct(lake, name="better")
    assert found(lake) == wanted(8)


def test_a_tag_that_is_not_there_or_not_of_main_is_refused():
    lake = spoilt()
    with pytest.raises(NotFoundError, match="nowhere"):
        plan_correction(lake, "db.orders", "nowhere", RIGHT)
    with pytest.raises(InvalidInputError, match="'db.missing' is not to be corrected"):
        correct(lake, options=CascadeOptions(by_hand=["db.missing"]))


def test_a_column_that_main_got_since_the_tag_is_not_lost_and_the_corrected_job_writes_it():
    lake = spoilt()
    lake.table("db.orders").alter().add_column("w", "INT").apply()
    wide = streaming(
        "orders", ["db.raw"], "db.orders", lambda given: [{**row, "w": row["id"] + 1} for row in given]
    )
    told = []
    correct(lake, (wide, CLEAN, BIG), tell=told.append)
    assert any("gets what was changed on main since: added 'w'" in line for line in told)
    assert found(lake) == wanted(8)
    rows = sorted(lake.table("db.orders").scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["w"] for row in rows] == [None] * 4 + [5, 6, 7, 8]


def test_who_is_stopped_by_what_it_tells_before_the_last_step_publishes_nothing():
    """As one is that has lost the correction to another process."""
    lake, told = spoilt(), []
    before = found(lake)

    def tell(line):
        told.append(line)
        if line.startswith("publishing"):
            raise JobTakenError("taken over")

    with pytest.raises(JobTakenError):
        correct(lake, tell=tell)
    assert told[-1].startswith("publishing db.orders, "), "after all that is made on the branches"
    assert found(lake) == before
    correct(lake)
    assert found(lake) == wanted(8)


def test_what_else_was_changed_on_main_since_the_tag_is_not_lost():
    lake = spoilt()
    orders = lake.table("db.orders")
    orders.alter().add_column("w", "INT").apply()
    orders.alter().drop_column("w").apply()
    orders.alter().set_option("snapshot.num-retained.max", "77").set_comment("all orders").apply()
    orders.alter().rename_column("v", "value").add_column("note", "STRING").apply()

    def renamed(given):
        return [{"id": row["id"], "value": row["v"], "note": "again"} for row in given]

    def clean(given):
        return [{"id": row["id"], "v": row["value"] * 2} for row in given]

    jobs = (
        streaming("orders", ["db.raw"], "db.orders", renamed),
        streaming("clean", ["db.orders"], "db.clean", clean),
        BIG,
    )
    assert correct(lake, jobs, options=CascadeOptions(publish=False)).group is None
    assert correct(lake, jobs).group is not None
    now = lake.table("db.orders")
    assert [field.name for field in now.schema.fields] == ["id", "value", "note"]
    assert (now.schema.options["snapshot.num-retained.max"], now.schema.comment) == ("77", "all orders")
    rows_now = sorted(tuple(row.values()) for row in now.scan().to_arrow().to_pylist())
    assert rows_now == [(i, i, None if i < 4 else "again") for i in range(8)]
    assert [values(lake, "db.clean"), values(lake, "db.big")] == wanted(8)[1:]


def nightly(mode):
    return batch("orders", "db.raw", "db.orders", plus(0), mode=mode)


def test_a_job_that_replaced_its_table_and_appends_now_is_refused():
    """The rows of the tag would stand beside those that it appends."""
    lake = new_lake("db.raw", *TABLES)
    feed(lake, 0, [nightly("overwrite")])
    lake.table("db.orders").create_tag("good")
    feed(lake, 2, [nightly("overwrite")])
    before = found(lake)
    for job in (GOOD, nightly("append")):
        assert "would stand beside" in plan_correction(lake, "db.orders", "good", [job]).steps[0].problems[0]
        result = correct(lake, [job])
        assert result.group is None
        assert found(lake) == before


@pytest.mark.parametrize("rows_then", [[], [{"id": 50, "v": 1}]], ids=["deleted", "replaced"])
def test_a_job_that_replaced_a_part_of_its_table_goes_on_appending(rows_then):
    """All else that the tag holds is there, and its rows are read up to where they were."""
    lake = new_lake("db.raw")
    lake.create_table("db.orders", SCHEMA, partition_by=["v"])
    for number in range(3):
        feed(lake, 2 * number, [GOOD if number < 2 else BAD])
        if number == 1:
            with lake.job("orders"):
                lake.table("db.orders").replace(rows_then, where="v = 1")
            lake.table("db.orders").create_tag("good")
    assert correct(lake, [GOOD]).group is not None
    kept = [(i, i) for i in range(6) if i != 1]
    assert values(lake, "db.orders") == sorted(kept + [tuple(row.values()) for row in rows_then])


def test_a_job_that_emptied_its_table_goes_on_appending():
    lake = new_lake("db.raw", "db.orders")
    for number in range(3):
        feed(lake, 2 * number, [GOOD if number < 2 else BAD])
        if number == 1:
            with lake.job("orders"):
                lake.table("db.orders").replace([])
            lake.table("db.orders").create_tag("good")
    assert correct(lake, [GOOD]).group is not None
    assert values(lake, "db.orders") == [(4, 4), (5, 5)]


def test_a_job_that_replaced_the_partitions_it_made_and_appends_now_is_refused():
    lake = new_lake("db.raw")
    lake.create_table("db.orders", SCHEMA, partition_by=["v"])
    lake.table("db.raw").append(rows(0, 2))
    with lake.job("orders"):
        lake.table("db.orders").overwrite(lake.table("db.raw").scan().to_arrow())
    lake.table("db.orders").create_tag("good")
    feed(lake, 2, [BAD])
    assert "would stand beside" in plan_correction(lake, "db.orders", "good", [GOOD]).steps[0].problems[0]


def test_a_job_that_appended_and_replaces_its_table_now_makes_all_of_it():
    lake = new_lake("db.raw", *TABLES)
    for number in range(3):
        feed(lake, 2 * number, [GOOD if number < 2 else BAD])
        if number == 1:
            lake.table("db.orders").create_tag("good")
    assert correct(lake, [nightly("overwrite")]).group is not None
    assert values(lake, "db.orders") == wanted(6)[0]
