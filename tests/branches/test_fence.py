"""Compaction on a branch keeps apart what a merge will take from what it will not."""

import itertools

import pyarrow as pa
import pytest

from anabranch.arrow.rewrite import rewrite
from anabranch.engine import LocalEngine
from anabranch.errors import CommitConflictError
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.actions.compact import Compact
from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
from anabranch.kernel.compaction.coordinator import Coordinator
from anabranch.kernel.compaction.planning import plan_full
from anabranch.kernel.compaction.selection import live_files
from anabranch.kernel.provenance.births import MIXED
from anabranch.kernel.provenance.fence import FENCE, file_ages
from anabranch.maintenance.rewrites import carry_out, commit_rewrites, write_context
from tests.support.compacting import compact_round
from tests.support.tables import make_table

_numbers = itertools.count()
SCHEMA = "id BIGINT NOT NULL, p STRING NOT NULL"
SCALABLE = {"compaction.min.file-num": "2", "compaction.max.file-num": "3"}
QUEUE = {**SCALABLE, "bucket": "1"}


def forked(options=SCALABLE, before=3, after=3):
    """Main with rows 0, 1, ... one a file, and a branch `fix` of it with rows 100, 101, ... in the same partition."""
    table = make_table(f"memory://fence{next(_numbers)}", schema=SCHEMA, partition_by=["p"], options=options)
    for i in range(before):
        append(table, i)
    table.create_tag("good")
    table.create_branch("fix", "good")
    for i in range(after):
        append(table.branch("fix"), 100 + i)
    return table, table.branch("fix")


def append(table, *ids, p="a"):
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "p": [p] * len(ids)}))


def ids_of(table):
    return table.scan().to_arrow()["id"].to_pylist()


def files(table):
    """How many files there are of each age."""
    ages = sorted(file_ages(table.context, table.snapshot).values())
    return {age: ages.count(age) for age in set(ages)}


def kinds_since(table, snapshot):
    return [s.commit_kind for s in table.snapshots() if s.id > snapshot.id]


@pytest.mark.parametrize("options", [SCALABLE, QUEUE])
def test_a_full_compaction_makes_one_file_of_each_side(options):
    _, fix = forked(options)
    before = fix.snapshot
    fix.compact(full=True)
    assert files(fix) == {0: 1, 1: 1}
    assert ids_of(fix) == [0, 1, 2, 100, 101, 102]
    # One commit for each side: what it writes inherits from what it deletes.
    assert kinds_since(fix, before) == [CommitKind.COMPACT] * 2
    assert fix.compact(full=True).snapshot is None


def test_sides_in_different_partitions_are_kept_apart_as_well():
    _, fix = forked()
    append(fix, 200, p="b")
    append(fix, 201, p="b")
    fix.compact(full=True)
    assert files(fix) == {0: 1, 1: 2}


def test_a_sort_makes_one_file_of_each_side_and_does_not_repeat_itself():
    _, fix = forked()
    fix.sort_compact(["id"], "order")
    assert files(fix) == {0: 1, 1: 1}
    assert sorted(ids_of(fix)) == [0, 1, 2, 100, 101, 102]
    assert fix.sort_compact(["id"], "order").snapshot is None


@pytest.mark.parametrize("options", [SCALABLE, QUEUE])
def test_continuous_compaction_never_crosses(options):
    _, fix = forked(options, before=2, after=2)
    coordinator = Coordinator(fix.context, fix.options)
    for i in range(12):
        compact_round(fix.context, coordinator, LocalEngine())
        if i < 3:
            append(fix, 200 + i)
    assert MIXED not in files(fix)
    assert files(fix)[0] == 1
    assert sorted(ids_of(fix)) == [0, 1, 100, 101, 200, 201, 202]


def test_main_compacts_freely():
    table, _ = forked()
    append(table, 3)
    assert FENCE not in live_files(table.context, table.snapshot).df.columns
    table.compact(full=True)
    assert table.health().files == 1
    assert table.snapshot.commit_kind == CommitKind.COMPACT


def test_health_does_not_ask_for_what_the_fence_forbids():
    _, fix = forked()
    fix.compact(full=True)
    assert (fix.health().files, fix.health().files_compacted) == (2, 2)


def test_a_merge_parts_what_came_after_it():
    table, fix = forked()
    table.merge_branch("fix")
    append(fix, 200)
    append(fix, 201)
    fix.compact(full=True)
    assert files(fix) == {0: 1, 1: 1, 2: 1}
    table.merge_branch("fix")
    assert sorted(ids_of(table)) == [0, 1, 2, 100, 101, 102, 200, 201]


# At the commit


def rewritten(fix, tasks):
    return [rewrite(task, context=writing(fix), schemas=fix.context.schemas.get) for task in tasks]


def writing(fix):
    return write_context(fix.context, {}, LocalEngine())


def as_one(tasks):
    """The files of all tasks in one."""
    first = tasks[0]
    joined = tuple(file for task in tasks for file in task.files)
    return CompactionTask(first.partition, first.bucket, first.total_buckets, joined)


def planned(fix):
    return plan_full(live_files(fix.context, fix.snapshot), fix.schema, fix.options)


def test_a_compaction_across_the_fence_is_refused():
    _, fix = forked()
    done = rewritten(fix, [as_one(planned(fix))])
    with pytest.raises(CommitConflictError) as refused:
        fix.commit(Compact(done))
    assert [c.kind for c in refused.value.conflicts] == ["FENCE_CROSSED"]
    outcome = commit_rewrites(fix.context, done, writing(fix))
    assert (outcome.committed, len(outcome.given_up)) == ((), 1)
    assert files(fix) == {0: 3, 1: 3}


def test_both_sides_of_a_bucket_are_refused_in_one_commit():
    _, fix = forked()
    done = rewritten(fix, planned(fix))
    assert len(done) == 2
    with pytest.raises(CommitConflictError, match="FENCE_CROSSED"):
        fix.commit(Compact(done))
    assert len(commit_rewrites(fix.context, done, writing(fix)).committed) == 2
    assert files(fix) == {0: 1, 1: 1}


def test_a_merge_while_files_are_compacted_leaves_work_on_one_side_of_it():
    table, fix = forked(after=2)

    def work(task):
        if fix.snapshot.id == 5:
            table.merge_branch("fix")
            append(fix, 200)
        return rewrite(task, context=writing(fix), schemas=fix.context.schemas.get)

    assert len(carry_out(fix.context, {}, planned(fix), engine=LocalEngine(), work=work).committed) == 2
    assert files(fix) == {0: 1, 1: 1, 2: 1}
    table.merge_branch("fix")
    assert sorted(ids_of(table)) == [0, 1, 2, 100, 101, 200]


def test_work_that_a_new_point_parts_is_given_up_and_nothing_is_left_of_it():
    table, fix = forked(after=1)
    late = append_between_planning_and_commit(table, fix)
    outcome = commit_rewrites(fix.context, late, writing(fix))
    assert (outcome.committed, len(outcome.given_up)) == ((), 1)
    names = {info.path.rpartition("/")[2] for info in fix.context.storage.list(recursive=True)}
    assert not names & {file.file_name for one in late for file in one.new_files}
    fix.compact(full=True)
    table.merge_branch("fix")
    assert sorted(ids_of(table)) == [0, 1, 2, 100, 200]


def append_between_planning_and_commit(table, fix) -> list[Rewrite]:
    """A rewrite of two young files, between which a merge sets a point."""
    table.merge_branch("fix")
    append(fix, 200)
    return rewritten(fix, [as_one(young_files(fix))])


def young_files(fix):
    """Each file that the branch did not begin with as a task of its own."""
    manifests = fix.context.manifests
    ages = file_ages(fix.context, fix.snapshot)
    return [
        CompactionTask(entry.partition, entry.bucket, entry.total_buckets, (entry.file,))
        for entry in manifests.entries(manifests.of_snapshot(fix.snapshot)).live().to_entries()
        if ages[entry.file.file_name] > 0
    ]
