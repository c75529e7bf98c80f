"""Both sides read the same snapshots of a table, under different branches of it: merging would double their rows."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_pointer import copy_path
from tests.branches.merging import conflicts_of, contents, lake, rows


def world():
    """A source with the snapshots 1 to 6 and a branch `next` that left it at 4, and a table with a branch."""
    here = lake()
    source = here.create_table("db.source", "id BIGINT NOT NULL, dt STRING")
    for number in range(1, 7):
        source.append(rows([number], "a"))
        if number == 4:
            branch_of(source, "next")
    table = here.create_table("db.t", "id BIGINT NOT NULL, dt STRING")
    table.append(rows([0], "z"))
    table.create_tag("begun")
    table.create_branch("fix", "begun")
    return here, source, table


def branch_of(source, name):
    source.create_tag(f"for-{name}")
    source.create_branch(name, f"for-{name}")
    source.branch(name).append(rows([len(name) * 100], "a"))


def copied(here, source, first, last, table):
    """A commit of a job that took over what snapshots of the source brought, after the first up to the last."""
    with here.job("copy"):
        table.append(source.changes(first, last).to_arrow())


def check(table, is_double):
    conflicts = table.merge_branch("fix", dry_run=True).conflicts
    assert [conflict.kind for conflict in conflicts] == ["DUPLICATE_SOURCE_RANGE"] * is_double
    assert all("db.source" in conflict.message for conflict in conflicts)
    if not is_double:
        assert conflicts_of(table) == []
        assert len(contents(table)) == len({*contents(table)})


@pytest.mark.parametrize(
    ("main", "fix", "is_double"),
    [((0, 4), (3, 4), True), ((0, 6), (3, 5), True), ((0, 3), (3, 5), False), ((4, 6), (4, 5), False)],
)
@pytest.mark.parametrize("how", ["replaced", "by name", "the other way"])
def test_what_two_branches_have_in_common_is_the_same(how, main, fix, is_double):
    here, source, table = world()
    sides = (table, table.branch("fix"))
    if how == "by name":
        copied(here, source, *main, sides[0])
        copied(here, source.branch("next"), *fix, sides[1])
    elif how == "the other way":
        copied(here, source, *main, sides[1])
        copied(here, source.branch("next"), *fix, sides[0])
    else:
        copied(here, source, *main, sides[0])
        source.replace_main_branch("next", force=True)
        copied(here, here.table("db.source"), *fix, sides[1])
    check(table, is_double)


@pytest.mark.parametrize(
    ("first", "last", "is_double"), [(0, 2, True), (3, 5, True), (4, 5, False), (4, 7, False)]
)
def test_the_same_of_a_main_after_next(first, last, is_double):
    here, source, table = world()
    copied(here, source, 0, 6, table)
    source.replace_main_branch("next", force=True)
    source = here.table("db.source")
    source.append(rows([70], "a"))
    branch_of(source, "again")
    source.replace_main_branch("again", force=True)
    copied(here, here.table("db.source"), first, last, table.branch("fix"))
    check(table, is_double)


def test_a_branch_that_began_on_a_main_after_next_below_where_that_parted():
    here, source, table = world()
    source.replace_main_branch("next", force=True)
    source = here.table("db.source")
    source.create_tag("early", snapshot=2)
    source.create_branch("old", "early")
    source.branch("old").append(rows([300], "a"))
    copied(here, source, 2, 5, table)
    copied(here, source.branch("old"), 2, 3, table.branch("fix"))
    check(table, is_double=False)
    copied(here, source.branch("old"), 1, 2, table.branch("fix"))
    copied(here, source, 1, 2, table)
    check(table, is_double=True)


def test_rows_are_read_where_what_the_branch_began_with_is_not_all_known():
    here, source, table = world()
    for name in ("next", "again"):
        if name == "again":
            branch_of(here.table(source.name), name)
        here.table(source.name).replace_main_branch(name, force=True)
    for path in ("branch/MAIN-1", copy_path(source.context, 1)):
        source.context.storage.put(path, b"{")
    copied(here, anew(here, source), 4, 5, table)
    (entry,) = [one for one in table.system("lineage").to_pylist() if one["input_table"]]
    assert (entry["input_after"], entry["input_through"], entry["problems"]) == (4, 5, "[]")


def anew(here, source):
    """The table as another process opens it."""
    return anabranch.Table(replace(here.table(source.name).context, cache=MetadataCache()))
