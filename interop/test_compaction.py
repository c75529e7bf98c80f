"""Compaction by one side, reading, writing and compaction by the other: rows and the order of queues stay."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from anabranch.arrow.rewrite import rewrite
from anabranch.arrow.writer import WriteContext
from anabranch.kernel.actions.compact import Compact
from anabranch.kernel.compaction.planning import plan_full
from anabranch.kernel.compaction.selection import live_files
from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

COLUMNS = "p STRING, k INT NOT NULL, n INT, s STRING"
FIELDS: list[dict[str, Any]] = [
    {"id": 0, "name": "p", "type": "STRING"},
    {"id": 1, "name": "k", "type": "INT NOT NULL"},
    {"id": 2, "name": "n", "type": "INT"},
    {"id": 3, "name": "s", "type": "STRING"},
]
LAYOUTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "scalable": ([], {}),
    "scalable, partitions": (["p"], {}),
    "queue": ([], {"bucket": "2", "bucket-key": "k"}),
    "queue, partitions": (["p"], {"bucket": "2", "bucket-key": "k"}),
    "single queue": ([], {"bucket": "1", "bucket-key": "k"}),
}
MINOR = {"compaction.min.file-num": "2", "compaction.max.file-num": "3"}


def rows(start: int, count: int = 6) -> Rows:
    """Rows numbered by `n`, over two partitions and three keys."""
    return [["ab"[n % 2], n % 3, n, f"text {n}" if n % 4 else None] for n in range(start, start + count)]


def compact(warehouse: Path, *, full: bool) -> None:
    """Compact with ours until nothing is left to do."""
    table = Ours.open(warehouse).table.with_options(MINOR)
    assert table.compact(full=full).tasks > 0
    assert table.compact(full=full).tasks == 0
    assert table.snapshot.commit_kind == "COMPACT"


def by_key(pairs: list[list[Any]]) -> dict[Any, list[int]]:
    """Numbers of the rows of each partition and key, in the order they are read."""
    found: dict[Any, list[int]] = defaultdict(list)
    for _, (p, k, n) in pairs:
        found[p, k].append(n)
    return found


def check_order(warehouse: Path, peer: PeerSession, layout: str) -> None:
    """In a queue rows of one key are read in the order in which they were written, by both."""
    if "queue" not in layout:
        return
    ours = Ours.open(warehouse).read_in_order(["p", "k", "n"])
    for found in (by_key([[0, row] for row in ours]), order_of(warehouse, peer)):
        assert {key: numbers for key, numbers in found.items() if numbers != sorted(numbers)} == {}


def order_of(warehouse: Path, peer: PeerSession) -> dict[Any, list[int]]:
    """What `by_key` says of the rows as the peer reads them."""
    return by_key(peer.call("buckets", warehouse=str(warehouse), table=NAME, columns=["p", "k", "n"]))


def check(warehouse: Path, peer: PeerSession, expected: Rows) -> None:
    """Both read these rows, with filters as well."""
    same(Ours.open(warehouse).read(), expected)
    same(peer.read(warehouse, NAME), expected)
    for condition, text, wanted in (
        ({"op": "equal", "column": "k", "values": [1]}, "k = 1", [r for r in expected if r[1] == 1]),
        (
            {"op": "greater_or_equal", "column": "n", "values": [20]},
            "n >= 20",
            [r for r in expected if r[2] >= 20],
        ),
        ({"op": "is_null", "column": "s"}, "s IS NULL", [r for r in expected if r[3] is None]),
        ({"op": "equal", "column": "p", "values": ["a"]}, "p = 'a'", [r for r in expected if r[0] == "a"]),
    ):
        same(Ours.open(warehouse).read(text), wanted)
        same(peer.read(warehouse, NAME, filter=condition), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("full", [False, True], ids=["minor", "full"])
def test_what_we_compacted_is_read_and_written_by_others(
    tmp_path: Path, peer: PeerSession, layout: str, full: bool
) -> None:
    ours = Ours(tmp_path, COLUMNS, partition_by=LAYOUTS[layout][0], options=LAYOUTS[layout][1])
    for start in range(0, 30, 6):
        ours.append(rows(start))
    compact(tmp_path, full=full)
    check(tmp_path, peer, rows(0, 30))
    check_order(tmp_path, peer, layout)
    peer.append(tmp_path, NAME, rows(30))
    ours.append(rows(36))
    check(tmp_path, peer, rows(0, 42))
    Ours.open(tmp_path).table.with_options(MINOR).compact(full=True)
    check(tmp_path, peer, rows(0, 42))
    peer.append(tmp_path, NAME, rows(42))
    check(tmp_path, peer, rows(0, 48))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_java_and_we_compact_in_turns(tmp_path: Path, java: PeerSession, layout: str) -> None:
    ours = Ours(tmp_path, COLUMNS, partition_by=LAYOUTS[layout][0], options=LAYOUTS[layout][1])
    written = 0
    for round_ in range(3):
        for _ in range(3):
            ours.append(rows(written))
            java.append(tmp_path, NAME, rows(written + 6))
            written += 12
        if round_ % 2:
            java.call("compact", warehouse=str(tmp_path), table=NAME)
        else:
            compact(tmp_path, full=round_ == 0)
        check(tmp_path, java, rows(0, written))
        check_order(tmp_path, java, layout)
    java.call("compact", warehouse=str(tmp_path), table=NAME)
    check(tmp_path, java, rows(0, written))
    check_order(tmp_path, java, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("full", [False, True], ids=["minor", "full"])
def test_we_compact_what_others_wrote(tmp_path: Path, peer: PeerSession, layout: str, full: bool) -> None:
    """Every file of pypaimon begins at the sequence number 1, so in a queue only their commits order them."""
    partition_by, options = LAYOUTS[layout]
    options = {**options, "write-only": "true"}  # else Java compacts as it writes
    table = {"fields": FIELDS, "partition_keys": partition_by, "options": options}
    peer.call("create_table", warehouse=str(tmp_path), table=NAME, **table)
    for start in range(0, 30, 6):
        peer.append(tmp_path, NAME, rows(start))
    ours = Ours.open(tmp_path)
    files = ours.files()
    check(tmp_path, peer, rows(0, 30))
    check_order(tmp_path, peer, layout)
    compact(tmp_path, full=full)
    assert ours.files() < files
    check(tmp_path, peer, rows(0, 30))
    check_order(tmp_path, peer, layout)
    ours.append(rows(30))
    check(tmp_path, peer, rows(0, 36))
    check_order(tmp_path, peer, layout)
    peer.append(tmp_path, NAME, rows(36))
    check(tmp_path, peer, rows(0, 42))


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
@pytest.mark.parametrize("layout", ["scalable", "scalable, partitions"])
def test_what_we_sorted(tmp_path: Path, peer: PeerSession, layout: str, strategy: str) -> None:
    ours = Ours(tmp_path, COLUMNS, partition_by=LAYOUTS[layout][0], options={"target-file-size": "8 kb"})
    for start in range(0, 600, 150):
        ours.append(rows(start, 150))
    peer.append(tmp_path, NAME, rows(600, 150))
    assert ours.table.sort_compact(["s", "k"], strategy).tasks > 0
    check(tmp_path, peer, rows(0, 750))
    peer.append(tmp_path, NAME, rows(750))
    ours.append(rows(756))
    check(tmp_path, peer, rows(0, 762))
    if peer.name == "java-0.9":
        peer.call("compact", warehouse=str(tmp_path), table=NAME)
        check(tmp_path, peer, rows(0, 762))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by_us", [True, False], ids=["ours", "theirs"])
def test_files_of_several_schemas(tmp_path: Path, peer: PeerSession, layout: str, by_us: bool) -> None:
    """Whoever wrote them: one file of today's schema takes their place."""
    options = {**LAYOUTS[layout][1], "write-only": "true"}
    ours = Ours(tmp_path, f"{COLUMNS}, gone INT", partition_by=LAYOUTS[layout][0], options=options)

    def append(data: Rows) -> None:
        ours.append(data) if by_us else peer.append(tmp_path, NAME, data)

    append([[*row, 1] for row in rows(0)])
    append([[*row, 2] for row in rows(6)])
    ours.table.alter().drop_column("gone").add_column("gone", "STRING").rename_column("n", "m").apply()
    append([[*row, "back"] for row in rows(12)])
    ours.table.alter().widen_column("m", "BIGINT").add_column("new", "DOUBLE").rename_column("m", "n").apply()
    append([[*row, "back", 0.5] for row in rows(18)])
    expected: Rows = [[*row, None, None] for row in rows(0, 12)]
    expected += [[*row, "back", None] for row in rows(12)]
    expected += [[*row, "back", 0.5] for row in rows(18)]
    check(tmp_path, peer, expected)
    compact(tmp_path, full=True)
    check(tmp_path, peer, expected)
    check_order(tmp_path, peer, layout)
    condition = {"op": "equal", "column": "gone", "values": ["back"]}
    same(peer.read(tmp_path, NAME, filter=condition), expected[12:])
    same(Ours.open(tmp_path).read("gone = 'back'"), expected[12:])


def test_rows_that_came_while_we_compacted(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, COLUMNS)
    for start in range(0, 18, 6):
        ours.append(rows(start))
    table = ours.table.with_options(MINOR)
    meant = plan_full(live_files(table.context, table.snapshot), table.schema, table.options)
    made = [
        rewrite(task, WriteContext(table.context.storage, table.schema), table.context.schemas.get)
        for task in meant
    ]
    peer.append(tmp_path, NAME, rows(18))
    table.commit(Compact(made))
    check(tmp_path, peer, rows(0, 24))
    peer.append(tmp_path, NAME, rows(24))
    check(tmp_path, peer, rows(0, 30))
