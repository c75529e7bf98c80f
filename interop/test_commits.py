"""Histories: many commits, overwrites, compaction by Java, and filters over what each side wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession


def test_120_appends(tmp_path: Path, peer: PeerSession) -> None:
    """Past several rounds of manifest merging, by us and then by the peer."""
    ours = Ours(tmp_path, "n INT, p INT, s STRING", partition_by=["p"])
    expected: Rows = []
    for n in range(120):
        rows: Rows = [[n, n % 4, f"ours {n}"]]
        ours.append(rows)
        expected += rows
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    for n in range(120, 160):
        rows = [[n, n % 4, f"theirs {n}"]]
        peer.append(tmp_path, NAME, rows)
        expected += rows
    same(ours.read(), expected)
    same(ours.read("n >= 115 AND n < 125"), [row for row in expected if 115 <= row[0] < 125])
    ours.append([[160, 0, "ours again"]])
    expected.append([160, 0, "ours again"])
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)


def test_taking_turns(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT")
    for n in range(0, 40, 2):
        ours.append([[n]])
        peer.append(tmp_path, NAME, [[n + 1]])
    same(ours.read(), [[n] for n in range(40)])
    same(peer.read(tmp_path, NAME), [[n] for n in range(40)])


def test_we_overwrite(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, p STRING", partition_by=["p"])
    ours.append([[1, "a"], [2, "b"], [3, None]])
    peer.append(tmp_path, NAME, [[4, "a"], [5, "b"]])
    ours.overwrite([[6, "a"]], {"p": "a"})
    same(peer.read(tmp_path, NAME), [[6, "a"], [2, "b"], [3, None], [5, "b"]])
    ours.overwrite([[7, "b"], [8, "c"]])
    expected: Rows = [[6, "a"], [7, "b"], [8, "c"], [3, None]]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    peer.append(tmp_path, NAME, [[9, "a"]])
    same(ours.read(), [*expected, [9, "a"]])


def test_we_overwrite_without_partitions(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT")
    peer.append(tmp_path, NAME, [[1]])
    ours.append([[2]])
    ours.overwrite([[3]])
    same(peer.read(tmp_path, NAME), [[3]])
    same(peer.read(tmp_path, NAME, options={"scan.snapshot-id": "2"}), [[1], [2]])


def test_the_peer_overwrites(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "n INT, p STRING", partition_by=["p"])
    ours.append([[1, "a"], [2, "b"]])
    ours.append([[3, "a"]])
    peer.call("overwrite", warehouse=str(tmp_path), table=NAME, rows=[[4, "a"]], partition={"p": "a"})
    same(ours.read(), [[4, "a"], [2, "b"]])
    same(peer.read(tmp_path, NAME), [[4, "a"], [2, "b"]])
    ours.append([[5, "b"]])
    same(peer.read(tmp_path, NAME), [[4, "a"], [2, "b"], [5, "b"]])


@pytest.mark.parametrize("bucketed", [False, True], ids=["unaware", "bucketed"])
def test_java_compacts(tmp_path: Path, java: PeerSession, bucketed: bool) -> None:
    options = {"bucket": "2", "bucket-key": "n"} if bucketed else {}
    ours = Ours(
        tmp_path, "n INT NOT NULL, p INT, s STRING, d DECIMAL(10, 2)", partition_by=["p"], options=options
    )
    expected: Rows = []
    for start in range(0, 80, 10):
        rows: Rows = [[n, n % 2, f"s{n}", f"{n}.25"] for n in range(start, start + 10)]
        ours.append(rows)
        expected += rows
    before = ours.files()
    java.call("compact", warehouse=str(tmp_path), table=NAME)
    snapshot = Ours.open(tmp_path).table.snapshot
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"
    assert ours.files() < before
    same(ours.read(), expected)
    same(ours.read("n = 42"), [row for row in expected if row[0] == 42])
    ours.append([[80, 0, "after", None]])
    ours.overwrite([[81, 1, "replaced", "1.00"]], {"p": 1})
    expected = [
        *(row for row in expected if row[1] == 0),
        [80, 0, "after", None],
        [81, 1, "replaced", "1.00"],
    ]
    same(ours.read(), expected)
    same(java.read(tmp_path, NAME), expected)


def leaf(op: str, column: str, *values: Any) -> dict[str, Any]:
    """A condition as the drivers take it."""
    return {"op": op, "column": column, "values": list(values)}


# Each condition in our words, in the peers', and as plain Python over (n, s, d, f, t, o).
FILTERS: dict[str, tuple[dict[str, Any], Callable[..., bool]]] = {
    "n = 150": (leaf("equal", "n", 150), lambda n, *_: n == 150),
    "n >= 295": (leaf("greater_or_equal", "n", 295), lambda n, *_: n >= 295),
    "n < 5": (leaf("less_than", "n", 5), lambda n, *_: n < 5),
    "n IN (1, 299, 1000)": (leaf("is_in", "n", 1, 299, 1000), lambda n, *_: n in (1, 299, 1000)),
    "s = 'text-0150'": (leaf("equal", "s", "text-0150"), lambda _, s, *__: s == "text-0150"),
    "s LIKE 'text-029%'": (leaf("startswith", "s", "text-029"), lambda _, s, *__: s.startswith("text-029")),
    "d > 298.5": (leaf("greater_than", "d", "298.50"), lambda n, *_: n >= 299),
    "f <= 1.0": (leaf("less_or_equal", "f", 1.0), lambda n, *_: n <= 1),
    "t < TIMESTAMP '2024-01-01 00:00:05'": (
        leaf("less_than", "t", "2024-01-01T00:00:05.000000000"),
        lambda n, *_: n < 5,
    ),
    "o IS NULL": (leaf("is_null", "o"), lambda *row: row[-1] is None),
    "o IS NOT NULL": (leaf("is_not_null", "o"), lambda *row: row[-1] is not None),
    "n = 150 AND s = 'text-0151'": (
        {"op": "and", "of": [leaf("equal", "n", 150), leaf("equal", "s", "text-0151")]},
        lambda *_: False,
    ),
    "n = 1 OR n = 299": (
        {"op": "or", "of": [leaf("equal", "n", 1), leaf("equal", "n", 299)]},
        lambda n, *_: n in (1, 299),
    ),
}
FILTERED = "n BIGINT, s STRING, d DECIMAL(10, 2), f DOUBLE, t TIMESTAMP(6), o INT"


def filtered_rows(start: int, end: int) -> Rows:
    """Rows in the order of all their columns; `o` is null in the first third only."""
    return [
        [n, f"text-{n:04}", f"{n}.00", float(n), f"2024-01-01T00:{n // 60:02}:{n % 60:02}.000000000",
         None if n < 100 else n]
        for n in range(start, end)
    ]  # fmt: skip


@pytest.mark.parametrize("condition", FILTERS)
def test_the_peer_filters_what_we_wrote(tmp_path: Path, peer: PeerSession, condition: str) -> None:
    """Our statistics must neither lose rows (which Java 0.9 would do silently) nor fail to prune."""
    ours = Ours(tmp_path, FILTERED)
    everything = append_thirds(ours.append)
    theirs, holds = FILTERS[condition]
    expected = [row for row in everything if holds(*row)]
    same(ours.read(condition), expected)
    same(peer.read(tmp_path, NAME, filter=theirs), expected)
    plan = peer.call("plan", warehouse=str(tmp_path), table=NAME, filter=theirs)
    assert ours.files(condition) <= sum(len(split["files"]) for split in plan) < 3


@pytest.mark.parametrize("condition", FILTERS)
def test_we_filter_what_the_peer_wrote(tmp_path: Path, peer: PeerSession, condition: str) -> None:
    ours = Ours(tmp_path, FILTERED)
    everything = append_thirds(lambda rows: peer.append(tmp_path, NAME, rows))
    _, holds = FILTERS[condition]
    same(ours.read(condition), [row for row in everything if holds(*row)])
    if peer.name == "java-0.9":  # pypaimon keeps no statistics
        assert ours.files(condition) < 3


def append_thirds(append: Callable[[Rows], None]) -> Rows:
    """Three files, each with its own range of every column."""
    thirds = [filtered_rows(start, start + 100) for start in (0, 100, 200)]
    for rows in thirds:
        append(rows)
    return [row for rows in thirds for row in rows]
