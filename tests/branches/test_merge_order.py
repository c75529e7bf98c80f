"""What streams and ordered readers of main see of a merge: order in queues, one delta, event time, consumers."""

from itertools import pairwise

import pyarrow as pa
import pytest

from anabranch.engine import LocalEngine
from anabranch.errors import CommitConflictError, OptionError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.actions.append import added_entries
from anabranch.kernel.compaction.planning import plan_full
from anabranch.maintenance.compact import newest_files
from anabranch.maintenance.rewrites import carry_out
from tests.branches.merging import (
    MODES,
    QUEUE,
    branched,
    commit_as_others,
    conflicts_of,
    contents,
    lake,
    parted,
    rows,
    written,
)

EVERYWHERE = pytest.mark.parametrize("options", MODES, ids=["scalable", "queue"])


def check_numbers(table):
    """No two files of a bucket share a number."""
    found = {}
    for f in table.system("files").to_pylist():
        ranges = found.setdefault((str(f["partition"]), f["bucket"]), [])
        ranges.append((f["min_sequence_number"], f["max_sequence_number"]))
    for ranges in found.values():
        for (_, last), (first, _) in pairwise(sorted(ranges)):
            assert last < first


# Queues


def test_merged_rows_come_after_mains_whatever_was_compacted():
    table, fix = parted(QUEUE)
    for i in range(3):
        fix.append(rows([10 + 2 * i, 11 + 2 * i], "a"))
        table.append(rows([50 + i], "a"))
    fix.compact(full=True)
    table.merge_branch("fix")
    table.append(rows([60], "a"))
    fix.append(rows([20], "a"))
    table.merge_branch("fix")
    assert contents(table, "a") == [1, 2, 50, 51, 52, 10, 11, 12, 13, 14, 15, 60, 20]
    check_numbers(table)
    table.compact(full=True)
    assert contents(table, "a") == [1, 2, 50, 51, 52, 10, 11, 12, 13, 14, 15, 60, 20]


def test_buckets_keep_their_order():
    table, fix = parted({"bucket": "3", "bucket-key": "id"})
    fix.append(rows([1] * 3 + [2] * 3, "a"))
    for i in range(4):
        fix.append(rows([i, i + 1, i + 2], "a"))
    expected = contents(fix, "a")
    table.merge_branch("fix")
    assert contents(table, "a") == expected
    check_numbers(table)


def test_a_replaced_partition_is_in_the_branchs_order():
    table, fix = parted(QUEUE)
    fix.overwrite(rows([10], "a"))
    fix.append(rows([11, 12], "a"))
    fix.append(rows([13], "a"))
    table.merge_branch("fix")
    table.append(rows([14], "a"))
    assert contents(table, "a") == [10, 11, 12, 13, 14]
    check_numbers(table)


def test_files_that_stay_keep_their_place_in_a_replaced_partition():
    """Main compacted what the branch has in pieces; the last piece is live on both."""
    table = lake().create_table("db.t", "id BIGINT NOT NULL, dt STRING", partition_by=["dt"], options=QUEUE)
    for i in range(3):
        table.append(rows([i], "a"))
    fix = branched(table)
    begun = fix.snapshot.id
    fix.overwrite(rows([9], "a"))
    fix.rollback(begun)
    fix.append(rows([10], "a"))
    compact_first(table, 2)
    table.merge_branch("fix")
    assert contents(table, "a") == [0, 1, 2, 10]
    table.append(rows([11], "a"))
    assert contents(table, "a") == [0, 1, 2, 10, 11]
    check_numbers(table)


def compact_first(table, count):
    """Only the first files of the partition ``a`` become one."""
    live, schema = newest_files(table.context)
    tasks = plan_full(live.slice(0, count), schema, table.options)
    carry_out(table.context, {}, tasks, engine=LocalEngine())


def test_an_order_that_cannot_be_kept_is_a_conflict():
    """A file that stays has another number on main than on the branch, and others must come before it."""
    table, fix = parted(QUEUE)
    before = table.snapshot.id
    table.append(rows([50], "a"))
    table.rollback(before)  # its number stays used
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    (first,) = added_entries(written(fix, [1, 2], "a"))

    def rewrite_the_first(base):
        files = EntryFrame(base.live.df).with_kind(FileKind.DELETE).to_entries()
        (old,) = (e for e in files if e.partition == first.partition and e.file.min_sequence_number == 0)
        return [old, first]

    commit_as_others(fix, CommitKind.OVERWRITE, rewrite_the_first)
    assert contents(fix, "a") == [1, 2, 10]
    assert conflicts_of(table) == [("ORDER_CHANGED", "dt=a")]
    assert conflicts_of(table, resolve="theirs") == [("ORDER_CHANGED", "dt=a")]
    table.merge_branch("fix", resolve="ours")
    assert contents(table, "a") == [1, 2, 10]


# Bringing back files that went and came again with other numbers


def moved(table, fix):
    """Main with a file that it had, overwrote, and got back from the branch with a later number; and the moment before."""
    before = table.snapshot.id
    table.overwrite(rows([60], "a"))
    fix.append(rows([10], "a"))
    table.merge_branch("fix", resolve="theirs")
    return before


def test_a_rollback_past_a_merge_keeps_the_order():
    table, fix = parted(QUEUE)
    table.append(rows([50], "a"))
    table.rollback(moved(table, fix))
    table.append(rows([61], "a"))
    assert contents(table, "a") == [1, 2, 50, 61]
    check_numbers(table)


def test_a_rollback_that_cannot_keep_the_order_says_so_and_what_helps():
    table = lake().create_table("db.t", "id BIGINT NOT NULL, dt STRING", partition_by=["dt"], options=QUEUE)
    for i in range(3):
        table.append(rows([i], "a"))
    fix = branched(table)

    def without_the_first(base):
        files = EntryFrame(base.live.df).with_kind(FileKind.DELETE).to_entries()
        return [entry for entry in files if entry.file.min_sequence_number == 0]

    commit_as_others(fix, CommitKind.OVERWRITE, without_the_first)
    before = moved(table, fix)
    assert contents(table, "a") == [1, 2, 10]
    with pytest.raises(CommitConflictError, match="compact the table fully") as refused:
        table.rollback(before)
    assert [conflict.kind for conflict in refused.value.conflicts] == ["ORDER_CHANGED"]
    table.compact(full=True)
    table.rollback(before)
    assert contents(table, "a") == [0, 1, 2]


def test_a_replacement_by_commit_keeps_the_branchs_order():
    table, fix = parted(QUEUE)
    fix.append(rows([10], "a"))
    table.append(rows([50], "a"))
    table.merge_branch("fix")
    fix.append(rows([11], "a"))
    table.replace_main_branch("fix", mode="commit")
    assert contents(table, "a") == [1, 2, 10, 11]
    check_numbers(table)


# Streams


@EVERYWHERE
def test_a_stream_gets_every_merged_row_once(options):
    table, fix = parted(options)
    seen = [i for batch in table.tail("reader", idle=0) for i in batch["id"].to_pylist()]
    for i in range(4):
        fix.append(rows([10 + i], "a"))
        fix.compact(full=True)
        table.append(rows([50 + i], "a"))
        table.merge_branch("fix")
        table.compact(full=True)
        seen += [i for batch in table.tail("reader", idle=0) for i in batch["id"].to_pylist()]
    assert seen == [1, 2, 3, 50, 10, 51, 11, 52, 12, 53, 13]


def test_a_stream_heeds_a_replacing_merge_as_any_overwrite():
    table, fix = parted()
    start = table.snapshot.id
    fix.overwrite(rows([10], "a"))
    fix.append(rows([20], "b"))
    table.merge_branch("fix")
    with pytest.raises(OptionError, match="overwr"):
        table.changes(start, on_overwrite="fail").to_arrow()
    assert sorted(table.changes(start, on_overwrite="added").to_arrow()["id"].to_pylist()) == [10, 20]
    changed = table.changes(start, on_overwrite="changes").to_arrow().to_pylist()
    assert sorted((row["_change"], row["id"]) for row in changed) == [
        ("delete", 1), ("delete", 2), ("insert", 10), ("insert", 20),
    ]  # fmt: skip


def test_a_merge_that_changes_no_row_is_nothing_to_a_stream():
    table, fix = parted()
    start = table.snapshot.id
    fix.append(rows([10], "a"))
    table.overwrite(rows([60], "a"))
    table.merge_branch("fix", resolve="ours")
    fix.append(rows([11], "b"))
    table.merge_branch("fix")
    found = table.changes(start, on_overwrite="added").to_arrow()["id"].to_pylist()
    assert sorted(found) == [11, 60]


# Event time


def timed(ids, minute):
    times = pa.array([minute * 60_000] * len(ids), pa.timestamp("ms"))
    return pa.table({"id": pa.array(ids, pa.int64()), "at": times})


def with_event_times():
    table = lake().create_table(
        "db.t", "id BIGINT NOT NULL, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '0' SECOND"
    )
    table.append(timed([1], 10))
    return table, branched(table)


def minutes(table):
    return table.watermark / 60_000


def test_main_is_as_far_as_the_branch_if_it_did_nothing_itself():
    table, fix = with_event_times()
    fix.append(timed([2], 30))
    table.merge_branch("fix")
    assert minutes(table) == 30
    fix.append(timed([3], 40))
    table.compact(full=True)
    table.merge_branch("fix")
    assert minutes(table) == 40


def test_where_main_goes_its_own_way_its_watermark_stays():
    table, fix = with_event_times()
    fix.append(timed([2], 30))
    table.append(timed([3], 20))
    table.merge_branch("fix")
    assert minutes(table) == 20, "its own rows may be as old as that"


def test_it_never_goes_back():
    table, fix = with_event_times()
    fix.append(timed([2], 5))
    table.append(timed([3], 20))
    table.merge_branch("fix")
    assert minutes(table) == 20
