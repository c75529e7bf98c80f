"""What tables say of their commits: what the content of each builds on, on which branch it was made, and who a branch is."""

import itertools
from dataclasses import replace

import pytest

from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.replacement.release import release_due
from anabranch.lineage.commit import CommitRef, Line
from anabranch.lineage.commits import branches_of, commits_backwards
from anabranch.lineage.model import LINEAGE_PROPERTY
from tests.support.tables import make_table, rows, written

_names = itertools.count()
PARTS = "id BIGINT NOT NULL, v STRING"


def new_table(**how):
    return make_table(f"memory://commits{next(_names)}", **how)


def commits_of(table):
    """All commits of a table by the titles of its branches, ascending."""
    branches, forks = branches_of(table.context)
    return {
        branch.line.title: [*commits_backwards(branch, forks, table.context)][::-1] for branch in branches
    }


def lines_of(table):
    return {branch.line.title: branch.line for branch in branches_of(table.context)[0]}


def bases(table, title="db.t"):
    """By the id of each commit of a branch what it builds on: an id of the same branch, or title and id."""
    titles = {line.branch_uuid: name for name, line in lines_of(table).items()}

    def told(base):
        if base is None:
            return None
        of = titles[base.branch_uuid]
        return base.snapshot if of == title else (of, base.snapshot)

    return {commit.snapshot: told(commit.base) for commit in commits_of(table)[title]}


def restoring(table, title="db.t"):
    return [commit.snapshot for commit in commits_of(table)[title] if commit.restores]


def branched(count=3, at=2):
    table = new_table()
    for number in range(count):
        table.append(rows(number * 10, 2))
    table.create_tag("good", at)
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(100, 1))
    return table


# What the content builds on


def test_a_commit_builds_on_the_one_before():
    table = new_table()
    for number in range(3):
        table.append(rows(number, 1))
    table.compact(full=True)
    assert bases(table) == {1: None, 2: 1, 3: 2, 4: 3}
    assert [(c.kind, c.has_rows, c.added) for c in commits_of(table)["db.t"]][2:] == [
        ("APPEND", True, 1),
        ("COMPACT", False, 0),
    ]


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.overwrite(rows(5, 1)),
        lambda table: table.replace(rows(5, 1)),
        lambda table: table.commit(Overwrite(written(table, 5, 1), dynamic=True)),
    ],
    ids=["overwrite", "replace", "dynamic"],
)
def test_a_whole_overwrite_builds_on_nothing(act):
    table = new_table()
    table.append(rows(0, 2))
    act(table)
    table.append(rows(6, 1))
    assert bases(table) == {1: None, 2: None, 3: 2}
    assert restoring(table) == []


def test_an_overwrite_that_leaves_nothing_builds_on_nothing():
    table = new_table(partition_by=["v"])
    table.append(rows(0, 1))
    table.overwrite(rows(5, 0), partition={"v": "v0"})
    assert table.snapshot.total_record_count == 0
    assert bases(table) == {1: None, 2: None}


def test_an_overwrite_of_nothing_keeps_what_was_there():
    table = new_table()
    table.append(rows(0, 2))
    table.commit(Overwrite([], dynamic=True))
    assert bases(table) == {1: None, 2: 1}


@pytest.mark.parametrize("how", [{"partition": {"v": "v0"}}, {}], ids=["named", "dynamic"])
def test_an_overwrite_of_some_partitions_keeps_what_was_there(how):
    table = new_table(partition_by=["v"])
    table.append(rows(0, 3))
    table.overwrite(rows(0, 1), **how)
    assert bases(table) == {1: None, 2: 1}


def test_a_rollback_builds_on_what_it_brings_back():
    table = new_table()
    for number in range(4):
        table.append(rows(number, 1))
    table.rollback(2)
    table.append(rows(9, 1))
    assert bases(table) == {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5}
    assert restoring(table) == [5]
    assert not commits_of(table)["db.t"][4].has_rows


def test_a_branch_builds_on_what_it_began_with():
    table = branched()
    assert bases(table, "db.t$branch_fix") == {3: ("db.t", 2)}
    assert bases(table) == {1: None, 2: 1, 3: 2}


def test_a_rollback_of_a_branch_to_its_beginning_builds_on_the_other_branch():
    table = branched()
    table.branch("fix").rollback(2)
    assert bases(table, "db.t$branch_fix") == {3: ("db.t", 2), 4: ("db.t", 2)}
    assert restoring(table, "db.t$branch_fix") == [4]


def test_a_merge_builds_on_main():
    table = branched()
    table.merge_branch("fix")
    assert bases(table) == {1: None, 2: 1, 3: 2, 4: 3}
    assert restoring(table) == []


def test_a_replacement_in_one_commit_builds_on_the_branch():
    table = branched()
    table.replace_main_branch("fix", mode="commit", force=True)
    assert bases(table) == {1: None, 2: 1, 3: 2, 4: ("db.t$branch_fix", 3)}
    assert restoring(table) == [4]


def test_what_a_new_main_took_over_is_still_the_old_ones():
    table = branched()
    table.replace_main_branch("fix", force=True)
    assert {title: [c.snapshot for c in found] for title, found in commits_of(table).items()} == {
        "db.t": [3],
        "db.t$branch_main@1": [1, 2, 3, 4],
    }
    table.create_tag("early", 1)
    table.create_branch("next", "early")
    table.branch("next").append(rows(7, 1))
    assert bases(table, "db.t$branch_next") == {2: ("db.t$branch_main@1", 1)}
    assert lines_of(table)["db.t$branch_next"].fork == CommitRef(table.table_uuid, 1)


def test_what_came_too_late_below_history_is_none_of_it():
    table = new_table()
    for number in range(4):
        table.append(rows(number, 1))
    before, context = commits_of(table), table.context
    late = replace(context.snapshots.get(2), commit_user="late")
    table.expire_snapshots(retain_max=2, retain_min=2, older_than=10**15)
    assert commits_of(table) == before
    context.storage.put(context.layout.snapshot_path(2), late.to_json())
    assert commits_of(table) == before


# Who a branch is


def test_main_is_the_table_itself_wherever_it_lies():
    table = branched()
    uuid, fix = table.table_uuid, table.branch("fix").branch_uuid
    assert lines_of(table)["db.t"] == Line(uuid, uuid, "db.t", None, None, True)
    assert lines_of(table)["db.t$branch_fix"] == Line(uuid, fix, "db.t", "fix", CommitRef(uuid, 2), False)
    table.replace_main_branch("fix", force=True)
    assert lines_of(table)["db.t"] == Line(uuid, fix, "db.t", "fix", CommitRef(uuid, 2), True)
    assert lines_of(table)["db.t$branch_main@1"] == Line(uuid, uuid, "db.t", "main@1", None, False)
    table.undo_replace()
    assert set(lines_of(table)) == {"db.t", "db.t$branch_fix"}
    assert lines_of(table)["db.t"].branch_uuid == uuid


def test_branches_that_are_gone_are_known_by_what_they_left():
    table = branched()
    before = commits_of(table)
    line = lines_of(table)["db.t$branch_fix"]
    table.delete_branch("fix")
    assert lines_of(table)["db.t$branch_fix"] == line
    assert commits_of(table) == before
    assert lines_of(table) == {found.title: found for found in lines_of(table).values()}
    again, _ = branches_of(table.context, {line.branch_uuid: line})
    assert {branch.line.title for branch in again} == {"db.t", "db.t$branch_fix"}


def test_a_dropped_main_is_known_by_what_it_left():
    table = branched()
    table.replace_main_branch("fix", force=True)
    before = commits_of(table)
    release_due(table.context, 0)
    assert commits_of(table) == before


def test_a_deleted_branch_and_another_of_its_name_are_two():
    table = branched()
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(1, 1))
    names = [branch.line.title for branch in branches_of(table.context)[0]]
    assert sorted(names) == ["db.t", "db.t$branch_fix", "db.t$branch_fix"]


# What it says of its origin


def test_an_entry_that_cannot_be_read_is_said_to_be_one():
    table = new_table()
    table.commit(Append(written(table, 0, 1)), properties={LINEAGE_PROPERTY: "{"})
    table.append(rows(1, 1))
    first, second = commits_of(table)["db.t"]
    assert (first.entry, second.entry, second.unread) == (None, None, None)
    assert "has lineage that cannot be read" in first.unread
