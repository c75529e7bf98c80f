"""Merging a branch into main: the table of cases, repeated merges, rollbacks, and what readers of main see."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.errors import CommitConflictError, CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.actions.append import Append, added_entries
from anabranch.kernel.log.properties import MERGE_PROPERTY, merge_facts
from tests.branches.merging import (
    MODES,
    branched,
    commit_as_others,
    conflicts_of,
    contents,
    lake,
    outcomes,
    parted,
    rewriting,
    rows,
    written,
)
from tests.support.moments import forget

EVERYWHERE = pytest.mark.parametrize("options", MODES, ids=["scalable", "queue"])


def nothing(table):
    pass


def append(table):
    table.append(rows([50], "a"))


def compact(table):
    table.append(rows([51], "b"))
    table.compact(full=True)


def overwrite(table):
    table.overwrite(rows([60], "a"))


def drop(table):
    table.overwrite(rows([], "a"), {"dt": "a"})


def replace_all(table):
    table.replace(rows([61], "a"))


# The table of cases


@EVERYWHERE
@pytest.mark.parametrize("main", [nothing, append, compact], ids=lambda act: act.__name__)
def test_what_the_branch_appended_comes_after_what_main_has(options, main):
    table, fix = parted(options)
    fix.append(rows([10, 11], "a"))
    fix.append(rows([12], "c"))
    main(table)
    before = contents(table, "a")
    done = table.merge_branch("fix")
    assert contents(table, "a") == [*before, 10, 11]
    assert contents(table, "c") == [12]
    assert outcomes(done) == {"dt=a": ("added", 2, 0), "dt=c": ("added", 1, 0)}
    assert done.snapshot.commit_kind == CommitKind.APPEND
    assert (done.number, done.rows_added, done.rows_removed) == (1, 3, 0)
    assert contents(fix) == [1, 2, 3, 10, 11, 12], "the branch stays as it is"


@EVERYWHERE
@pytest.mark.parametrize("main", [overwrite, drop, replace_all], ids=lambda act: act.__name__)
def test_appends_do_not_go_with_an_overwrite_of_main(options, main):
    table, fix = parted(options)
    fix.append(rows([10], "a"))
    fix.append(rows([12], "c"))
    main(table)
    before = contents(table)
    expected = [("APPEND_VS_OVERWRITE", "dt=a")]
    if main is replace_all:  # of all partitions, also of those that were empty
        expected.append(("APPEND_VS_OVERWRITE", "dt=c"))
    assert conflicts_of(table) == expected
    assert contents(table) == before
    (conflict, *_) = table.merge_branch("fix", dry_run=True).conflicts
    assert conflict.snapshots == (table.snapshot.id,)


@EVERYWHERE
@pytest.mark.parametrize("main", [nothing, compact], ids=lambda act: act.__name__)
@pytest.mark.parametrize("branch", [overwrite, drop], ids=lambda act: act.__name__)
def test_what_the_branch_overwrote_takes_the_place_of_what_main_has(options, branch, main):
    table, fix = parted(options)
    branch(fix)
    fix.append(rows([10], "a"))
    main(table)
    others = contents(table, "b")
    done = table.merge_branch("fix")
    assert contents(table, "a") == contents(fix, "a")
    assert contents(table, "b") == others
    assert outcomes(done) == {"dt=a": ("replaced", len(contents(fix, "a")), 2)}
    assert done.snapshot.commit_kind == CommitKind.OVERWRITE


@EVERYWHERE
@pytest.mark.parametrize("main", [append, overwrite, drop], ids=lambda act: act.__name__)
def test_overwrites_do_not_go_with_any_change_of_main(options, main):
    table, fix = parted(options)
    overwrite(fix)
    main(table)
    assert conflicts_of(table) == [("OVERWRITE_VS_CHANGE", "dt=a")]


def test_an_overwrite_of_everything_concerns_partitions_that_only_main_has():
    table, fix = parted()
    fix.replace(rows([60], "a"))
    table.append(rows([70], "new"))
    assert conflicts_of(table) == [("OVERWRITE_VS_CHANGE", "dt=new")]
    table.merge_branch("fix", resolve={"dt=new": "ours"})
    assert contents(table) == [60, 70]


@pytest.mark.parametrize("where", ["dt = 'new'", "dt > 'b'"])
def test_an_overwrite_by_condition_concerns_partitions_that_were_empty(where):
    table, fix = parted()
    fix.append(rows([10], "new"))
    table.replace(rows([], "new"), where=where)
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=new")]


def test_a_partition_that_is_empty_on_both_sides_is_no_conflict():
    table, fix = parted()
    drop(fix)
    drop(table)
    fix.append(rows([10], "b"))
    assert outcomes(table.merge_branch("fix")) == {"dt=b": ("added", 1, 0)}
    assert contents(table) == [3, 10]


def test_where_the_branch_did_nothing_there_is_nothing_to_merge():
    table, fix = parted()
    compact_all = fix.compact(full=True)
    overwrite(table)
    before = table.snapshot.id
    done = table.merge_branch("fix")
    assert (done.snapshot, done.partitions, done.number) == (None, (), None)
    assert table.snapshot.id == before
    assert compact_all.rows in (0, 2)


@EVERYWHERE
def test_compacting_both_sides_in_between_changes_nothing(options):
    table, fix = parted(options)
    for i in range(4):
        fix.append(rows([10 + i], "a"))
        table.append(rows([50 + i], "a"))
        table.compact(full=True)
        fix.compact(full=True)
    table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 50, 51, 52, 53, 10, 11, 12, 13]


def test_an_unpartitioned_table_is_one_partition():
    table = lake().create_table("db.t", "id BIGINT NOT NULL, dt STRING")
    table.append(rows([1], "a"))
    fix = branched(table)
    fix.append(rows([10], "a"))
    table.append(rows([50], "a"))
    assert outcomes(table.merge_branch("fix")) == {"(the whole table)": ("added", 1, 0)}
    fix.overwrite(rows([11], "a"))
    table.append(rows([51], "a"))
    assert conflicts_of(table) == [("OVERWRITE_VS_CHANGE", "(the whole table)")]
    table.merge_branch("fix", resolve={"(the whole table)": "theirs"})
    assert contents(table) == [11]


# What others write


def test_deletes_in_an_append_are_an_overwrite():
    table, fix = parted()
    fix.append(rows([10], "a"))
    rewriting(table, "a", CommitKind.APPEND)
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=a")]


def test_a_compaction_that_loses_rows_is_an_overwrite():
    table, fix = parted()
    fix.append(rows([10], "a"))
    rewriting(table, "a", keep=lambda i: i == 1)
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=a")]


def test_a_sort_compaction_of_others_is_an_overwrite():
    table, fix = parted()
    fix.append(rows([10], "a"))
    rewriting(table, "a", CommitKind.OVERWRITE)
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=a")]


def test_an_overwrite_of_others_that_shows_nothing_may_have_been_of_anything():
    table, fix = parted()
    fix.append(rows([10], "a"))
    commit_as_others(table, CommitKind.OVERWRITE, lambda base: [])
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=a")]


def test_a_compaction_across_the_fence_is_found():
    table, fix = parted()
    fix.append(rows([10], "a"))
    rewriting(fix, "a")
    fix.append(rows([11], "b"))
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (conflict.kind, conflict.partition, len(conflict.files)) == ("MIXED_COMPACTION", "dt=a", 1)
    table.merge_branch("fix", resolve={"dt=a": "theirs"})
    assert contents(table) == [1, 2, 3, 10, 11]


def test_files_that_came_to_main_by_other_means_are_not_added_again():
    table, fix = parted()
    messages = written(fix, [10], "a")
    fix.commit(Append(messages))
    taken = [replace(entry, file=replace(entry.file, schema_id=0)) for entry in added_entries(messages)]
    commit_as_others(table, CommitKind.APPEND, lambda base: taken)
    fix.append(rows([11], "b"))
    assert conflicts_of(table) == [("FOREIGN_MERGE", "dt=a")]
    table.merge_branch("fix", resolve={"dt=a": "ours"})
    assert contents(table) == [1, 2, 3, 10, 11]


def test_conflicts_of_columns_do_not_hide_those_of_rows():
    table, fix = parted(schema="id BIGINT NOT NULL, dt STRING, n INT")
    for one, name in ((table, "m"), (fix, "k")):
        one.alter().rename_column("n", name).apply()
        one.overwrite(pa.table({"id": [60], "dt": ["a"], name: [1]}))
    assert conflicts_of(table) == [("RENAME_CLASH", None), ("OVERWRITE_VS_CHANGE", "dt=a")]
    assert conflicts_of(table, resolve="ours") == [("RENAME_CLASH", None)]


# Choosing


def test_choices_are_for_partitions_with_conflicts_only():
    table, fix = parted()
    fix.append(rows([10], "a"))
    overwrite(table)
    fix.overwrite(rows([20], "b"))
    table.append(rows([52], "b"))
    fix.append(rows([30], "c"))
    table.append(rows([53], "c"))
    done = table.merge_branch("fix", resolve={"dt=a": "theirs", "*": "ours"})
    assert outcomes(done) == {"dt=a": ("replaced", 3, 1), "dt=b": ("kept", 0, 0), "dt=c": ("added", 1, 0)}
    assert [str(one.chosen) for one in done.partitions] == ["theirs", "ours", "None"]
    assert contents(table) == [1, 2, 3, 10, 30, 52, 53]


def test_where_theirs_was_chosen_the_branch_knows_main_from_there_on():
    table, fix = parted()
    fix.append(rows([10], "a"))
    overwrite(table)
    fix.append(rows([20], "b"))
    table.overwrite(rows([62], "b"))
    table.merge_branch("fix", resolve={"dt=a": "theirs", "dt=b": "ours"})
    fix.append(rows([11], "a"))
    fix.append(rows([21], "b"))
    assert conflicts_of(table) == [("APPEND_VS_OVERWRITE", "dt=b")], "there main still has its own"
    table.merge_branch("fix", resolve="ours")
    assert contents(table, "a") == [1, 2, 10, 11]
    assert contents(table, "b") == [62]


def test_a_merge_in_which_all_stays_is_remembered():
    table, fix = parted()
    fix.append(rows([10], "a"))
    overwrite(table)
    done = table.merge_branch("fix", resolve="ours")
    assert (done.snapshot.commit_kind, contents(table)) == (CommitKind.COMPACT, [3, 60])
    assert table.merge_branch("fix").snapshot is None


def test_another_choice_is_refused():
    table, _ = parted()
    with pytest.raises(InvalidInputError, match="'mine'"):
        table.merge_branch("fix", resolve={"dt=a": "mine"})


# Again and again


@EVERYWHERE
def test_each_merge_takes_what_came_since_the_last(options):
    table, fix = parted(options)
    expected = [1, 2]
    for i in range(5):
        fix.append(rows([10 * i + 10], "a"))
        fix.append(rows([10 * i + 11], "a"))
        if i % 2:
            fix.compact(full=True)
            table.compact(full=True)
        table.append(rows([100 + i], "a"))
        done = table.merge_branch("fix")
        expected += [100 + i, 10 * i + 10, 10 * i + 11]
        assert (done.number, done.rows_added) == (i + 1, 2)
        assert contents(table, "a") == expected
        assert table.merge_branch("fix").snapshot is None


def test_merges_of_a_branch_are_no_changes_of_main_for_it():
    table, fix = parted()
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    fix.overwrite(rows([11], "a"))
    assert outcomes(table.merge_branch("fix")) == {"dt=a": ("replaced", 1, 3)}
    fix.append(rows([12], "a"))
    assert outcomes(table.merge_branch("fix")) == {"dt=a": ("added", 1, 0)}
    assert contents(table) == [3, 11, 12]


def test_merges_of_another_branch_are():
    table, fix = parted()
    other = branched(table, "other")
    other.append(rows([20], "a"))
    other.overwrite(rows([21], "b"))
    other.overwrite(rows([22], "new"))
    table.merge_branch("other")
    for dt in ("a", "b", "new"):
        fix.append(rows([30], dt))
    expected = [("APPEND_VS_OVERWRITE", "dt=b"), ("APPEND_VS_OVERWRITE", "dt=new")]
    assert conflicts_of(table) == expected, "it added to dt=a and replaced the others, in one commit"


# Rolling back


@EVERYWHERE
@pytest.mark.parametrize("destructive", [False, True])
def test_after_a_rollback_past_a_merge_its_rows_can_be_merged_again(options, destructive):
    table, fix = parted(options)
    before = table.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    if not destructive:
        table.append(rows([50], "a"))
    table.rollback(before, destructive=destructive, force=destructive)
    fix.append(rows([11], "a"))
    done = table.merge_branch("fix")
    assert (done.number, done.rows_added) == (2, 2)
    assert contents(table, "a") == [1, 2, 10, 11]
    assert [len(table.scan(columns=["id"]).to_arrow())] == [5]


def test_what_main_rolled_back_did_not_happen():
    table, fix = parted()
    before = table.snapshot.id
    overwrite(table)
    table.append(rows([52], "b"))
    table.rollback(before)
    fix.overwrite(rows([20], "b"))
    fix.append(rows([10], "a"))
    assert conflicts_of(table) == []
    assert contents(table) == [1, 2, 10, 20]


@pytest.mark.parametrize("after", [0, 1], ids=["up to the merge", "the merge too"])
def test_a_merge_that_was_rolled_back_did_not_bring_files_by_other_means(after):
    table, fix = parted()
    table.append(rows([4], "b"))
    before = table.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    for i in range(after):
        table.append(rows([20 + i], "b"))
    table.rollback(before)
    table.expire_snapshots(retain_max=2, retain_min=2)
    table.append(rows([30], "c"))
    kinds = {conflict.kind for conflict in table.merge_branch("fix", dry_run=True).conflicts}
    assert kinds <= {"APPEND_VS_OVERWRITE"}  # the moment it goes back to is gone
    table.merge_branch("fix", resolve="theirs")
    assert contents(table) == [1, 2, 3, 4, 10, 30]


def test_a_rollback_of_main_to_before_the_branch_is_an_overwrite():
    table, _ = parted()
    fix = branched(table, "later")
    table.rollback(1)
    fix.append(rows([10], "b"))
    fix.append(rows([11], "a"))
    assert conflicts_of(table, "later") == [("APPEND_VS_OVERWRITE", "dt=b")]


def test_main_rolled_back_for_good_to_before_the_branch_is_not_what_it_left():
    table, fix = parted()
    fix.append(rows([10], "a"))
    for name in ("for-fix", f"anabranch-fork-{fix.branch_uuid}"):
        table.context.storage.delete(table.context.layout.tag_path(name))
    forget(table, 2)
    table.append(rows([4], "b"))
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (conflict.kind, conflict.partition) == ("NOT_DESCENDED", None)
    with pytest.raises(CommitConflictError, match="NOT_DESCENDED"):
        table.merge_branch("fix", resolve="theirs")


def test_a_rollback_of_the_branch_counts():
    table, fix = parted()
    before = fix.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    fix.rollback(before)
    fix.append(rows([11], "b"))
    assert outcomes(table.merge_branch("fix")) == {"dt=a": ("replaced", 0, 1), "dt=b": ("added", 1, 0)}
    assert contents(table) == [1, 2, 3, 11]


def test_a_branch_rolled_back_for_good_past_a_merge_is_another():
    table, fix = parted()
    before = fix.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    fix.rollback(before, destructive=True, force=True)
    fix.append(rows([11], "b"))
    assert conflicts_of(table, resolve="theirs") == [("HISTORY_REWRITTEN", None)]


# Dry runs


def test_a_dry_run_says_what_the_merge_does_and_does_nothing():
    table, fix = parted()
    fix.append(rows([10], "a"))
    fix.overwrite(rows([20], "b"))
    fix.alter().add_column("n", "INT").apply()
    stored = {info.path for info in table.context.storage.list(recursive=True)}
    planned = table.merge_branch("fix", dry_run=True)
    assert {info.path for info in table.context.storage.list(recursive=True)} == stored
    done = table.merge_branch("fix")
    assert (planned.partitions, planned.schema_changes) == (done.partitions, done.schema_changes)
    assert (planned.dry_run, planned.snapshot, done.dry_run) == (True, None, False)


# What is not merged


def test_only_main_takes_branches_in():
    table, fix = parted()
    with pytest.raises(InvalidInputError, match="into main, not into branch 'fix'"):
        fix.merge_branch("fix")
    with pytest.raises(NotFoundError, match="branch 'none' does not exist"):
        table.merge_branch("none")
    with pytest.raises(InvalidInputError, match="main"):
        table.merge_branch("main")


def test_queues_of_other_bucket_counts_are_refused():
    table, fix = parted({"bucket": "1", "bucket-key": "id"})
    table.alter().set_option("bucket", "2").apply()
    table.append(rows([50], "c"))
    fix.append(rows([10], "c"))
    assert conflicts_of(table) == [("BUCKET_CLASH", None), ("BUCKET_COUNT_CHANGED", "dt=c")]


# Readers of main


@EVERYWHERE
def test_streams_of_main_see_an_additive_merge_as_one_append(options):
    table, fix = parted(options)
    start = table.snapshot.id
    for i in range(3):
        fix.append(rows([10 + i], "a"))
    fix.compact(full=True)
    table.append(rows([50], "a"))
    table.compact(full=True)
    table.merge_branch("fix")
    changed = table.changes(start, table.snapshot.id).to_arrow()["id"].to_pylist()
    assert changed == [50, 10, 11, 12]


def test_the_manifests_of_main_stay_sound():
    """Files that main had before, and that it compacted away, come back."""
    table, fix = parted()
    table.append(rows([4], "a"))
    table.compact(full=True)
    table.overwrite(rows([60], "a"))
    fix.append(rows([10], "a"))
    table.merge_branch("fix", resolve="theirs")
    assert contents(table) == [1, 2, 3, 10]
    table.compact(full=True)
    table.overwrite(rows([61], "a"))
    fix.append(rows([11], "a"))
    table.merge_branch("fix", resolve="theirs")
    assert contents(table) == [1, 2, 3, 10, 11]
    table.expire_snapshots(retain_max=2, retain_min=2)
    assert contents(table) == [1, 2, 3, 10, 11]
    assert contents(fix) == [1, 2, 3, 10, 11]


# What a merge says of itself


@pytest.mark.parametrize("key", ["version", "branch", "name", "head", "replaced", "theirs", "ours", "ended"])
def test_a_merge_that_leaves_something_unsaid_cannot_be_read(key):
    """What is missing would be taken for merged, and for appended: rows would be left out, or come twice."""
    table, fix = parted({})
    fix.append(rows([10], "a"))
    done = table.merge_branch("fix").snapshot
    said = json.loads(done.properties[MERGE_PROPERTY])
    assert merge_facts(done).branch == "fix"
    for left in ({name: value for name, value in said.items() if name != key}, {**said, key: None}):
        with pytest.raises(CorruptTableError):
            merge_facts(replace(done, properties={MERGE_PROPERTY: json.dumps(left)}))
