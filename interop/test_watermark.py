"""A table that defines a watermark is an ordinary table to others, and keeps it when they write."""

from __future__ import annotations

from pathlib import Path

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

COLUMNS = "n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"


def test_a_watermark_definition(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, COLUMNS)
    first: Rows = [[1, "1970-01-01T00:01:40.000000000"]]
    ours.append(first)
    same(peer.read(tmp_path, NAME), first)
    second: Rows = [[2, "1970-01-01T00:02:00.000000000"]]
    peer.append(tmp_path, NAME, second)
    third: Rows = [[3, "1970-01-01T00:00:10.000000000"]]
    ours.append(third)
    expected = [*first, *second, *third]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    found = sorted((s.id, s.watermark) for s in Ours.open(tmp_path).table.snapshots())
    assert found == [(1, 95_000), (2, 95_000), (3, 95_000)], "carried on by the peer, and never back"
