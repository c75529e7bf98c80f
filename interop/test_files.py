"""Data files as the table's options shape them: every form must suit the oldest reader."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

COLUMNS = "n INT, s STRING, d DECIMAL(12, 3), b BOOLEAN, t TIMESTAMP(6)"
ROWS: Rows = [
    [n, f"text-{n % 17}" * (n % 5), f"{n}.125", n % 3 == 0, f"2024-01-01T00:00:{n % 60:02}.000001000"]
    for n in range(200)
] + [[None, None, None, None, None]]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_compressions(tmp_path: Path, peer: PeerSession, codec: str) -> None:
    ours = Ours(tmp_path, COLUMNS, options={"file.compression": codec})
    ours.append(ROWS)
    same(ours.read(), ROWS)
    same(peer.read(tmp_path, NAME), ROWS)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(4)", "full"])
def test_statistics_of_every_mode(tmp_path: Path, peer: PeerSession, mode: str) -> None:
    """With few statistics or none, a filter of the peer must still find all rows."""
    ours = Ours(tmp_path, COLUMNS, options={"metadata.stats-mode": mode})
    ours.append(ROWS[:100])
    ours.append(ROWS[100:])
    for condition, expected in {
        ("greater_than", "n", 150): [row for row in ROWS if row[0] is not None and row[0] > 150],
        ("equal", "s", "text-2text-2"): [row for row in ROWS if row[1] == "text-2text-2"],
        ("is_null", "n"): ROWS[-1:],
    }.items():
        op, column, *values = condition
        theirs = {"op": op, "column": column, "values": values}
        same(peer.read(tmp_path, NAME, filter=theirs), expected)


def test_statistics_per_column(tmp_path: Path, peer: PeerSession) -> None:
    options = {"metadata.stats-mode": "none", "fields.n.stats-mode": "full"}
    ours = Ours(tmp_path, COLUMNS, options=options)
    ours.append(ROWS[:100])
    ours.append(ROWS[100:])
    expected = [row for row in ROWS if row[0] == 7]
    same(peer.read(tmp_path, NAME, filter={"op": "equal", "column": "n", "values": [7]}), expected)
    same(ours.read("n = 7"), expected)
    assert ours.files("n = 7") == 1


def test_a_column_too_varied_for_a_dictionary(tmp_path: Path, peer: PeerSession) -> None:
    """Pages of both encodings in one column chunk, over many pages."""
    ours = Ours(tmp_path, "s STRING")
    rows: Rows = [[f"{n:08}" * 16] for n in range(12_000)]
    ours.append(rows)
    same(peer.read(tmp_path, NAME), rows)


def test_many_files_of_one_commit(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, s STRING", options={"target-file-size": "64 kb"})
    chance = random.Random(7)
    rows: Rows = [[n, chance.randbytes(100).hex()] for n in range(4_000)]
    ours.append(rows)
    assert ours.files() > 1
    same(ours.read(), rows)
    same(peer.read(tmp_path, NAME), rows)
    found = peer.read(tmp_path, NAME, filter={"op": "less_than", "column": "n", "values": [3]})
    same(found, rows[:3])


def test_columns_of_large_files_that_are_not_compressed(tmp_path: Path, peer: PeerSession) -> None:
    """A file in which some columns are compressed and others, which would hardly shrink, are not."""
    ours = Ours(tmp_path, "n INT, x DOUBLE, s STRING, k INT")
    chance = random.Random(7)
    rows: Rows = [
        [n, chance.random(), f"text-{n % 17}", chance.randrange(64)] if n % 1_000 else [n, None, None, None]
        for n in range(140_000)
    ]
    ours.append(rows)
    (path,) = tmp_path.glob("**/*.parquet")
    group = pq.read_metadata(path).row_group(0)
    assert [group.column(place).compression for place in range(4)] == [
        "ZSTD",
        "UNCOMPRESSED",
        "ZSTD",
        "UNCOMPRESSED",
    ]
    same(peer.read(tmp_path, NAME), rows)
