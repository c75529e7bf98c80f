"""What merges must know of snapshots is there when these have expired, and however an expiry ended."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitConflictError, CorruptTableError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.provenance.births import MIXED
from anabranch.kernel.provenance.carry import behind
from anabranch.kernel.provenance.fence import file_ages
from tests.support.deaths import Died, each_death, through
from tests.support.faults import run
from tests.support.foreign_expiry import expire_as_others
from tests.support.tables import make_table

_numbers = itertools.count()
SCHEMA = "id BIGINT NOT NULL, p STRING NOT NULL"


def forked(*names):
    """Main with row 0 in partition a and 1 in b, and branches of it."""
    table = make_table(f"memory://carry{next(_numbers)}", schema=SCHEMA, partition_by=["p"])
    append(table, a=[0], b=[1])
    table.create_tag("good")
    for name in names or ("fix",):
        table.create_branch(name, "good")
    return table


def append(table, **rows):
    table.append(data(**rows))


def data(**rows):
    pairs = [(i, p) for p, ids in rows.items() for i in ids]
    return pa.table({"id": pa.array([i for i, _ in pairs], pa.int64()), "p": [p for _, p in pairs]})


def expire(table, keep=2):
    return table.expire_snapshots(retain_max=keep, retain_min=2)


def ids_of(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def pages(table, branch="fix"):
    folder = table.context.on_branch(branch).layout.branch_root
    names = (info.path.rpartition("/")[2] for info in table.context.storage.list(folder))
    return sorted(name for name in names if name.startswith("carry-"))


def conflicts(table, branch="fix"):
    with pytest.raises(CommitConflictError) as refused:
        table.merge_branch(branch)
    return [(c.kind, c.partition) for c in refused.value.conflicts]


# Main's snapshots


def test_an_append_that_has_expired_still_stands_against_an_overwrite():
    table = forked()
    append(table, a=[2])
    for i in range(3):
        append(table, b=[10 + i])
    table.branch("fix").overwrite(data(a=[100], b=[101]))
    expire(table)
    assert conflicts(table) == [("OVERWRITE_VS_CHANGE", "p=a"), ("OVERWRITE_VS_CHANGE", "p=b")]


def test_an_overwrite_that_has_expired_still_stands_against_an_append_though_appends_followed():
    table = forked()
    table.overwrite(data(a=[2]))
    for i in range(4):
        append(table, a=[10 + i])
    append(table.branch("fix"), a=[100])
    expire(table)
    assert conflicts(table) == [("APPEND_VS_OVERWRITE", "p=a")]


def test_compactions_that_have_expired_stand_against_nothing():
    table = forked()
    append(table, a=[2])
    table.compact(full=True)
    for i in range(3):
        append(table, a=[10 + i])
    append(table.branch("fix"), a=[100], b=[101])
    expire(table)
    table.merge_branch("fix")
    assert ids_of(table) == [0, 1, 2, 10, 11, 12, 100, 101]


def test_a_merge_that_has_expired_is_no_change_of_main():
    table = forked()
    fix = table.branch("fix")
    append(fix, a=[100])
    table.merge_branch("fix")
    for i in range(3):
        append(table, b=[10 + i])
    fix.overwrite(data(a=[101]))
    expire(table)
    table.merge_branch("fix")
    assert ids_of(table) == [1, 10, 11, 12, 101]


def test_there_is_one_file_however_often_main_expires():
    table = forked("fix", "other")
    for i in range(6):
        append(table, a=[10 + i])
        expire(table)
    assert pages(table) == pages(table, "other") == ["carry-2-5"]
    table.branch("fix").overwrite(data(a=[100]))
    assert conflicts(table) == [("OVERWRITE_VS_CHANGE", "p=a")]


def test_that_main_went_back_to_before_the_branch_is_not_forgotten():
    table = forked()
    append(table, b=[2])
    table.create_tag("two")
    table.create_branch("late", "two")
    table.rollback(1)
    for i in range(3):
        append(table, a=[10 + i])
    expire(table)
    append(table.branch("late"), b=[100])
    assert conflicts(table, "late") == [("APPEND_VS_OVERWRITE", "p=b")]


def test_nothing_is_recorded_for_a_branch_of_a_later_moment():
    table = forked()
    for i in range(3):
        append(table, a=[10 + i])
    table.create_tag("late")
    table.create_branch("late", "late")
    append(table, a=[20])
    expire(table, keep=3)
    assert pages(table) == ["carry-2-2"]
    assert pages(table, "late") == []


def test_a_damaged_record_is_an_error_and_no_guess():
    table = forked()
    for i in range(3):
        append(table, a=[10 + i])
    expire(table)
    append(table.branch("fix"), a=[100])
    path = table.context.on_branch("fix").layout.branch_file_path("carry-2-2")
    assert table.context.storage.exists(path)
    table.context.storage.put(path, b'{"version": 1, "span": {"first": 1}}')
    with pytest.raises(CorruptTableError, match="carry-2-2"):
        table.merge_branch("fix")


def test_where_another_engine_expired_it_is_asked_what_the_files_say():
    table = forked("fix", "other")
    append(table, a=[2])
    table.compact(full=True)
    append(table, b=[3])
    append(table, b=[4])
    append(table, b=[5])
    expire_as_others(table, 2)
    assert pages(table) == []
    append(table.branch("fix"), b=[100])
    table.merge_branch("fix")  # the files of b are those of before and more
    append(table.branch("other"), a=[101])
    assert conflicts(table, "other") == [("HISTORY_GAP", "p=a")]


def test_what_was_rolled_back_for_good_is_not_taken_for_what_came_after():
    """Snapshot numbers are used again; the stamps tell that the record is of another history."""
    table = forked()
    append(table, a=[2])
    table.create_tag("two")
    for i in range(3):
        table.overwrite(data(b=[10 + i]))
    expire(table)
    assert pages(table) == ["carry-2-3"]
    table.rollback("two", destructive=True)
    for i in range(3):
        append(table, a=[20 + i])
    expire_as_others(table, 2)
    left = sorted(table.snapshots(), key=lambda s: s.id)
    assert left[0].id == 4
    assert behind(table.context.on_branch("fix"), left) == (None, tuple(left))


def changed():
    """Main and its branch with more to expire on both than there is."""
    table = forked()
    fix = table.branch("fix")
    for i in range(2):
        append(table, a=[10 + i])
        append(fix, b=[100 + i])
    fix.compact(full=True)
    table.overwrite(data(a=[20]))
    append(fix, a=[200])
    for i in range(2):
        append(table, b=[30 + i])
        append(fix, b=[110 + i])
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def check_after_death(table, of, where):
    assert conflicts(table) == [("APPEND_VS_OVERWRITE", "p=a")], where
    expire(table.branch(of))
    assert len(pages(table)) == 1, where
    assert conflicts(table) == [("APPEND_VS_OVERWRITE", "p=a")], where
    table.merge_branch("fix", resolve={"p=a": "ours"})
    assert ids_of(table) == [1, 20, 30, 31, 100, 101, 110, 111], where


@pytest.mark.parametrize("of", ["main", "fix"])
@pytest.mark.parametrize(("when", "call"), [("after", "put"), ("before", "delete"), ("after", "delete")])
def test_an_expiry_that_died_leaves_what_a_merge_must_know(of, when, call):
    """`put` is first called for the record, `delete` for the first of the snapshots."""
    table = changed()
    with pytest.raises(Died):
        expire(through(table, run(when, call, _die)).branch(of))
    check_after_death(table, of, (when, call))


@pytest.mark.long
@pytest.mark.parametrize("of", ["main", "fix"])
def test_an_expiry_that_died_anywhere_leaves_what_a_merge_must_know(of):
    for table, *where in each_death(changed, lambda t: expire(t.branch(of))):
        check_after_death(table, of, where)


def _die(path):
    raise Died(path)


# The branch's own


def test_files_keep_their_age_when_the_snapshots_that_tell_expire():
    table = forked()
    fix = table.branch("fix")
    append(fix, a=[100])
    append(fix, a=[101], b=[102])
    fix.compact(full=True)
    fix.sort_compact(["id"], "order")
    before = file_ages(fix.context, fix.snapshot)
    append(fix, c=[103])
    append(fix, c=[104])
    expire(fix)
    now = file_ages(fix.context, fix.snapshot)
    assert before.items() <= now.items()
    assert sorted(now.values()) == [0, 0, 1, 1, 1, 1]
    fix.compact(full=True)
    table.merge_branch("fix")
    assert ids_of(table) == [0, 1, 100, 101, 102, 103, 104]


def test_an_own_overwrite_that_has_expired_still_replaces():
    table = forked()
    fix = table.branch("fix")
    fix.overwrite(data(a=[100]))
    for i in range(3):
        append(fix, a=[101 + i])
        expire(fix)
    assert pages(table) == ["carry-own-1-3"]
    table.merge_branch("fix")
    assert ids_of(table) == [1, 100, 101, 102, 103]


def test_a_tag_of_a_branch_brings_back_files_of_a_known_age():
    table = forked()
    fix = table.branch("fix")
    append(fix, a=[100])
    fix.compact(full=True)
    fix.create_tag("mine")
    fix.overwrite(data(a=[101]))
    for i in range(3):
        append(fix, b=[102 + i])
        expire(fix)
    fix.rollback("mine")
    assert MIXED not in file_ages(fix.context, fix.snapshot).values()
    table.merge_branch("fix")
    assert ids_of(table) == [0, 1, 100]


def test_where_another_engine_expired_a_branch_its_rewritten_files_are_in_doubt():
    table = forked()
    fix = table.branch("fix")
    append(fix, a=[100])
    fix.compact(full=True)
    append(fix, a=[101])
    append(fix, b=[102])
    append(fix, b=[103])
    fix.sort_compact(["id"], "order")
    append(fix, b=[104])
    expire_as_others(fix, 2)
    assert MIXED in file_ages(fix.context, fix.snapshot).values()
    assert {kind for kind, _ in conflicts(table)} <= {"HISTORY_GAP", "MIXED_COMPACTION"}
