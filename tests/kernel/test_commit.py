"""Commits through the public surface: appends, overwrites, races, retries and their conflict table."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import anabranch
from anabranch.format.records.snapshot import CommitIdentity, CommitKind
from anabranch.kernel.actions.append import Append
from tests.support.tables import ids_of, make_table, rows, written


def test_append_makes_one_snapshot_with_its_counts(tmp_path):
    table = make_table(tmp_path)
    assert table.snapshot is None
    first = table.append(rows(0, 10))
    second = table.append(rows(10, 5))
    assert (first.id, first.commit_kind, first.delta_record_count, first.total_record_count) == (
        1,
        "APPEND",
        10,
        10,
    )
    assert (second.id, second.delta_record_count, second.total_record_count) == (2, 5, 15)
    assert ids_of(table) == list(range(15))
    assert [s.id for s in table.snapshots()] == [2, 1]


def test_our_snapshots_say_who_made_them_and_on_what(tmp_path):
    table = make_table(tmp_path)
    first, second = table.append(rows(0, 1)), table.append(rows(1, 1))
    assert second.properties["anabranch.branch"] == table.branch_uuid == table.table_uuid
    assert second.properties["anabranch.writer"].startswith("anabranch ")
    assert second.properties["anabranch.parent"] == first.stamp
    assert first.stamp != second.stamp


def test_an_empty_append_is_a_snapshot_without_files(tmp_path):
    table = make_table(tmp_path)
    snapshot = table.append(rows(0, 0))
    assert snapshot.delta_record_count == 0
    assert table.scan().plan().splits == []
    assert table.scan().to_arrow().schema.names == ["id", "v"]


def test_overwrite_replaces_the_whole_of_an_unpartitioned_table(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 10))
    snapshot = table.overwrite(rows(100, 3))
    assert snapshot.commit_kind == CommitKind.OVERWRITE
    assert (snapshot.delta_record_count, snapshot.total_record_count) == (-7, 3)
    assert ids_of(table) == [100, 101, 102]
    assert ids_of(table.at(1)) == list(range(10))


@pytest.fixture
def by_day(tmp_path):
    table = make_table(tmp_path, schema="id BIGINT, dt STRING", partition_by=["dt"])
    table.append(pa.table({"id": [1, 2, 3, 4], "dt": ["a", "a", "b", None]}))
    return table


def test_dynamic_overwrite_replaces_the_partitions_that_occur(by_day):
    by_day.overwrite(pa.table({"id": [9], "dt": ["a"]}))
    assert ids_of(by_day) == [3, 4, 9]


def test_dynamic_overwrite_knows_the_null_partition(by_day):
    by_day.overwrite(pa.table({"id": [9], "dt": pa.array([None], pa.string())}))
    assert ids_of(by_day) == [1, 2, 3, 9]


def test_dynamic_overwrite_with_no_rows_changes_nothing(by_day):
    by_day.overwrite(pa.table({"id": pa.array([], pa.int64()), "dt": pa.array([], pa.string())}))
    assert ids_of(by_day) == [1, 2, 3, 4]


def test_static_overwrite_replaces_one_partition_also_with_nothing(by_day):
    by_day.overwrite(pa.table({"id": [7], "dt": ["b"]}), partition={"dt": "b"})
    assert ids_of(by_day) == [1, 2, 4, 7]
    by_day.overwrite(pa.table({"id": pa.array([], pa.int64()), "dt": pa.array([], pa.string())}), {"dt": "a"})
    assert ids_of(by_day) == [4, 7]


def test_static_overwrite_refuses_rows_outside_and_leaves_no_files(by_day, tmp_path):
    before = sorted(p for p in tmp_path.rglob("data-*"))
    with pytest.raises(anabranch.InvalidInputError, match="outside of partition"):
        by_day.overwrite(pa.table({"id": [7], "dt": ["c"]}), partition={"dt": "b"})
    with pytest.raises(anabranch.InvalidInputError, match="no partition column"):
        by_day.overwrite(pa.table({"id": [7], "dt": ["c"]}), partition={"id": 1})
    assert sorted(p for p in tmp_path.rglob("data-*")) == before
    assert ids_of(by_day) == [1, 2, 3, 4]


def test_overwrite_of_the_whole_partitioned_table_when_asked_for(by_day):
    whole = by_day.with_options({"dynamic-partition-overwrite": "false"})
    whole.overwrite(pa.table({"id": [9], "dt": ["a"]}))
    assert ids_of(by_day) == [9]


# Exactly once


def _streamed(table, user, identifier, start, count=1, **how):
    messages = written(table, start, count)
    return table.commit(Append(messages), identity=CommitIdentity(user, identifier), **how)


def test_a_streaming_commit_is_made_once(tmp_path):
    table = make_table(tmp_path)
    assert not _streamed(table, "job", 0, 0).repeated
    assert not _streamed(table, "job", 1, 1).repeated
    again = _streamed(make_table(tmp_path, if_not_exists=True), "job", 1, 1)
    assert again.repeated
    assert again.snapshot.id == 2
    earlier = _streamed(table, "job", 0, 0)
    assert earlier.repeated
    assert ids_of(table) == [0, 1]


def test_users_do_not_share_their_numbers(tmp_path):
    table = make_table(tmp_path)
    _streamed(table, "a", 5, 0)
    assert not _streamed(table, "b", 1, 1).repeated
    table.append(rows(2, 1))
    assert _streamed(table, "a", 5, 0).repeated
    assert ids_of(table) == [0, 1, 2]


def test_a_repeated_commit_leaves_the_committed_files_alone(tmp_path):
    table = make_table(tmp_path)
    messages = written(table, 0, 3)
    identity = CommitIdentity("job", 7)
    table.commit(Append(messages), identity=identity)
    assert table.commit(Append(messages), identity=identity).repeated
    assert ids_of(table) == [0, 1, 2]


def test_an_empty_streaming_commit_counts(tmp_path):
    table = make_table(tmp_path)
    table.commit(Append([]), identity=CommitIdentity("job", 3))
    assert _streamed(table, "job", 3, 0).repeated


# Races


def test_threads_append_to_one_table_in_memory():
    table = make_table("memory://threads", "db.t")
    with ThreadPoolExecutor(8) as pool:
        ids = [s.id for s in pool.map(lambda i: table.append(rows(i, 1)), range(64))]
    assert sorted(ids) == list(range(1, 65))
    assert ids_of(table) == list(range(64))


# The conflict table of kernel/commit/conflicts.py, row by row


def test_append_is_replayed_over_append_and_overwrite(tmp_path):
    table = make_table(tmp_path)
    messages = written(table, 0, 1)
    table.append(rows(10, 1))
    table.overwrite(rows(20, 1))
    table.commit(Append(messages))
    assert ids_of(table) == [0, 20]


def test_append_is_replayed_over_a_schema_change(tmp_path):
    table = make_table(tmp_path)
    messages = written(table, 0, 1)
    table.alter().rename_column("v", "w").add_column("n", "INT").apply()
    snapshot = table.commit(Append(messages)).snapshot
    assert snapshot.schema_id == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 0, "w": "v0", "n": None}]


def test_a_changed_number_of_buckets_is_a_conflict(tmp_path):
    table = make_table(tmp_path, options={"bucket": "2", "bucket-key": "id"})
    messages = written(table, 0, 4)
    table.alter().set_option("bucket", "4").apply()
    with pytest.raises(anabranch.CommitConflictError) as caught:
        table.commit(Append(messages))
    assert [c.kind for c in caught.value.conflicts] == ["BUCKET_COUNT_CHANGED"]
    assert table.snapshot is None


def test_overwrite_replaces_what_came_meanwhile(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    messages = written(table, 5, 1)
    table.append(rows(1, 1))
    table.commit(table.overwriting(messages))
    assert ids_of(table) == [5]


def test_a_table_created_again_is_a_conflict(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = make_table(tmp_path)
    messages = written(table, 0, 1)
    assert table.table_uuid
    lake.drop_table("db.t")
    other = make_table(tmp_path)
    with pytest.raises(anabranch.CommitConflictError, match="TABLE_REPLACED"):
        table.commit(Append(messages))
    other.append(rows(7, 1))
    with pytest.raises(anabranch.CommitConflictError, match="TABLE_REPLACED"):
        table.commit(Append(messages))
    assert ids_of(other) == [7]


def test_a_file_cannot_be_added_twice(tmp_path):
    table = make_table(tmp_path)
    messages = written(table, 0, 1)
    table.commit(Append(messages))
    table.append(rows(1, 1))
    with pytest.raises(anabranch.CommitConflictError, match="FILE_ADDED_TWICE"):
        table.commit(table.overwriting([*messages]))


# The past


def test_the_past_cannot_be_written(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    with pytest.raises(anabranch.InvalidInputError, match="pinned"):
        table.at(1).append(rows(1, 1))


def test_time_travel_by_number_name_and_time(tmp_path):
    table = make_table(tmp_path)
    first = table.append(rows(0, 1))
    table.append(rows(1, 1))
    assert ids_of(table.at("snapshot.1")) == ids_of(table.at(1)) == [0]
    assert ids_of(table.with_options({"scan.snapshot-id": "1"})) == [0]
    with pytest.raises(anabranch.NotFoundError, match="earliest is 1, the latest is 2"):
        table.at(9)
    with pytest.raises(anabranch.NotFoundError, match="at or before"):
        table.at(timestamp=first.time_millis - 10)
    assert ids_of(table.at(timestamp=table.snapshot.time_millis)) == [0, 1]


def test_the_schema_is_that_of_the_moment(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    table.alter().add_column("n", "INT").apply()
    table.append(pa.table({"id": [1], "v": ["b"], "n": pa.array([3], pa.int32())}))
    assert table.at(1).scan().to_arrow().to_pylist() == [{"id": 0, "v": "v0"}]
    assert table.scan().to_arrow().num_columns == 3
