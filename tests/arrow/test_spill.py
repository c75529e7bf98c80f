"""Rows that wait: on disk, in memory, and how much of both they take."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.arrow import row_buffer, spill
from anabranch.arrow.row_buffer import GroupSize, measured
from anabranch.arrow.spill import Spill
from anabranch.arrow.waiting import WaitingRows
from anabranch.errors import StorageError
from tests.arrow.helpers import make_schema, rows_of
from tests.arrow.spilling import fill_after

SCHEMA = make_schema("id BIGINT NOT NULL, v STRING, l ARRAY<ROW<x DECIMAL(20, 2)>>, m MAP<STRING, BYTES>")
MIXED = rows_of(
    SCHEMA,
    {
        "id": range(1000),
        "v": [None if i % 5 == 0 else f"v{i}" for i in range(1000)],
        "l": [[{"x": None}] * (i % 3) for i in range(1000)],
        "m": [None if i % 7 == 0 else [(f"k{i}", b"x" * (i % 11))] for i in range(1000)],
    },
)


def pieces(table, *sizes):
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [table.slice(start, size) for start, size in zip(starts, sizes, strict=True)]


def test_tables_come_back_as_they_were(tmp_path):
    tables = pieces(MIXED, 1, 500, 0, 99, 400)
    with Spill(MIXED.schema, folder=str(tmp_path)) as aside:
        placed = aside.put(tables)
        placed += aside.put([pa.concat_tables([tables[3], tables[1]])])
        assert aside.size == aside.written > 0
        taken = [aside.take([rows]) for rows in reversed(placed)]
    assert taken[0].equals(pa.concat_tables([tables[3], tables[1]]))
    assert taken[1:] == tables[::-1]


def test_many_small_tables_share_a_piece(monkeypatch):
    monkeypatch.setattr(spill, "_PIECE_SIZE", 2000)
    with Spill(MIXED.schema) as aside:
        tables = [MIXED.slice(i, 1) for i in range(200)]
        assert aside.take(aside.put(tables)) == MIXED.slice(0, 200)


def test_rows_on_disk_are_compressed():
    table = pa.table({"a": [7] * 100_000})
    with Spill(table.schema) as aside:
        aside.put([table])
        assert aside.size < table.nbytes / 20


def test_disk_is_given_back_when_its_rows_are_taken(monkeypatch):
    monkeypatch.setattr(spill, "SEGMENT_SIZE", 1)
    with Spill(MIXED.schema) as aside:
        first = aside.put(pieces(MIXED, 500, 500))
        size = aside.size
        second = aside.put(pieces(MIXED, 500))
        aside.take([first[1]])
        assert aside.size > size
        aside.take([first[0]])
        assert aside.size == aside.written - size
        assert aside.take(second) == MIXED.slice(0, 500)
        assert aside.size == 0


def test_no_more_disk_is_taken_than_allowed(monkeypatch):
    monkeypatch.setattr(spill, "_PIECE_SIZE", 1)
    with Spill(MIXED.schema) as unlimited:
        unlimited.put([MIXED])
        limit = unlimited.size * 3
    with Spill(MIXED.schema, max_size=limit) as aside:
        placed = aside.put([MIXED] * 5)
        assert len(placed) == 3
        assert aside.size <= limit
        assert aside.put([MIXED]) == []
        for rows in placed:
            assert aside.take([rows]) == MIXED
        assert len(aside.put([MIXED] * 5)) == 3


def test_a_full_disk_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    fill_after(monkeypatch, 1000)
    with Spill(MIXED.schema, folder=str(tmp_path)) as aside:
        with pytest.raises(StorageError, match=r"No space left on device") as caught:
            aside.put([MIXED])
        assert str(tmp_path) in str(caught.value)
        assert "write-buffer-spill.max-disk-size" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_an_error_that_names_it(tmp_path):
    with (
        Spill(MIXED.schema, folder=str(tmp_path / "gone")) as aside,
        pytest.raises(StorageError, match="gone"),
    ):
        aside.put([MIXED])


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_killed_process_leaves_nothing_on_disk(tmp_path):
    code = """
        import os, signal, sys
        import pyarrow as pa
        from anabranch.arrow.spill import Spill
        table = pa.table({"a": list(range(100_000))})
        aside = Spill(table.schema, folder=sys.argv[1])
        aside.put([table])
        assert aside.size > 0
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=6).map(dict),
            st.sampled_from(["put aside", "pack"]),
            st.tuples(st.just("rest"), st.integers(0, 4)),
        ),
        max_size=30,
    ),
    st.one_of(st.none(), st.integers(0, 2000)),
)
def test_waiting_rows_keep_their_order_and_count_their_memory(steps, max_size):
    """Whatever happens in between, the rows of a key come back in their order, none lost, none twice."""
    put, taken, count = {}, {}, 0
    schema = pa.schema([("n", pa.int64())])

    def take(key, groups):
        for table, size in groups:
            assert len(table)
            assert size == table.nbytes
            taken.setdefault(key, []).extend(table["n"].to_pylist())

    with Spill(schema, max_size=max_size) as aside:
        waiting = WaitingRows(GroupSize(800), aside)
        for step in steps:
            if isinstance(step, dict):
                block = pa.table({"n": range(count, count + sum(step.values()))}, schema=schema)
                count += len(block)
                for key, rows in zip(step, pieces(block, *step.values()), strict=True):
                    put.setdefault(key, []).extend(rows["n"].to_pylist())
                for key in waiting.add(measured(block), step.items()):
                    groups = waiting.take_full(key)
                    assert groups
                    take(key, groups)
            elif step == "put aside":
                before = waiting.live
                waiting.put_aside()
                assert waiting.live == 0 or max_size is not None
                assert waiting.live <= before
            elif step == "pack":
                waiting.pack()
                assert waiting.held == waiting.live
            elif step[1] in waiting.keys:
                take(step[1], waiting.take_rest(step[1]))
            assert 0 <= waiting.live <= waiting.held
            in_memory = sum(len(put[k]) - len(taken.get(k, [])) for k in waiting.keys) * 8
            assert waiting.live <= in_memory
            if aside.written == 0:
                assert waiting.live == in_memory
        for key in waiting.keys:
            take(key, waiting.take_rest(key))
        assert waiting.live == waiting.held == aside.size == 0
    assert {key: rows for key, rows in put.items() if rows} == taken


def test_rows_hold_the_memory_they_came_in(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 100)
    waiting = WaitingRows(GroupSize())
    block = pa.table({"n": range(1000)})
    (full,) = waiting.add(measured(block), [("large", 990), ("small", 10)])
    assert sum(len(group.rows) for group in waiting.take_full(full)) == 900
    assert (waiting.live, waiting.held) == (100 * 8, 1000 * 8)
    waiting.take_rest("large")
    assert (waiting.live, waiting.held) == (10 * 8, 1000 * 8)
    waiting.pack()
    assert (waiting.live, waiting.held) == (10 * 8, 10 * 8)
    with contextlib.suppress(KeyError):
        waiting.take_rest("large")
    assert waiting.take_rest("small")[0].rows["n"].to_pylist() == list(range(990, 1000))


def test_descriptors_are_given_back():
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    for _ in range(20):
        with Spill(MIXED.schema) as aside:
            aside.put([MIXED])
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 1
