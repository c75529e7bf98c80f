"""Partitions: values of all kinds, in directories that both sides must spell the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

PLAIN = ["a", "b c", "1", "é", "漢字", "a.b", "~!@$&()+,-;<>|`", "%41", "UPPER", "__HIVE__"]
ESCAPED = ["/", "a/b=c", "x:y", "%", "'q'", '"', "#", "*", "?", "\\", "{}", "[]", "^", "\t", "\x7f", "A%2FB"]
BLANK = [None, "", " ", "  ", "__DEFAULT_PARTITION__"]


def directories(warehouse: Path) -> set[str]:
    """Partition directories of the table, as they are on disk."""
    root = warehouse / "db.db/t"
    return {str(path.parent.relative_to(root)) for path in root.rglob("bucket-*") if path.is_dir()}


@pytest.mark.parametrize("values", [PLAIN, ESCAPED, BLANK], ids=["plain", "escaped", "blank"])
def test_text(tmp_path: Path, peer: PeerSession, values: list[Any]) -> None:
    ours = Ours(tmp_path, "n INT, p STRING", partition_by=["p"])
    rows: Rows = [[n, value] for n, value in enumerate(values)]
    ours.append(rows)
    same(peer.read(tmp_path, NAME), rows)
    made = directories(tmp_path)
    peer.append(tmp_path, NAME, rows)
    assert directories(tmp_path) == made
    same(ours.read(), rows * 2)
    for n, value in enumerate(values):
        literal = f"'{value}'".replace("'q'", "''q''") if value is not None else None
        condition = "p IS NULL" if literal is None else f"p = {literal}"
        same(ours.read(condition), [[n, value]] * 2)
        theirs: dict[str, Any] = {"op": "is_null" if value is None else "equal", "column": "p"}
        if value is not None:
            theirs["values"] = [value]
        same(peer.read(tmp_path, NAME, filter=theirs), [[n, value]] * 2)


TYPED: dict[str, list[Any]] = {
    "DATE": ["1970-01-01", "2024-02-29", "1969-12-31", None],
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-1, 0],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, 0, None],
    "DECIMAL(6, 2)": ["1.50", "-0.01", "9999.99", None],
    "DECIMAL(20, 3)": ["1.500", "-99999999999999999.999", "0.000"],
    "CHAR(3)": ["abc", "x"],
    "VARCHAR(40)": ["short", "longer than seven bytes", None],
    "TIMESTAMP(3)": ["2023-11-14T22:13:20.120000000", "1970-01-01T00:00:00.000000000", None],
    "TIMESTAMP(6)": ["2023-11-14T22:13:20.123456000", "1969-12-31T23:59:59.999999000"],
    "TIMESTAMP_LTZ(3)": ["2023-11-14T22:13:20.120000000Z", None],
}


@pytest.mark.parametrize("kind", TYPED)
def test_types(tmp_path: Path, peer: PeerSession, kind: str) -> None:
    ours = Ours(tmp_path, f"p {kind}, n INT", partition_by=["p"])
    rows: Rows = [[value, n] for n, value in enumerate(TYPED[kind])]
    ours.append(rows)
    same(peer.read(tmp_path, NAME), rows)
    made = directories(tmp_path)
    peer.append(tmp_path, NAME, rows)
    same(ours.read(), rows * 2)
    assert directories(tmp_path) == made


def test_several_keys(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "v BIGINT, dt DATE, region STRING, hour INT", partition_by=["dt", "region", "hour"])
    rows: Rows = [
        [n, date, region, hour]
        for n, (date, region, hour) in enumerate(
            (d, r, h) for d in ("2024-01-01", None) for r in ("eu/west", "", None) for h in (0, None)
        )
    ]
    ours.append(rows)
    peer.append(tmp_path, NAME, rows)
    same(ours.read(), rows * 2)
    same(peer.read(tmp_path, NAME), rows * 2)
    picked = [row for row in rows if row[1] == "2024-01-01" and row[3] == 0]
    same(ours.read("dt = '2024-01-01' AND hour = 0"), picked * 2)
    theirs = {
        "op": "and",
        "of": [
            {"op": "equal", "column": "dt", "values": ["2024-01-01"]},
            {"op": "equal", "column": "hour", "values": [0]},
        ],
    }
    same(peer.read(tmp_path, NAME, filter=theirs), picked * 2)


def test_a_partition_filter_opens_only_its_files(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, p INT", partition_by=["p"])
    rows: Rows = [[n, n % 10] for n in range(100)]
    ours.append(rows)
    peer.append(tmp_path, NAME, rows)
    assert ours.files() == 20
    assert ours.files("p = 3") == 2
    theirs = {"op": "equal", "column": "p", "values": [3]}
    assert (
        sum(len(s["files"]) for s in peer.call("plan", warehouse=str(tmp_path), table=NAME, filter=theirs))
        == 2
    )
