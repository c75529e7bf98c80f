"""A merge says which commits of the branch it brought in, and what they were made of."""

import pytest

from anabranch.errors import CommitConflictError
from anabranch.kernel.actions.append import Append
from anabranch.lineage.coverage import coverage
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput, lineage_of
from tests.branches.merging import branched, parted, rows, written
from tests.support.dying import deaths


def read(table, ids, start, end, topic="orders", batch=None):
    """A commit of a job that read these offsets."""
    source = SourceInput("kafka", "source 0", {topic: {"0": start}}, {topic: {"0": end}})
    entry = LineageEntry("job", None, None, Engine("test", batch=batch), (source,))
    properties = {LINEAGE_PROPERTY: entry.to_json()}
    return table.commit(Append(written(table, ids, "a")), properties=properties).snapshot


def entry_of(snapshot):
    return lineage_of(snapshot.properties, where="test")


def offsets(entry):
    return [(i.start["orders"]["0"], i.end["orders"]["0"]) for i in entry.inputs]


def test_the_commits_that_were_taken_and_their_inputs_are_named():
    table, fix = parted()
    begun = fix.snapshot
    read(fix, [10], 100, 200)
    read(fix, [11], 200, 300)
    fix.compact(full=True)
    last = read(fix, [12], 400, 500)
    entry = entry_of(table.merge_branch("fix").snapshot)
    assert (entry.job, entry.run, entry.code, entry.engine.name) == (
        "merge-branch fix",
        None,
        None,
        "anabranch",
    )
    assert (entry.taken.name, entry.taken.table_uuid) == (fix.name, table.table_uuid)
    assert entry.taken.branch_uuid == fix.branch_uuid
    assert (entry.taken.after, entry.taken.through) == (begun.id, last.id)
    assert (entry.taken.start.stamp, entry.taken.end.stamp) == (begun.stamp, last.stamp)
    assert offsets(entry) == [(100, 300), (400, 500)]
    assert entry.problems == ()


def test_a_second_merge_names_what_is_new():
    table, fix = parted()
    taken = read(fix, [10], 100, 200)
    table.merge_branch("fix")
    last = read(fix, [11], 200, 300)
    entry = entry_of(table.merge_branch("fix").snapshot)
    assert (entry.taken.after, entry.taken.through) == (taken.id, last.id)
    assert offsets(entry) == [(200, 300)]


def test_what_came_with_a_merge_is_known_when_the_branch_is_gone():
    table, fix = parted()
    late = branched(table, "late")
    read(fix, [10], 100, 200)
    table.merge_branch("fix")
    read(fix, [11], 200, 300)
    merged = table.merge_branch("fix").snapshot
    table.delete_branch("fix")

    read(late, [20], 250, 400)
    (conflict,) = table.merge_branch("late", dry_run=True).conflicts
    assert (conflict.kind, conflict.snapshots) == ("DUPLICATE_SOURCE_RANGE", (merged.id,))
    with pytest.raises(CommitConflictError):
        table.merge_branch("late")
    since = [s for s in table.snapshots() if s.id > 2][::-1]
    assert coverage(since, [read(late, [21], 400, 500)], None).behind == 0


def test_commits_that_do_not_say_make_the_merge_incomplete():
    table, fix = parted()
    read(fix, [10], 100, 200)
    silent = fix.append(rows([11], "a"))
    merged = table.merge_branch("fix").snapshot
    entry = entry_of(merged)
    assert offsets(entry) == [(100, 200)]
    assert entry.problems == (f"snapshots {silent.id} of the branch do not say where their rows come from",)
    assert coverage([merged], list(fix.snapshots()), None) is None


def test_what_was_rolled_back_was_not_taken():
    table, fix = parted()
    read(fix, [10], 100, 200)
    kept = fix.snapshot
    read(fix, [11], 200, 300)
    fix.rollback(f"snapshot.{kept.id}")
    assert offsets(entry_of(table.merge_branch("fix").snapshot)) == [(100, 200)]


def test_commits_that_expired_before_they_were_merged_are_named_too():
    table, fix = parted()
    first = read(fix, [10], 100, 200)
    read(fix, [11], 200, 300)
    read(fix, [12], 300, 400)
    fix.expire_snapshots(retain_max=1, retain_min=1, older_than=2**50)
    assert first.id not in [s.id for s in fix.snapshots()]
    entry = entry_of(table.merge_branch("fix").snapshot)
    assert offsets(entry) == [(100, 400)]
    assert entry.problems == ()


def test_a_merge_that_brings_no_rows_has_no_origin():
    table, fix = parted()
    fix.alter().add_column("n", "INT").apply()
    made = table.merge_branch("fix").snapshot
    assert made is not None
    assert LINEAGE_PROPERTY not in made.properties


def test_a_replacement_by_a_commit_names_the_branch_as_a_merge_does():
    table, fix = parted()
    begun = fix.snapshot
    read(table, [50], 0, 100)
    last = read(fix, [10], 100, 200)
    table.replace_main_branch("fix", mode="commit")
    entry = entry_of(table.snapshot)
    assert entry.job == "replace-main-branch fix"
    assert (entry.taken.after, entry.taken.through) == (begun.id, last.id)
    assert offsets(entry) == [(100, 200)]


@pytest.mark.long
def test_a_merge_that_was_interrupted_says_the_same_as_one_that_was_not():
    whole, fix = parted()
    read(fix, [10], 100, 200)
    read(fix, [11], 200, 300)
    expected = None
    states = 0
    for left in deaths(whole, lambda table: table.merge_branch("fix")):
        left.merge_branch("fix")
        entry = entry_of(left.snapshot)
        expected = expected or entry
        assert entry == expected
        states += 1
    assert offsets(expected) == [(100, 300)]
    assert states >= 5
