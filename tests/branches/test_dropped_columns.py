"""Files whose columns were dropped before they came to main are whole: `verify` reads them as what they are."""

from dataclasses import replace

import pytest

import anabranch
from tests.branches.replacing import again, parted
from tests.support.faults import FaultyStorage, run


def _whole(table):
    found = again(table).verify(deep=True)
    assert found.ok, found.problems
    return again(table).scan().to_arrow().sort_by("id").to_pylist()


def _parted():
    return parted(schema="id BIGINT NOT NULL, v STRING, x INT", main=0)


def _row(number, **more):
    return [{"id": number, "v": "a", "x": number, **more}]


def test_main_drops_a_column_and_a_branch_from_before_is_merged():
    table = _parted()
    table.branch("fix").append(_row(200))
    table.alter().drop_column("x").apply()
    table.merge_branch("fix")
    assert _whole(table)[-1] == {"id": 200, "v": "a"}
    assert {file.schema_id for split in again(table).scan().plan().splits for file in split.files} == {0}


def test_a_column_is_dropped_while_rows_are_published():
    table = _parted()
    with table.publish("night") as staged:
        staged.append(_row(200))
        again(table).alter().drop_column("x").apply()
    assert _whole(table)[-1] == {"id": 200, "v": "a"}


def test_a_column_is_dropped_while_rows_with_a_new_one_are_appended():
    table = _parted()
    act = run(
        "before",
        "put_if_absent",
        lambda path: again(table).alter().drop_column("x").apply(),
        where="schema/*",
    )
    writer = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [act])))
    writer.append(_row(200, y=7), schema="merge")
    assert _whole(table)[-1]["y"] == 7


@pytest.mark.parametrize("how", ["merge", "replace"])
def test_a_column_that_only_the_branch_ever_had(how):
    table = _parted()
    fix = table.branch("fix")
    fix.alter().add_column("y", "INT").apply()
    fix.append(_row(200, y=7))
    fix.alter().drop_column("y").apply()
    if how == "merge":
        table.merge_branch("fix")
    else:
        table.replace_main_branch("fix", mode="commit")
    assert _whole(table)[-1] == {"id": 200, "v": "a", "x": 200}


def test_a_column_of_the_name_of_one_that_was_dropped_stays_empty():
    table = _parted()
    table.branch("fix").append(_row(200))
    table.alter().drop_column("x").apply()
    table.alter().add_column("x", "STRING").apply()
    table.merge_branch("fix")
    assert _whole(table)[-1] == {"id": 200, "v": "a", "x": None}
