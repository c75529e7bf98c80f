"""What the writer leaves in a table's folder, and what it says of it."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.arrow import row_buffer
from anabranch.arrow.convert import convert
from anabranch.arrow.row_buffer import size_of
from anabranch.arrow.writer import TableWriter, abort, file_paths
from anabranch.errors import OptionError, SchemaError, StorageError, UnsupportedFeatureError
from anabranch.format.records.data_file import EMPTY_ROW, FileSource
from anabranch.format.records.stats import StatsCollector, stats_modes
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.bucket import assign_buckets
from anabranch.runtime import Runtime
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import (
    SCALABLE,
    context_of,
    files_of,
    make_schema,
    numbers,
    read_written,
    rows_of,
    stored_paths,
    write,
)
from tests.support.faults import FaultyStorage, fail, no_space, run
from tests.support.lengths import first_short


def test_rows_come_back_in_their_order():
    context = context_of(SCALABLE)
    table = numbers(SCALABLE, 1000)
    messages = write(table.to_batches(max_chunksize=7), context)
    assert read_written(messages, context).equals(table)
    (message,) = messages
    (file,) = message.new_files
    assert (message.partition, message.bucket, message.total_buckets) == (EMPTY_ROW, 0, -1)
    (path,) = file_paths(message, context)
    assert stored_paths(context.storage) == [path]
    assert path == f"bucket-0/{file.file_name}"
    assert context.storage.info(path).size == file.file_size


def test_many_small_batches_make_one_row_group():
    context = context_of(SCALABLE)
    messages = write(numbers(SCALABLE, 20_000).to_batches(max_chunksize=10), context)
    (path,) = stored_paths(context.storage)
    assert pq.ParquetFile(context.storage.open_input(path)).metadata.num_row_groups == 1
    assert files_of(messages)[0].row_count == 20_000


def test_no_rows_make_no_files():
    context = context_of(SCALABLE)
    assert write([], context) == []
    assert write([numbers(SCALABLE, 0)], context) == []
    assert stored_paths(context.storage) == []


def test_what_a_message_says_of_a_file():
    class Tokyo:
        def now_millis(self):
            return 1_700_000_000_123

        def local_offset_millis(self, at_millis):
            assert at_millis == 1_700_000_000_123
            return 9 * 3_600_000

    runtime = Runtime(clock=Tokyo())
    context = context_of(SCALABLE, runtime=runtime, source=FileSource.COMPACT)
    (file,) = files_of(write([numbers(SCALABLE, 10)], context))
    assert file.creation_time == 1_700_000_000_123 + 9 * 3_600_000
    assert file.file_source is FileSource.COMPACT
    assert (file.min_sequence_number, file.max_sequence_number, file.row_count) == (0, 9, 10)
    assert (file.schema_id, file.level, file.delete_row_count, file.extra_files) == (0, 0, 0, ())
    assert (file.min_key, file.max_key, file.value_stats_cols, file.write_cols) == (
        EMPTY_ROW,
        EMPTY_ROW,
        None,
        None,
    )


def test_statistics_are_those_of_the_rows(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 64)
    schema = make_schema("id BIGINT NOT NULL, v STRING, d DOUBLE, n DECIMAL(20, 2), l ARRAY<INT>")
    table = rows_of(
        schema,
        {
            "id": range(1000),
            "v": [None if i % 3 else f"long enough to be shortened {i}" for i in range(1000)],
            "d": [float(i - 500) for i in range(1000)],
            "n": [None] * 1000,
            "l": [[1]] * 1000,
        },
    )
    (file,) = files_of(write([table], context_of(schema)))
    collector = StatsCollector(schema.fields, stats_modes(schema))
    collector.update(table)
    assert file.value_stats == collector.finish()
    assert decode_row([f.type for f in schema.fields], file.value_stats.max_values)[0] == 999


def test_files_roll_at_the_target_size():
    schema = make_schema("id BIGINT NOT NULL, v STRING", target__file__size="64 kb")
    context = context_of(schema)
    random = np.random.default_rng(1)
    table = rows_of(schema, {"id": random.integers(0, 2**62, 100_000), "v": ["x"] * 100_000})
    messages = write(table.to_batches(max_chunksize=1000), context)
    sizes = [file.file_size for file in files_of(messages)]
    assert len(sizes) > 5
    assert all(64 << 10 <= size < 160 << 10 for size in sizes[:-1])
    assert sum(sizes) < 1.1 * table.nbytes
    names = [file.file_name.rpartition("-") for file in files_of(messages)]
    assert len({writer for writer, _, _ in names}) == 1
    assert [number for _, _, number in names] == [f"{i}.parquet" for i in range(len(names))]
    assert all(file.min_sequence_number == 0 for file in files_of(messages))
    assert read_written(messages, context).equals(table)


def test_sequence_numbers_run_on_in_fixed_buckets():
    schema = make_schema(
        "id BIGINT NOT NULL, v STRING", bucket="2", bucket__key="id", target__file__size="16 kb"
    )
    context = context_of(schema)
    messages = write([numbers(schema, 20_000)], context)
    assert {m.bucket for m in messages} == {0, 1}
    assert all(m.total_buckets == 2 for m in messages)
    for message in messages:
        assert len(message.new_files) > 1
        expected = 0
        for file in message.new_files:
            assert (file.min_sequence_number, file.max_sequence_number) == (
                expected,
                expected + file.row_count - 1,
            )
            expected += file.row_count


def test_rows_go_to_their_partition_and_bucket_in_order():
    schema = make_schema(
        "id BIGINT NOT NULL, day DATE, k STRING, f DOUBLE, v STRING",
        partition_keys=("day", "f"),
        bucket="3",
        bucket__key="k",
    )
    random = np.random.default_rng(2)
    days = [None, 0, 19_000]
    floats = [0.0, -0.0, None, float("nan")]
    count = 5000
    table = rows_of(
        schema,
        {
            "id": range(count),
            "day": [days[i] for i in random.integers(0, 3, count)],
            "k": [f"k{i}" for i in random.integers(0, 50, count)],
            "f": [floats[i] for i in random.integers(0, 4, count)],
            "v": [f"v{i}" for i in range(count)],
        },
    )
    context = context_of(schema)
    messages = write(table.to_batches(max_chunksize=999), context)
    keys = [(m.partition, m.bucket) for m in messages]
    assert len(keys) == len(set(keys)) == len(days) * len(floats) * 3
    buckets = assign_buckets([table.column("k")], [schema.field("k").type], 3)
    all_days = table.column("day").cast(pa.int32()).to_pylist()
    all_floats = table.column("f").to_pylist()
    seen = []
    for message in messages:
        found = read_written([message], context)
        ids = found.column("id").to_pylist()
        assert ids == sorted(ids)
        assert found.drop("f").equals(table.drop("f").take(ids))
        values = decode_row([f.type for f in schema.partition_fields], message.partition)
        assert {repr((all_days[i], all_floats[i])) for i in ids} == {repr(values)}
        assert set(buckets[ids]) == {message.bucket}
        seen += ids
    assert sorted(seen) == list(range(count))


def test_partitions_that_share_a_folder_stay_apart():
    schema = make_schema("p STRING, v INT", partition_keys=("p",))
    context = context_of(schema)
    values = [None, "", "  ", "__DEFAULT_PARTITION__", "a/b"]
    table = rows_of(schema, {"p": values * 2, "v": range(10)})
    messages = write([table], context)
    assert [decode_row([schema.field("p").type], m.partition)[0] for m in messages] == values
    folders = [path.rpartition("/")[0] for m in messages for path in file_paths(m, context)]
    assert folders == ["p=__DEFAULT_PARTITION__/bucket-0"] * 4 + ["p=a%2Fb/bucket-0"]
    assert len(stored_paths(context.storage)) == 5
    assert [read_written([m], context).column("v").to_pylist() for m in messages] == [
        [i, i + 5] for i in range(5)
    ]


FAULTS = [
    fail("write", nth=2),
    no_space("write", nth=5),
    fail("write", nth=1, times=1000, where="*-1.parquet"),
    fail("open_output", nth=3),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("make_storage", [MemoryStorage, None], ids=["memory", "local"])
def test_a_failed_write_leaves_nothing(fault, make_storage, tmp_path):
    inner = make_storage() if make_storage else LocalStorage(tmp_path / "t")
    schema = make_schema(
        "id BIGINT NOT NULL, p INT, v STRING", partition_keys=("p",), target__file__size="16 kb"
    )
    random = np.random.default_rng(3)
    table = rows_of(
        schema, {"id": random.integers(0, 2**62, 60_000), "p": np.arange(60_000) % 5, "v": ["v"] * 60_000}
    )
    with pytest.raises(StorageError):
        write(table.to_batches(max_chunksize=5000), context_of(schema, FaultyStorage(inner, [fault])))
    assert stored_paths(inner) == []


def test_rows_that_fail_half_way_leave_nothing():
    def rows():
        yield numbers(schema, 50_000)
        raise KeyError("of the caller")

    schema = make_schema("id BIGINT NOT NULL, v STRING", target__file__size="16 kb")
    context = context_of(schema)
    with pytest.raises(KeyError, match="of the caller"):
        write(rows(), context)
    assert stored_paths(context.storage) == []


def test_a_writer_that_is_left_without_finish_leaves_nothing():
    context = context_of(make_schema("id BIGINT NOT NULL, v STRING", target__file__size="16 kb"))
    with TableWriter(context) as writer:
        writer.write(numbers(context.schema, 50_000))
    assert stored_paths(context.storage) == []


def test_abort_removes_the_files_of_messages():
    schema = make_schema("id BIGINT NOT NULL, v STRING, p STRING", partition_keys=("p",))
    context = context_of(schema)
    table = rows_of(schema, {"id": range(10), "v": ["v"] * 10, "p": ["a:b", None] * 5})
    kept, dropped = write([table], context), write([table], context)
    abort(dropped, context)
    assert stored_paths(context.storage) == sorted(p for m in kept for p in file_paths(m, context))
    abort(dropped, context)
    stubborn = FaultyStorage(context.storage, [fail("delete_many", times=9), fail("delete", times=9)])
    abort(kept, context_of(schema, stubborn))
    assert len(stored_paths(context.storage)) == 2


def test_files_that_cannot_be_removed_do_not_hide_the_error():
    schema = make_schema("id BIGINT NOT NULL, v STRING", target__file__size="16 kb")
    storage = FaultyStorage(MemoryStorage(), [no_space("write", nth=7), fail("delete", times=99)])
    with pytest.raises(StorageError, match="space"):
        write([numbers(schema, 100_000)], context_of(schema, storage))


def test_encoding_never_runs_far_ahead_of_a_slow_store(monkeypatch):
    """Rows wait in the caller while the store is slow: what is on its way is bounded."""
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 1000)
    monkeypatch.setattr("anabranch.arrow.pipeline._MOST_BYTES_PER_THREAD", 20_000)
    gate = threading.Event()
    taken = []

    def rows():
        for i in range(60):
            taken.append(i)
            yield rows_of(SCALABLE, {"id": range(1000), "v": [None] * 1000})

    storage = FaultyStorage(MemoryStorage(), [run("before", "write", lambda _: gate.wait(20))])
    context = context_of(SCALABLE, storage, threads=1)
    with ThreadPoolExecutor(1) as pool:
        messages = pool.submit(write, rows(), context)
        with pytest.raises(TimeoutError):
            messages.result(timeout=0.3)
        assert len(taken) < 20
        gate.set()
        assert messages.result(timeout=20)[0].new_files[0].row_count == 60_000


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 700)
    table = numbers(SCALABLE, 10_000)
    contents = []
    for threads in (1, 4):
        context = context_of(SCALABLE, threads=threads)
        write([table], context)
        contents.append([context.storage.get(path) for path in stored_paths(context.storage)])
    assert contents[0] == contents[1]


def test_rows_of_another_schema_are_refused():
    context = context_of(SCALABLE)
    with pytest.raises(SchemaError, match="convert"):
        write([pa.table({"id": [1], "v": ["a"]})], context)


@pytest.mark.parametrize(
    ("sql_type", "value", "path"),
    [
        ("INT NOT NULL", None, "'c'"),
        ("ROW<x INT NOT NULL>", {"x": None}, "'c.x'"),
        ("ARRAY<INT NOT NULL>", [None], "'c.element'"),
        ("MAP<STRING, INT NOT NULL>", [("a", None)], "'c.value'"),
        ("ARRAY<ROW<x ARRAY<INT NOT NULL>>>", [{"x": [1, None]}], "'c.element.x.element'"),
    ],
)
def test_nulls_never_get_into_a_file_as_something_else(sql_type, value, path):
    schema = make_schema(f"c {sql_type}")
    context = context_of(schema)
    with pytest.raises(SchemaError, match=f"{path} is NOT NULL"):
        write([rows_of(schema, {"c": [value]})], context)
    assert stored_paths(context.storage) == []


def test_converted_rows_can_be_written():
    """Members that are NOT NULL are null in memory where the row around them is."""
    schema = make_schema(
        "r ROW<x INT NOT NULL, l ARRAY<STRING NOT NULL> NOT NULL, s ROW<y BYTES NOT NULL> NOT NULL>"
    )
    rows = [
        {"r": None},
        {"r": {"x": 1, "l": ["a"], "s": {"y": b""}}},
        {"r": {"x": 2, "l": [], "s": {"y": b"b"}}},
    ]
    context = context_of(schema)
    assert read_written(write(convert(rows * 3, schema.fields), context), context).to_pylist() == rows * 3


def test_contexts_travel_to_other_processes(tmp_path):
    context = context_of(SCALABLE, LocalStorage(tmp_path), options={"file.compression": "none"})
    there = pickle.loads(pickle.dumps(context))
    messages = pickle.loads(pickle.dumps(write([numbers(SCALABLE, 10)], there)))
    assert read_written(messages, context).num_rows == 10


def test_formats_and_compressions_that_are_not_written_are_refused():
    with pytest.raises(UnsupportedFeatureError, match="orc"):
        write([], context_of(SCALABLE, options={"file.format": "orc"}))
    with pytest.raises(OptionError, match="zip"):
        write([], context_of(SCALABLE, options={"file.compression": "zip"}))


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({}, "ZSTD"),
        ({"file.compression": "snappy"}, "SNAPPY"),
        ({"file.compression": "none"}, "UNCOMPRESSED"),
        ({"file.compression": "gzip"}, "GZIP"),
        ({"file.compression": "LZ4"}, "LZ4"),
        ({"parquet.compression": "uncompressed"}, "UNCOMPRESSED"),
    ],
)
def test_compression(options, codec):
    context = context_of(SCALABLE, options=options)
    messages = write([numbers(SCALABLE, 100)], context)
    (path,) = stored_paths(context.storage)
    metadata = pq.ParquetFile(context.storage.open_input(path)).metadata
    assert metadata.row_group(0).column(0).compression == codec
    assert read_written(messages, context).num_rows == 100


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_columns_of_large_files_that_hardly_shrink_are_not_compressed(codec):
    schema = make_schema("id BIGINT, noise DOUBLE, k INT, nested ROW<noise BIGINT, text STRING>")
    random, count = np.random.default_rng(7), 200_000
    noise = random.integers(-(2**63), 2**63 - 1, count)
    texts = pa.array([f"text of {n % 100}, at some length" for n in range(count)])
    table = pa.table(
        {
            "id": np.arange(count),
            "noise": random.random(count),
            "k": random.integers(0, 64, count).astype(
                np.int32
            ),  # few, so that their dictionary's indices are noise
            "nested": pa.StructArray.from_arrays([pa.array(noise), texts], ["noise", "text"]),
        }
    )
    context = context_of(schema, options={"file.compression": codec})
    messages = write([table], context)
    (path,) = stored_paths(context.storage)
    metadata = pq.ParquetFile(context.storage.open_input(path)).metadata
    chunks = [metadata.row_group(0).column(number) for number in range(5)]
    assert {chunk.path_in_schema: chunk.compression for chunk in chunks} == {
        "id": codec.upper(),
        "noise": "UNCOMPRESSED",
        "k": "UNCOMPRESSED",
        "nested.noise": "UNCOMPRESSED",
        "nested.text": codec.upper(),
    }
    assert read_written(messages, context).equals(table)


def sharing(columns, count):
    """A table of columns that are one array, and the schema for it."""
    schema = make_schema(", ".join(f"c{i} BIGINT" for i in range(columns)))
    values = pa.array(np.arange(count) % 7)
    return pa.table({field.name: values for field in schema.fields}), schema


def of_texts(lengths, columns):
    """Rows of a text of each length, and the same again in every column."""
    texts = pa.array(["x" * length for length in lengths])
    return pa.table({f"c{i}": texts for i in range(columns)})


@pytest.mark.parametrize("lengths", [[15_000] * 8, [15_000], [1, 15_000], [None, 60]])
@pytest.mark.parametrize("columns", [2, 2_000])
def test_few_rows_of_columns_that_share_their_memory_count_in_full(lengths, columns):
    rows = of_texts([length or 0 for length in lengths], columns)
    alone = sum(length or 0 for length in lengths) + 4 * len(lengths)
    for form in (rows, rows.to_batches()[0], pa.concat_tables([rows.slice(0, 1), rows.slice(1)])):
        assert size_of(form) == pytest.approx(alone * columns, abs=2 * 128 * columns)


def test_few_long_texts_that_share_their_memory_are_compressed():
    schema = make_schema(", ".join(f"c{i} STRING" for i in range(100)))
    table, context = of_texts([3_000], 100), context_of(schema)
    messages = write([table], context)
    metadata = pq.ParquetFile(context.storage.open_input(stored_paths(context.storage)[0])).metadata
    assert metadata.row_group(0).column(99).compression == "ZSTD"
    assert read_written(messages, context).equals(table)


def test_few_of_many_rows_count_alone():
    """A part of rows has all of their memory."""
    rows = of_texts([20] * 1_000, 100)
    assert size_of(rows.slice(500, 4)) < 100 * 4 * 50


def test_columns_that_share_their_memory_are_compressed():
    table, schema = sharing(300, 2_400)
    context = context_of(schema)
    messages = write([table], context)
    metadata = pq.ParquetFile(context.storage.open_input(stored_paths(context.storage)[0])).metadata
    assert {metadata.row_group(0).column(i).compression for i in range(300)} == {"ZSTD"}
    assert read_written(messages, context).equals(table)


@pytest.mark.parametrize(("count", "total"), first_short([(1, 400), (9, 900), (100, 1_600)]))
def test_row_groups_of_columns_that_share_their_memory_are_no_larger(monkeypatch, count, total):
    limit = 64 << 10
    monkeypatch.setattr(row_buffer, "MAX_BYTES", limit)
    parts = [sharing(100, count) for _ in range(total // count)]
    context = context_of(parts[0][1])
    messages = write([table for table, _ in parts], context)
    metadata = pq.ParquetFile(context.storage.open_input(stored_paths(context.storage)[0])).metadata
    sizes = [metadata.row_group(i).num_rows * 100 * 8 for i in range(metadata.num_row_groups)]
    assert max(sizes) <= 2 * limit, "what is read at once"
    assert read_written(messages, context).equals(pa.concat_tables(table for table, _ in parts))
