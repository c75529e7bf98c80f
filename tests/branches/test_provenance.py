"""When rows were first appended, whatever compaction, rollbacks and expiry did to their files."""

from dataclasses import replace

import pytest

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.provenance.births import MIXED, Birth, ages, births
from anabranch.kernel.provenance.carry import carried_births
from anabranch.kernel.provenance.past import counting, counting_of, past_since
from tests.branches.merging import contents, parted, rewriting, rows
from tests.support.foreign_expiry import expire_as_others


def head_of(fix):
    return fix.context.snapshots.head()


def by_age(fix, *points, carried=None):
    """Names of files by age, at the head."""
    found = {}
    for name, age in ages(fix.context, head_of(fix), [fix.context.fork.snapshot, *points], carried).items():
        found.setdefault(age, set()).add(name)
    return found


def files(fix):
    return set(ages(fix.context, head_of(fix), []))


def test_what_the_branch_began_with_is_older_than_all_points():
    _, fix = parted()
    before = files(fix)
    fix.append(rows([10], "a"))
    assert by_age(fix) == {0: before, 1: files(fix) - before}


def test_a_file_is_younger_than_the_points_before_it():
    _, fix = parted()
    first = fix.append(rows([10], "a"))
    second = fix.append(rows([11], "a"))
    fix.append(rows([12], "b"))
    assert {age: len(names) for age, names in by_age(fix, first, second).items()} == {0: 2, 1: 1, 2: 1, 3: 1}


def test_what_a_compaction_writes_is_as_old_as_what_it_read():
    _, fix = parted()
    fix.append(rows([10], "a"))
    fix.append(rows([11], "a"))
    point = fix.append(rows([20], "b"))
    fix.compact(full=True)
    assert {age: len(names) for age, names in by_age(fix, point).items()} == {0: 2, 1: 2}


def test_what_mixes_both_sides_of_a_point_has_no_age():
    _, fix = parted()
    point = fix.append(rows([10], "a"))
    fix.append(rows([11], "a"))
    rewriting(fix, "a")
    assert {age: len(names) for age, names in by_age(fix).items()} == {MIXED: 1, 0: 1}
    fix.append(rows([12], "b"))
    assert {age: len(names) for age, names in by_age(fix, point).items()} == {MIXED: 1, 0: 1, 2: 1}


def test_ages_are_told_apart_bucket_by_bucket():
    _, fix = parted({"bucket": "4", "bucket-key": "id"})
    fix.append(rows([*range(10, 30)], "a"))
    found = births(fix.context, head_of(fix))
    fix.compact(full=True)
    assert set(by_age(fix)) == {0, 1}
    assert found.otherwise == Birth(2, 2)


def test_a_rollback_of_the_branch_makes_nothing_younger():
    _, fix = parted()
    old = files(fix)
    middle = fix.append(rows([10], "a"))
    young = files(fix) - old
    fix.overwrite(rows([20], "a"))
    fix.rollback(middle.id)
    assert by_age(fix) == {0: old, 1: young}
    assert contents(fix) == [1, 2, 3, 10]


def test_the_age_outlives_the_snapshots():
    _, fix = parted()
    point = fix.append(rows([10], "a"))
    for i in range(4):
        fix.append(rows([20 + i], "b"))
    fix.compact(full=True)
    expected = by_age(fix, point)
    assert MIXED not in expected
    fix.expire_snapshots(retain_max=2, retain_min=2)
    assert not past_since(fix.context, head_of(fix), fix.context.fork.snapshot).reaches_base
    carried = lambda: carried_births(fix.context, head_of(fix))  # noqa: E731
    assert by_age(fix, point, carried=carried) == expected


def test_where_nobody_recorded_it_the_files_that_are_held_tell():
    table, fix = parted()
    old = files(fix)
    point = fix.append(rows([10], "a"))
    table.merge_branch("fix")
    for i in range(3):
        fix.append(rows([20 + i], "b"))
    expire_as_others(fix, 2)
    found = by_age(fix, point)
    assert found[0] == old
    assert {age: len(names) for age, names in found.items()} == {0: 2, 1: 1, 2: 3}


def test_but_not_of_what_was_compacted():
    _, fix = parted()
    fix.append(rows([10], "a"))
    fix.append(rows([20], "b"))
    rewriting(fix, "a")
    for i in range(3):
        fix.append(rows([30 + i], "c"))
    expire_as_others(fix, 2)
    assert {age: len(names) for age, names in by_age(fix).items()} == {0: 1, 1: 4, MIXED: 1}


def test_branches_of_other_engines_are_refused():
    table, _ = parted()
    other = table.context.on_branch("theirs")
    with pytest.raises(InvalidInputError, match="not recorded"):
        births(other, table.snapshot)


# What still counts after rollbacks


def test_a_rollback_undoes_what_lies_between():
    table, _ = parted()
    for i in range(6):
        table.append(rows([50 + i], "a"))  # 3 to 8
    table.rollback(4)  # 9
    table.append(rows([60], "a"))  # 10
    table.rollback(9)  # 11
    table.append(rows([61], "a"))  # 12
    history = [*table.context.snapshots.backwards(table.snapshot)][::-1]
    assert [s.id for s in counting(history)] == [1, 2, 3, 4, 12]
    assert [s.id for s in counting(history[4:])] == [12], "it goes back to right before these"
    assert [s.id for s in counting(history[6:])] == [7, 8, 9, 12], "a moment that is not among them counts"
    assert [s.id for s in counting_of(table.context, history[6:])] == [9, 12], (
        "it is known to be in this history"
    )
    table.context.storage.delete("snapshot/snapshot-4")
    lost = replace(table.context, cache=MetadataCache())
    assert [s.id for s in counting_of(lost, history[6:])] == [7, 8, 9, 12], (
        "of which history it is, is not known"
    )
