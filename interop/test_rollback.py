"""Rollbacks by us, as others see them; and their expiry, which must not take what came back."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

BEFORE: Rows = [[1, "a"], [2, "b"], [3, "a"]]
AFTER: Rows = [[7, "a"], [2, "b"]]


def _overwritten(tmp_path: Path, **options: str) -> Ours:
    """Three rows, and then partition a replaced."""
    ours = Ours(tmp_path, "n INT, p STRING", partition_by=["p"], options={"write-only": "true", **options})
    ours.append(BEFORE[:2])
    ours.append(BEFORE[2:])
    ours.overwrite([[7, "a"]], {"p": "a"})
    return ours


def test_others_read_and_extend_what_came_back(tmp_path: Path, peer: PeerSession) -> None:
    ours = _overwritten(tmp_path)
    ours.table.rollback(2)
    same(ours.read(), BEFORE)
    same(peer.read(tmp_path, NAME), BEFORE)
    same(peer.read(tmp_path, NAME, options={"scan.snapshot-id": "3"}), AFTER)
    peer.append(tmp_path, NAME, [[8, "c"]])
    same(Ours.open(tmp_path).read(), [*BEFORE, [8, "c"]])
    Ours.open(tmp_path).table.rollback(3)
    same(peer.read(tmp_path, NAME), AFTER)
    Ours.open(tmp_path).table.rollback(4)
    same(peer.read(tmp_path, NAME), BEFORE)


def test_back_beyond_a_commit_of_others(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, p STRING", partition_by=["p"], options={"write-only": "true"})
    ours.append(BEFORE)
    peer.call("overwrite", warehouse=str(tmp_path), table=NAME, rows=[[7, "a"]], partition={"p": "a"})
    peer.append(tmp_path, NAME, [[8, "c"]])
    Ours.open(tmp_path).table.rollback(1)
    same(peer.read(tmp_path, NAME), BEFORE)
    Ours.open(tmp_path).table.rollback(2)
    same(peer.read(tmp_path, NAME), AFTER)


def test_for_good(tmp_path: Path, peer: PeerSession) -> None:
    ours = _overwritten(tmp_path)
    ours.table.rollback(2, destructive=True)
    same(peer.read(tmp_path, NAME), BEFORE)
    peer.append(tmp_path, NAME, [[8, "c"]])
    same(Ours.open(tmp_path).read(), [*BEFORE, [8, "c"]])
    snapshot = Ours.open(tmp_path).table.snapshot
    assert snapshot is not None
    assert snapshot.id == 3


@pytest.mark.parametrize("tagged", [False, True], ids=["untagged", "tagged"])
def test_java_expires_all_but_the_newest(tmp_path: Path, java: PeerSession, tagged: bool) -> None:
    ours = _overwritten(tmp_path)
    table = ours.table
    if tagged:
        table.create_tag("wrong")  # newer than what came back, and without it
    table.rollback(2)
    table.create_tag("right")
    table.overwrite(ours.arrow([[9, "a"]]), {"p": "a"})
    table.rollback("right")
    options = {
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "snapshot.time-retained": "1 ms",
    }
    alter = table.alter()
    for key, value in {**options, "write-only": "false"}.items():
        alter = alter.set_option(key, value)
    alter.apply()
    for number in range(3):
        java.append(tmp_path, NAME, [[20 + number, "c"]])
    after = Ours.open(tmp_path).table
    assert len([*after.snapshots()]) == 1, "Java has expired the others"
    expected = [*BEFORE, *([20 + number, "c"] for number in range(3))]
    same(Ours.open(tmp_path).read(), expected)
    same(java.read(tmp_path, NAME), expected)
    rows = after.at("right").scan().to_arrow().to_pylist()
    assert sorted((row["n"], row["p"]) for row in rows) == sorted((n, p) for n, p in BEFORE)
    if tagged:
        assert after.at("wrong").scan().to_arrow().num_rows == 2
