"""Rows that a job did not read itself, in its own thread: its commits name them, or say that they do not know."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.lineage.model import LINEAGE_PROPERTY, lineage_of
from anabranch.verbs.comparing import describe_diff as describe
from tests.support.tables import SCHEMA, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


@pytest.fixture
def orders(lake):
    table = lake.create_table("db.orders", SCHEMA)
    for start in (1, 3):
        table.append(rows(start, 2))
    return table


@pytest.fixture
def rates(lake):
    table = lake.create_table("db.rates", SCHEMA)
    table.append(rows(1, 1))
    return table


@pytest.fixture
def clean(lake):
    return lake.create_table("db.clean", SCHEMA)


def entry_of(snapshot):
    return lineage_of(snapshot.properties, where="test")


def read(snapshot):
    return [(i.name, i.after, i.through) for i in entry_of(snapshot).inputs]


def problems(snapshot):
    return " ".join(entry_of(snapshot).problems)


# A difference


@pytest.mark.parametrize("take", ["to_arrow", "to_pandas", "to_polars", "count", "batches"])
def test_a_difference_of_rows_is_a_read_of_both_sides(lake, orders, clean, take):
    orders.create_branch("fix", snapshot=2)
    fix = orders.branch("fix")
    fix.append(rows(9, 1))
    with lake.job("j"):
        found = orders.diff("main", "fix").rows()
        next(found.to_batches()) if take == "batches" else getattr(found, take)()
        made = clean.append(rows(1, 1))
    assert read(made) == [("db.orders", 0, 2), ("db.orders$branch_fix", 0, 3)]
    assert not problems(made)


def test_a_difference_of_files_is_no_read(lake, orders, clean):
    with lake.job("j") as job:
        job.read_from("api")
        repr(orders.diff("main@snapshot.1", "main"))
        made = clean.append(rows(1, 1))
    assert [i.source for i in entry_of(made).inputs] == ["api"]


# Threads


def test_a_pool_in_the_block_reads_for_the_job(lake, orders, rates, clean):
    with lake.job("j"), ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda table: table.scan().to_arrow(), [orders, rates])
        made = clean.append(pa.concat_tables(found))
    assert sorted(read(made)) == [("db.orders", 0, 2), ("db.rates", 0, 1)]
    assert not problems(made)


def test_an_executor_of_asyncio_reads_for_the_job(lake, orders, clean):
    async def copy():
        with lake.job("j"):
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, lambda: orders.changes(0, 1).to_arrow())
            return clean.append(found)

    made = asyncio.run(copy())
    assert read(made) == [("db.orders", 0, 1)]
    assert not problems(made)


def test_of_several_open_jobs_each_says_that_a_thread_may_have_read_for_it(
    lake, orders, clean, rates, caplog
):
    ready, go_on, made = threading.Barrier(2), threading.Event(), {}

    def other():
        with lake.job("other") as job:
            job.read_from("api")
            ready.wait(30)
            go_on.wait(30)
            made["other"] = rates.append(rows(5, 1))

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(30)
    with lake.job("ours"), ThreadPoolExecutor(1) as pool:
        found = pool.submit(orders.scan().to_arrow).result()
        made["ours"] = clean.append(found.slice(0, 1))
        made["again"] = clean.append(found.slice(1, 1))
    go_on.set()
    thread.join()
    for name in ("ours", "other", "again"):
        assert "db.orders" in problems(made[name])
        assert "job.joined()" in problems(made[name])
    assert len([r for r in caplog.records if "'ours' is incomplete" in r.message]) == 1


def test_a_lazy_frame_is_read_for_the_job_that_asked_for_it(lake, orders, rates, clean):
    """Polars and DuckDB read in threads of their own."""
    with lake.job("one"), ThreadPoolExecutor(1) as pool:

        def other():
            with lake.job("two"):
                return clean.append(rates.scan().to_polars(lazy=True).filter(pl.col("id") > 0).collect())

        lazy, data = orders.scan().to_polars(lazy=True), orders.scan().to_dataset()
        second = pool.submit(other).result()
        threading.Thread(target=data.to_table).start()
        first = clean.append(lazy.collect())
    assert (read(first), read(second)) == ([("db.orders", 0, 2)], [("db.rates", 0, 1)])
    assert not problems(first) + problems(second)


def test_what_people_look_at_meanwhile_goes_into_no_rows(lake, orders, rates, clean):
    with lake.job("j") as job:
        job.read_from("api")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(describe, orders.diff("main@snapshot.1", "main"), count=True, limit=5).result()
            pool.submit(orders.compact, full=True).result()
            pool.submit(orders.audit, Checks.parse("checks:\n  - unique: id\n", name="checks")).result()
        made = clean.append(rows(1, 1))
    assert [i.source for i in entry_of(made).inputs] == ["api"]
    assert not problems(made)


# Before the block


@pytest.mark.parametrize("take", ["to_arrow", "to_pandas", "to_polars", "to_reader", "to_batches", "head"])
def test_the_very_rows_that_were_read_before_the_block_are_named(lake, orders, clean, take):
    found = getattr(orders.scan(), take)()
    with lake.job("j"):
        made = clean.append(found)
    assert read(made) == [("db.orders", 0, 2)]
    assert not problems(made)


def test_rows_of_the_block_before_are_named_too(lake, orders, clean):
    with lake.job("reads"):
        found = list(orders.changes(0, 1).to_batches())
    with lake.job("writes"):
        made = clean.append(found)
    assert read(made) == [("db.orders", 0, 1)]
    assert not problems(made)


def test_a_job_that_read_nothing_says_what_was_read_before_it(lake, orders, rates, clean, caplog):
    found = orders.scan().to_arrow().to_pylist()
    rates.scan().count()
    with lake.job("j"):
        made = [clean.append(found), clean.append(found)]
    for snapshot in made:
        assert read(snapshot) == []
        assert "db.orders, db.rates" in problems(snapshot)
        assert "read inside of it" in problems(snapshot)
    assert len(caplog.records) == 1
    assert "db.clean" in [u.table for u in orders.lineage.impact("1").unknown]


def test_a_job_that_read_nothing_says_what_the_job_before_it_read(lake, orders, clean):
    with lake.job("reads"):
        found = orders.scan().to_arrow().to_pylist()
    with lake.job("writes"):
        made = clean.append(found)
    assert "db.orders" in problems(made)


@pytest.mark.parametrize("how", ["state", "tail"])
def test_a_job_that_has_read_says_what_was_read_outside_of_it(lake, orders, rates, clean, how):
    known = rates.scan().to_arrow().to_pylist()
    with lake.job("joins"):
        found = orders.scan().to_arrow() if how == "state" else next(iter(orders.tail(idle=0)))
        made = clean.append([*known, *found.to_pylist()])
    assert [name for name, *_ in read(made)] == ["db.orders"]
    assert "db.rates" in problems(made)
    assert "db.orders" not in problems(made)
    assert entry_of(made).knows_positions


def test_a_job_that_has_read_does_not_speak_of_the_job_before_it(lake, orders, rates, clean):
    with lake.job("first"):
        rates.scan().to_arrow()
    with lake.job("second"):
        made = clean.append(orders.scan().to_arrow().slice(1))
    assert read(made) == [("db.orders", 0, 2)]
    assert not problems(made)


def test_columns_that_were_put_into_a_frame_are_not_overlooked(lake, orders, rates, clean):
    frame, other = orders.scan().to_pandas(), rates.scan().to_pandas()
    frame["id"] = list(other["id"]) * len(frame)
    with lake.job("j"):
        made = clean.append(frame)
    assert read(made) == [("db.orders", 0, 2)]
    assert "db.rates" in problems(made)
    assert "db.orders" not in problems(made)


def test_a_job_that_says_what_it_read_has_no_problem(lake, orders, clean):
    orders.scan().to_arrow()
    with lake.job("named") as job:
        job.read_from("api")
        assert not problems(clean.append(rows(1, 1)))
    with lake.job("reads"):
        found = orders.scan().to_arrow()
        assert not problems(clean.append(found.slice(1)))
    with lake.job("tails"):
        for batch in orders.tail(idle=0):
            assert not problems(clean.append(batch))


def test_a_process_that_read_nothing_has_no_problem(lake, clean):
    with lake.job("j"):
        assert not problems(clean.append(rows(1, 1)))


def test_many_tables_are_counted(lake, clean):
    for number in range(9):
        table = lake.create_table(f"db.t{number}", SCHEMA)
        table.append(rows(1, 1))
        table.scan().to_arrow()
    with lake.job("j"):
        assert "db.t3, db.t4 and 4 more" in problems(clean.append(rows(1, 1)))


# Outside of jobs


def test_rows_that_are_written_outside_of_a_job_as_they_were_read_are_named(lake, orders, clean):
    for data in (orders.scan().to_arrow(), orders.scan()):
        made = clean.append(data)
        assert read(made) == [("db.orders", 0, 2)]
        assert not problems(made)
    assert orders.lineage.impact("2").tables == ("db.orders", "db.clean")
    assert not orders.lineage.impact("2").unknown


def test_a_commit_outside_of_a_job_says_what_its_process_had_read(lake, orders, clean):
    made = clean.append(orders.scan().to_arrow().to_pylist())
    assert read(made) == []
    assert "db.orders" in problems(made)
    assert "lake.job()" in problems(made)
    assert not entry_of(made).knows_positions


def test_a_commit_of_a_process_that_read_nothing_says_nothing(clean):
    assert LINEAGE_PROPERTY not in clean.append(rows(1, 1)).properties


def test_a_commit_without_rows_says_nothing(orders, clean):
    orders.scan().to_arrow()
    assert LINEAGE_PROPERTY not in clean.overwrite([]).properties


def test_a_tail_outside_of_a_job_names_its_steps(orders, clean):
    made = [clean.append(batch) for batch in orders.tail(start="snapshot.1", idle=0, max_files=1)]
    assert [read(snapshot) for snapshot in made] == [[("db.orders", 0, 1)], [("db.orders", 1, 2)]]
    assert not any(map(problems, made))
