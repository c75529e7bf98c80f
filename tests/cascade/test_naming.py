"""What the branches of a cascade are called, and whose they are."""

import pytest

from anabranch.cascade import plan_cascade, run_cascade, undo_cascade
from anabranch.cascade.naming import branch_name, is_cascade_of
from anabranch.format.text.names import check_branch_name, check_table_name
from anabranch.jobs.prepare import Run
from tests.cascade.embedded import run, streaming
from tests.cascade.story import new_lake, rows, values

TABLES = (
    "db.orders",
    "db.orders-1",
    "db.bestellung ä",
    "db.bestellung ö",
    f"db.{'x' * 128}",
    "db.a.b",
    "db.ключ",
)


def test_every_table_has_names_of_its_own_that_branches_may_have():
    assert branch_name("db.orders", 2) == "cascade-db.orders-2"
    for table in TABLES:
        check_table_name(table.partition(".")[2])
        check_branch_name(branch_name(table, 10**9))
        assert [other for other in TABLES if is_cascade_of(other, branch_name(table, 12))] == [table]
    assert not any(
        is_cascade_of("db.orders", name) for name in ("cascade-db.orders-", "cascade-db.orders-x", "fix")
    )


def spoil(lake, root, sink):
    """Correct `root`, and what was made from it."""
    job = streaming(sink, [root], sink, lambda found: found)
    table = lake.table(root)
    table.append(rows(0, 1))
    table.create_tag("good")
    table.append(rows(1, 1, factor=100))
    run(job, lake)
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(1, 1))
    table.replace_main_branch("fix")
    return run_cascade(lake, root, [job], runner=run).group.number


def test_taking_back_the_cascade_of_a_table_takes_back_no_other():
    lake = new_lake("db.a", "db.a-b", "db.x", "db.y")
    first, second = spoil(lake, "db.a", "db.x"), spoil(lake, "db.a-b", "db.y")
    assert undo_cascade(lake, table="db.a").undoes == first
    assert undo_cascade(lake, table="db.a-b").undoes == second


def test_a_table_with_signs_that_no_branch_has_is_corrected_from():
    lake = new_lake("db.bestellung ä", "db.x")
    spoil(lake, "db.bestellung ä", "db.x")
    assert values(lake, "db.x") == [(0, 0), (1, 1)]
    assert plan_cascade(lake, "db.bestellung ä").is_done


@pytest.mark.parametrize(("name", "beside"), [("cascade-test", True), ("cascade-db.orders-7", False)])
def test_a_branch_of_a_person_is_one_whatever_its_name_begins_with(name, beside):
    lake = new_lake("db.orders", "db.x")
    job = streaming("x", ["db.orders"], "db.x", lambda found: found)
    orders = lake.table("db.orders")
    orders.append(rows(0, 1))
    run(job, lake)
    orders.create_tag("good")
    orders.append(rows(1, 1, factor=100))
    lake.table("db.x").create_branch(name, snapshot=1)
    run(job, lake, Run(branch=name))
    orders.create_branch("fix", "good")
    orders.replace_main_branch("fix")
    assert plan_cascade(lake, "db.orders", [job]).beside == ((f"db.x$branch_{name}",) if beside else ())
