"""Rewriting files as fewer ones: the same rows, in the same order, in the same place."""

import io
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from anabranch.arrow import row_buffer
from anabranch.arrow.reader import ReadContext
from anabranch.arrow.rewrite import ReplacementWriter, rewrite, split_of
from anabranch.errors import CorruptTableError, NotFoundError, StorageError, UnsupportedFeatureError
from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta, FileSource
from anabranch.format.rows.binary_row import decode_row, encode_row, with_arity
from anabranch.format.types.data_types import BigIntType, Field, VarCharType
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import (
    context_of,
    make_schema,
    read_table,
    reading,
    rows_of,
    stored_paths,
    write,
)
from tests.support.faults import FaultyStorage, fail, no_space

SCHEMA = make_schema("id BIGINT NOT NULL, v STRING")


def numbers(schema, count, start=0):
    return rows_of(
        schema, {"id": range(start, start + count), "v": [f"v{i}" for i in range(start, start + count)]}
    )


def task_of(messages):
    first = messages[0]
    files = tuple(file for message in messages for file in message.new_files)
    return CompactionTask(first.partition, first.bucket, first.total_buckets, files)


def small_files(context, sizes):
    """A task of one file of so many rows each, whose ids run on."""
    starts = np.cumsum([0, *sizes]).tolist()
    messages = [
        write([numbers(context.schema, size, start)], context)[0]
        for size, start in zip(sizes, starts, strict=False)
    ]
    return task_of(messages)


def rewritten(task, context, schema=None):
    return rewrite(task, context, lambda _: schema or context.schema)


def read(rewrite_, context):
    made = replace(rewrite_.task, files=rewrite_.new_files)
    return read_table([split_of(made, context)], reading(context))


def test_small_files_become_one_with_their_rows_in_order():
    context = context_of(SCHEMA)
    task = small_files(context, [10, 1, 30, 5])
    result = rewritten(task, context)
    assert result.task == task
    (file,) = result.new_files
    assert read(result, context).equals(numbers(SCHEMA, 46))
    assert file.file_source is FileSource.COMPACT
    assert (file.row_count, file.schema_id, file.level) == (46, 0, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 45)
    assert len(stored_paths(context.storage)) == 5, "what was read is not the rewriter's to remove"
    (path,) = [split.path for split in split_of(replace(task, files=(file,)), context).files]
    assert pq.ParquetFile(context.storage.open_input(path)).metadata.num_row_groups == 1


def test_the_order_of_the_task_is_the_order_of_the_rows():
    context = context_of(SCHEMA)
    task = small_files(context, [3, 4])
    turned = replace(task, files=task.files[::-1])
    assert read(rewritten(turned, context), context)["id"].to_pylist() == [3, 4, 5, 6, 0, 1, 2]


def test_files_roll_at_the_target_size(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 1000)
    context = context_of(SCHEMA)
    task = small_files(context, [700] * 20)
    smaller = replace(context, options={"target-file-size": "4 kb"})
    result = rewritten(task, smaller)
    assert len(result.new_files) > 2
    assert all(4 << 10 <= file.file_size < 12 << 10 for file in result.new_files[:-1])
    assert all(file.min_sequence_number == 0 for file in result.new_files)
    assert read(result, context).equals(numbers(SCHEMA, 14_000))


def test_sequence_numbers_of_a_queue_run_on():
    queue = make_schema(
        "id BIGINT NOT NULL, v STRING", bucket="1", bucket__key="id", target__file__size="16 kb"
    )
    context = context_of(queue)
    task = small_files(context, [9_000, 11_000])
    result = rewritten(task, context)
    assert len(result.new_files) > 1
    expected = 0
    for file in result.new_files:
        assert file.min_sequence_number == expected
        expected += file.row_count
        assert file.max_sequence_number == expected - 1
    assert expected == 20_000


def test_rows_stay_where_they_are_even_if_a_writer_spelled_the_partition_differently():
    schema = make_schema("id BIGINT NOT NULL, p DECIMAL(20, 2), v STRING", partition_keys=("p",))
    context = context_of(schema)
    table = rows_of(schema, {"id": [1, 2], "p": [None, None], "v": ["a", "b"]})
    ours = task_of(write([table], context))
    types = [schema.field("p").type]
    foreign = with_arity(1, encode_row(types, (None,), reserve_nulls=False))
    assert foreign != ours.partition
    assert decode_row(types, foreign) == decode_row(types, ours.partition)
    result = rewritten(replace(ours, partition=foreign), context)
    assert result.task.partition == foreign
    assert read(result, context).equals(table)
    assert {path.rpartition("/")[0] for path in stored_paths(context.storage)} == {
        "p=__DEFAULT_PARTITION__/bucket-0"
    }


def test_rows_are_written_in_the_newest_schema():
    """Files of several schemas come out as files of one: columns go by id, new ones are null."""
    old = make_schema("id INT NOT NULL, gone STRING, v STRING")
    id_, _gone, v = old.fields
    newest = replace(
        old,
        id=1,
        fields=(
            replace(v, name="name"),
            Field(3, "extra", VarCharType(9)),
            replace(id_, type=BigIntType(nullable=False)),
        ),
        highest_field_id=3,
    )
    storage = MemoryStorage()
    first = write(
        [rows_of(old, {"id": [1, 2], "gone": ["g", "g"], "v": ["a", None]})], context_of(old, storage)
    )
    context = context_of(newest, storage)
    second = write([rows_of(newest, {"name": ["c"], "extra": ["x"], "id": [2**40]})], context)
    result = rewrite(task_of(first + second), context, {0: old, 1: newest}.__getitem__)
    (file,) = result.new_files
    assert file.schema_id == 1
    made = replace(result.task, files=result.new_files)
    found = read_table(
        [split_of(made, context)], ReadContext(storage, newest.fields, {1: newest}.__getitem__)
    )
    assert found.to_pydict() == {
        "name": ["a", None, "c"],
        "extra": [None, None, "x"],
        "id": [1, 2, 2**40],
    }


def test_files_of_other_formats_become_parquet():
    context = context_of(make_schema("id INT, v STRING"))
    sink = io.BytesIO()
    orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", None]}), sink)
    context.storage.put("bucket-0/data-x-0.orc", sink.getvalue())
    foreign = DataFileMeta("data-x-0.orc", len(sink.getvalue()), 2, EMPTY_STATS, 0, 1, 0)
    ours = task_of(write([rows_of(context.schema, {"id": [3], "v": ["c"]})], context))
    task = replace(ours, files=(foreign, *ours.files))
    result = rewritten(task, context)
    assert all(file.file_name.endswith(".parquet") for file in result.new_files)
    assert read(result, context).to_pydict() == {"id": [1, 2, 3], "v": ["a", None, "c"]}


FAULTS = [
    fail("write", nth=2),
    no_space("write", nth=5),
    fail("open_output", nth=2),
    fail("open_input", nth=3, times=99),
    fail("get_range", nth=3, times=99),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("make_storage", [MemoryStorage, None], ids=["memory", "local"])
def test_a_rewrite_that_fails_leaves_nothing(fault, make_storage, tmp_path):
    inner = make_storage() if make_storage else LocalStorage(tmp_path / "t")
    schema = make_schema("id BIGINT NOT NULL, v STRING", target__file__size="16 kb")
    task = small_files(context_of(schema, inner), [4_000] * 10)
    before = stored_paths(inner)
    faulty = FaultyStorage(inner, [fault])
    try:
        rewritten(task, context_of(schema, faulty))
    except StorageError:
        assert stored_paths(inner) == before
    else:
        assert fault.call not in faulty.counts(), "a local file is not read through the store"


def test_a_file_that_is_gone_is_said_so():
    context = context_of(SCHEMA)
    task = small_files(context, [5, 5])
    context.storage.delete(f"bucket-0/{task.files[1].file_name}")
    with pytest.raises(NotFoundError):
        rewritten(task, context)
    assert len(stored_paths(context.storage)) == 1


def test_rows_are_counted():
    context = context_of(SCHEMA)
    task = small_files(context, [5, 5])
    with ReplacementWriter(task, context) as writer:
        writer.write(numbers(SCHEMA, 3))
        with pytest.raises(CorruptTableError, match="3 rows where the manifests say 10"):
            writer.finish()
    assert len(stored_paths(context.storage)) == 2


def test_formats_that_are_not_written_are_refused():
    context = context_of(SCHEMA)
    task = small_files(context, [5])
    with pytest.raises(UnsupportedFeatureError, match="orc"):
        rewritten(task, replace(context, options={"file.format": "orc"}))


def test_tasks_and_their_results_travel(tmp_path):
    context = context_of(SCHEMA, LocalStorage(tmp_path))
    task, there = pickle.loads(pickle.dumps((small_files(context, [5, 5]), context)))
    result = pickle.loads(pickle.dumps(rewritten(task, there)))
    assert read(result, context).num_rows == 10
