"""Writers of many partitions in bounded memory: rows wait in a buffer or on disk, or are written earlier."""

import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.arrow import row_buffer
from anabranch.arrow.row_buffer import measured
from anabranch.arrow.writer import TableWriter
from anabranch.errors import OptionError, StorageError
from anabranch.format.rows.binary_row import decode_row
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import (
    SCALABLE,
    context_of,
    make_schema,
    read_written,
    rows_of,
    stored_paths,
    write,
)
from tests.arrow.spilling import fill_after

MANY = make_schema("id BIGINT NOT NULL, p INT, v STRING", partition_keys=("p",))
COUNT = 10_000


def many_partitions(partitions=100):
    ids = np.arange(COUNT)
    return rows_of(MANY, {"id": ids, "p": ids * 7919 % partitions, "v": [f"value {i}" for i in ids]})


def bounded(size, **options):
    return {"write-buffer-size": f"{size} b"} | {k.replace("_", "-"): v for k, v in options.items()}


def write_batches(table, context, rows=100):
    """The messages, the most memory that waiting rows held, and the bytes put on disk."""
    with TableWriter(context) as writer:
        most = 0
        for batch in table.to_batches(max_chunksize=rows):
            writer.write(batch)
            most = max(most, writer.held)
        return writer.finish(), most, writer.spilled


def check_partitions(messages, context, table):
    """Every partition has its rows, in their order."""
    ids, partitions = table["id"].to_pylist(), table["p"].to_pylist()
    expected = {}
    for i, p in zip(ids, partitions, strict=True):
        expected.setdefault(p, []).append(i)
    found = {}
    for message in messages:
        (partition,) = decode_row([context.schema.field("p").type], message.partition)
        found[partition] = read_written([message], context)["id"].to_pylist()
    assert found == expected


@pytest.fixture
def aside(tmp_path, monkeypatch):
    """The folder in which rows wait on disk."""
    folder = tmp_path / "aside"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.long
def test_memory_is_bounded_by_putting_rows_aside(aside):
    table = many_partitions()
    context = context_of(MANY, options=bounded(40_000))
    messages, most, spilled = write_batches(table, context)
    assert 20_000 < most <= 40_000
    assert spilled > 40_000
    assert all(len(message.new_files) == 1 for message in messages)
    check_partitions(messages, context, table)
    assert list(aside.iterdir()) == []


@pytest.mark.long
def test_rows_that_may_not_wait_on_disk_are_written_earlier():
    table = many_partitions()
    storage = MemoryStorage()
    context = context_of(MANY, storage, options=bounded(40_000, write_buffer_spillable="false"))
    messages, most, spilled = write_batches(table, context)
    assert 20_000 < most <= 40_000
    assert spilled == 0
    assert sum(len(message.new_files) for message in messages) > 100
    check_partitions(messages, context, table)


def test_without_a_limit_every_partition_holds_its_row_group():
    table = many_partitions()
    context = context_of(MANY, options=bounded(40_000, write_buffer_for_append="false"))
    messages, _, spilled = write_batches(table, context, rows=COUNT)
    assert spilled == 0
    assert all(len(message.new_files) == 1 for message in messages)
    with TableWriter(context) as writer:
        for _ in range(2):
            writer._distribute(measured(table))
        assert writer.held > 5 * 40_000
    check_partitions(messages, context, table)


def test_when_the_disk_that_may_be_taken_is_full_rows_are_written_earlier(aside):
    table = many_partitions()
    options = bounded(40_000) | {"write-buffer-spill.max-disk-size": "30 kb"}
    context = context_of(MANY, options=options)
    messages, most, spilled = write_batches(table, context)
    assert most <= 40_000
    assert spilled > 0
    files = sum(len(message.new_files) for message in messages)
    assert files > 100
    check_partitions(messages, context, table)
    assert list(aside.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"write-buffer-size": "lots"},
        {"write-buffer-spillable": "perhaps"},
        {"write-buffer-for-append": "1"},
        {"write-buffer-spill.max-disk-size": "-1"},
    ],
    ids=str,
)
def test_settings_of_the_buffer_that_mean_nothing_are_refused(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        TableWriter(context_of(SCALABLE, options=options))


def test_a_full_disk_leaves_no_file_anywhere(aside, monkeypatch):
    fill_after(monkeypatch, 100_000)
    context = context_of(MANY, options=bounded(40_000))
    with pytest.raises(StorageError, match="No space left"):
        write([many_partitions()], context)
    assert stored_paths(context.storage) == []
    assert list(aside.iterdir()) == []


def test_one_large_partition_among_many_small_ones_does_not_hold_their_memory(monkeypatch):
    """Rows of a block that is nearly used up are copied rather than put on disk."""
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 200)
    ids = np.arange(COUNT)
    table = rows_of(
        MANY, {"id": ids, "p": np.where(ids % 100 == 0, ids // 100 % 50 + 1, 0), "v": ["v"] * COUNT}
    )
    context = context_of(MANY, options=bounded(40_000))
    messages, most, spilled = write_batches(table, context)
    assert most <= 40_000
    assert spilled == 0
    assert len(messages) == 51
    check_partitions(messages, context, table)


@pytest.mark.long
def test_only_so_many_files_are_open_at_once(monkeypatch):
    monkeypatch.setattr("anabranch.arrow.writer._MOST_OPEN_THERE", 3)
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 10)
    open_files, most = set(), 0

    class Counting(MemoryStorage):
        @contextmanager
        def open_output(self, path):
            nonlocal most
            open_files.add(path)
            most = max(most, len(open_files))
            with super().open_output(path) as sink:
                yield sink
            open_files.discard(path)

    table = many_partitions(20)
    context = context_of(MANY, Counting(), threads=1)
    messages, _, _ = write_batches(table, context)
    # Those that close in the background are open still.
    assert most <= 3 + 8
    check_partitions(messages, context, table)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=10),
    st.integers(1, 12),
    st.sampled_from([1_000, 10_000, 100_000]),
    st.booleans(),
    st.sampled_from([None, "0 b", "5 kb"]),
    st.integers(0, 2**32),
)
def test_order_inside_buckets_is_kept_whatever_memory_there_is(sizes, spread, size, spillable, disk, seed):
    schema = make_schema(
        "id BIGINT NOT NULL, p INT, k INT",
        partition_keys=("p",),
        bucket="3",
        bucket__key="k",
        target__file__size="4 kb",
    )
    random = np.random.default_rng(seed)
    count = sum(sizes)
    keys = random.integers(0, 50, count)
    table = rows_of(schema, {"id": range(count), "p": random.integers(0, spread, count) ** 2, "k": keys})
    options = bounded(size, write_buffer_spillable=str(spillable).lower())
    if disk is not None:
        options["write-buffer-spill.max-disk-size"] = disk
    context = context_of(schema, options=options)
    with TableWriter(context) as writer:
        start = 0
        for length in sizes:
            writer.write(table.slice(start, length))
            start += length
            assert writer.held <= max(size, 2 * table.nbytes)
        messages = writer.finish()
    seen = []
    for message in messages:
        ids = read_written([message], context)["id"].to_pylist()
        assert ids == sorted(ids)
        numbers = [(f.min_sequence_number, f.max_sequence_number) for f in message.new_files]
        assert numbers[0][0] == 0
        assert numbers[-1][1] == len(ids) - 1
        assert all(low == before + 1 for (_, before), (low, _) in pairwise(numbers))
        seen += ids
    assert sorted(seen) == list(range(count))


RSS = """
    import sys
    import numpy as np, pyarrow as pa
    from anabranch.arrow.writer import TableWriter, WriteContext
    from anabranch.format.schema.ddl import parse_columns
    from anabranch.format.schema.table_schema import TableSchema
    from anabranch.storage.local import LocalStorage

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def batch(start, count):
        ids = np.arange(start, start + count)
        columns = [ids, (ids * 7919 % partitions).astype(np.int32), [("%08x" % (i * 2654435761 % 2**32)) * 16 for i in ids]]
        return pa.table([pa.array(c) for c in columns], schema=arrow)

    folder, rows, partitions, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    fields = parse_columns("id BIGINT, p INT, v STRING")
    arrow = pa.schema([("id", pa.int64()), ("p", pa.int32()), ("v", pa.string())])
    schema = TableSchema.create(fields, partition_keys=("p",), options={"write-buffer-size": size}, time_millis=0)
    with TableWriter(WriteContext(LocalStorage(folder + "/warm-up"), schema)) as writer:
        writer.write(batch(0, 1000))
        writer.finish()
    before = peak()
    with TableWriter(WriteContext(LocalStorage(folder + "/t"), schema)) as writer:
        for start in range(0, rows, 10_000):
            writer.write(batch(start, 10_000))
        messages = writer.finish()
    print(peak() - before, sum(len(m.new_files) for m in messages), writer.spilled)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
@pytest.mark.parametrize(
    ("rows", "partitions", "size"),
    [
        pytest.param(400_000, 50, 8, id="small"),
        pytest.param(5_000_000, 2_000, 256, id="large", marks=pytest.mark.long),
    ],
)
def test_the_memory_of_the_process_is_bounded(tmp_path, rows, partitions, size):
    """Above what it had, the process takes at most the buffer and 256 MB; without the limit it would take more."""
    command = [sys.executable, "-c", dedent(RSS), str(tmp_path), str(rows), str(partitions), f"{size} mb"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rise, files, spilled = map(int, done.stdout.split())
    assert spilled > size << 16
    assert files == partitions
    assert rise <= (size << 20) + (128 << 20 if size < 64 else 256 << 20)
