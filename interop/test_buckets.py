"""Fixed buckets: both sides put a key into the same bucket and find it there."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from interop.canonical import text
from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

# Values whose bytes differ between encodings: lengths around 7 and 8, both decimal layouts, nulls.
KEYS: dict[str, list[Any]] = {
    "INT NOT NULL": [*range(-20, 20), 2**31 - 1, -(2**31)],
    "BIGINT": [*range(20), 2**63 - 1, -(2**63), None],
    "SMALLINT": [*range(-10, 10), None],
    "BOOLEAN": [True, False, None],
    "DOUBLE": [0.0, 1.5, -1.5, 1e300, None],
    "FLOAT": [0.0, 1.5, -1.5, None],
    "STRING": ["", "a", "1234567", "12345678", "漢字漢字", "x" * 100, *(f"key-{n}" for n in range(20)), None],
    "BYTES": ["", "00", "00" * 8, "ff" * 7, None],
    "DATE": ["1970-01-01", "2024-02-29", "1969-12-31", None],
    "DECIMAL(10, 2)": ["0.00", "1.50", "-1.50", "12345678.90", None],
    "DECIMAL(20, 2)": ["0.00", "1.50", "-123.45", "123456789012345678.90"],
    "TIMESTAMP(3)": ["2023-11-14T22:13:20.123000000", "1969-12-31T23:59:59.999000000", None],
    "TIMESTAMP(6)": ["2023-11-14T22:13:20.123456000", "1969-12-31T23:59:59.999999000"],
    "TIMESTAMP_LTZ(3)": ["2023-11-14T22:13:20.123000000Z", None],
    "TIMESTAMP_LTZ(6)": ["2023-11-14T22:13:20.123456000Z"],
}
JAVA_ONLY: dict[str, list[Any]] = {
    # pypaimon encodes these keys one byte longer, or nulls without their reserved bytes: we follow Java.
    "DECIMAL(20, 2)": [None, "-1.28", "-327.68"],
    "TIMESTAMP(6)": [None],
    "TIMESTAMP_LTZ(6)": [None],
}
BUCKETS = {"bucket": "7", "bucket-key": "k"}


def buckets_by_key(peer: PeerSession, warehouse: Path) -> dict[str, set[int]]:
    """Buckets in which rows of each key lie."""
    found: dict[str, set[int]] = defaultdict(set)
    for bucket, row in peer.call("buckets", warehouse=str(warehouse), table=NAME, columns=["k"]):
        found[text(row)].add(bucket)
    return found


def check_keys(warehouse: Path, peer: PeerSession, kind: str, keys: list[Any]) -> None:
    """Rows of one key from both writers share one bucket."""
    ours = Ours(warehouse, f"k {kind}, n INT", options=BUCKETS)
    rows: Rows = [[key, n] for n, key in enumerate(keys)]
    ours.append(rows)
    peer.append(warehouse, NAME, rows)
    same(ours.read(), rows * 2)
    same(peer.read(warehouse, NAME), rows * 2)
    spread = buckets_by_key(peer, warehouse)
    assert {key: found for key, found in spread.items() if len(found) > 1} == {}


@pytest.mark.parametrize("kind", KEYS)
def test_one_key_one_bucket(tmp_path: Path, peer: PeerSession, kind: str) -> None:
    check_keys(tmp_path, peer, kind, KEYS[kind])


@pytest.mark.parametrize("kind", JAVA_ONLY)
def test_keys_that_only_java_encodes_like_us(tmp_path: Path, java: PeerSession, kind: str) -> None:
    check_keys(tmp_path, java, kind, JAVA_ONLY[kind])


def test_a_filter_on_the_key_finds_all_rows(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "k BIGINT NOT NULL, n INT", options=BUCKETS)
    rows: Rows = [[key, n] for n, key in enumerate(range(50))]
    ours.append(rows)
    peer.append(tmp_path, NAME, rows)
    for key in range(0, 50, 7):
        same(
            peer.read(tmp_path, NAME, filter={"op": "equal", "column": "k", "values": [key]}),
            [[key, key]] * 2,
        )
        same(ours.read(f"k = {key}"), [[key, key]] * 2)
        assert ours.files(f"k = {key}") <= 2


def test_several_key_columns_and_partitions(tmp_path: Path, peer: PeerSession) -> None:
    options = {"bucket": "4", "bucket-key": "s,k"}
    ours = Ours(tmp_path, "k INT, dt DATE, s STRING, n INT", partition_by=["dt"], options=options)
    rows: Rows = [[n % 9, f"2024-01-0{n % 3 + 1}", f"s{n % 5}", n] for n in range(60)]
    ours.append(rows)
    peer.append(tmp_path, NAME, rows)
    same(ours.read(), rows * 2)
    same(peer.read(tmp_path, NAME), rows * 2)
    found: dict[str, set[int]] = defaultdict(set)
    for bucket, row in peer.call("buckets", warehouse=str(tmp_path), table=NAME, columns=["s", "k"]):
        found[text(row)].add(bucket)
    assert all(len(buckets) == 1 for buckets in found.values())


def test_sequence_numbers_continue(tmp_path: Path, java: PeerSession) -> None:
    """Java keeps the order of a bucket's rows by sequence number; ours must go on where its files end."""
    ours = Ours(tmp_path, "k INT NOT NULL, n INT", options={"bucket": "1", "bucket-key": "k"})
    for start in range(0, 40, 20):
        ours.append([[1, n] for n in range(start, start + 10)])
        java.append(tmp_path, NAME, [[1, n] for n in range(start + 10, start + 20)])
    in_order = java.call("buckets", warehouse=str(tmp_path), table=NAME, columns=["n"])
    assert [row[0] for _, row in in_order] == list(range(40))
    assert [row["n"] for row in Ours.open(tmp_path).table.scan().to_arrow().to_pylist()] == list(range(40))


def test_a_queue_without_a_key(tmp_path: Path, peer: PeerSession) -> None:
    """Java refuses to open one: so the first plain column is stored as the key of the one bucket."""
    columns = "m MAP<STRING, INT>, p STRING, k INT, n INT"
    ours = Ours(tmp_path, columns, partition_by=["p"], options={"bucket": "1"})
    rows: Rows = [[None, "a", n % 3, n] for n in range(10)]
    ours.append(rows)
    peer.append(tmp_path, NAME, [[None, "a", n % 3, n] for n in range(10, 20)])
    ours.append([[None, "a", n % 3, n] for n in range(20, 30)])
    rows = [[None, "a", n % 3, n] for n in range(30)]
    same(peer.read(tmp_path, NAME), rows)
    same(ours.read(), rows)
    for key in range(3):
        wanted = [row for row in rows if row[2] == key]
        condition = {"op": "equal", "column": "k", "values": [key]}
        same(peer.read(tmp_path, NAME, filter=condition), wanted)
        same(ours.read(f"k = {key}"), wanted)
    ours.table.alter().drop_column("k").apply()
    peer.append(tmp_path, NAME, [[None, "a", 30]])
    same(peer.read(tmp_path, NAME), [[None, "a", n] for n in range(31)])


def test_order_in_a_queue_without_a_key(tmp_path: Path, java: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, v STRING", options={"bucket": "1"})
    for start in range(0, 40, 20):
        ours.append([[n, "ours"] for n in range(start, start + 10)])
        java.append(tmp_path, NAME, [[n, "theirs"] for n in range(start + 10, start + 20)])
    in_order = java.call("buckets", warehouse=str(tmp_path), table=NAME, columns=["n"])
    assert [row[0] for _, row in in_order] == list(range(40))
    assert [row["n"] for row in Ours.open(tmp_path).table.scan().to_arrow().to_pylist()] == list(range(40))


@pytest.mark.parametrize("kind", [*KEYS, "TIME(3)", "CHAR(3)", "BINARY(3)", "TIMESTAMP(9)"])
def test_any_plain_column_can_be_the_key_of_a_queue_without_one(
    tmp_path: Path, peer: PeerSession, kind: str
) -> None:
    values = KEYS.get(kind, [None])
    ours = Ours(tmp_path, f"k {kind}, n INT", options={"bucket": "1"})
    rows: Rows = [[value, n] for n, value in enumerate(values)]
    ours.append(rows)
    peer.append(tmp_path, NAME, rows)
    same(peer.read(tmp_path, NAME), rows * 2)
    same(ours.read(), rows * 2)
