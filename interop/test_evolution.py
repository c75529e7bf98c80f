"""Schema changes by either side, with files of every schema alive at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.actions.append import Append
from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerError, PeerSession


def test_add_rename_drop_widen(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "id INT, name STRING, small INT, gone STRING")
    ours.append([[1, "one", 10, "x"], [2, None, None, None]])
    ours.table.alter().add_column("added", "DOUBLE").apply()
    ours.append([[3, "three", 30, "y", 0.5]])
    ours.table.alter().rename_column("name", "title").drop_column("gone").apply()
    ours.append([[4, "four", 40, 1.5]])
    ours.table.alter().widen_column("small", "BIGINT").apply()
    ours.append([[5, "five", 2**40, None]])
    expected: Rows = [
        [1, "one", 10, None],
        [2, None, None, None],
        [3, "three", 30, 0.5],
        [4, "four", 40, 1.5],
        [5, "five", 2**40, None],
    ]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    peer.append(tmp_path, NAME, [[6, "six", -1, -1.0]])
    expected.append([6, "six", -1, -1.0])
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)


def test_filters_across_schemas(tmp_path: Path, peer: PeerSession) -> None:
    """Statistics of old files are of the old columns: a filter must not take one column's for another's."""
    ours = Ours(tmp_path, "a INT, b INT")
    ours.append([[1, 100], [2, 200]])
    ours.table.alter().rename_column("a", "c").apply()
    ours.append([[3, 300]])
    ours.table.alter().rename_column("b", "a").add_column("b", "INT").apply()
    ours.append([[4, 400, 4000]])
    everything: Rows = [[1, 100, None], [2, 200, None], [3, 300, None], [4, 400, 4000]]
    same(ours.read(), everything)
    for column, at in (("c", 0), ("a", 1), ("b", 2)):
        for row in everything:
            if row[at] is None:
                continue
            picked = [other for other in everything if other[at] == row[at]]
            same(ours.read(f"{column} = {row[at]}"), picked)
            condition = {"op": "equal", "column": column, "values": [row[at]]}
            same(peer.read(tmp_path, NAME, filter=condition), picked)
    nulls = [row for row in everything if row[2] is None]
    same(ours.read("b IS NULL"), nulls)
    same(peer.read(tmp_path, NAME, filter={"op": "is_null", "column": "b"}), nulls)


def test_a_dropped_name_that_returns(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "id INT, v STRING")
    ours.append([[1, "old"]])
    ours.table.alter().drop_column("v").apply()
    ours.table.alter().add_column("v", "STRING").apply()
    ours.append([[2, "new"]])
    same(ours.read(), [[1, None], [2, "new"]])
    same(peer.read(tmp_path, NAME), [[1, None], [2, "new"]])


def test_a_column_added_by_the_peer(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "id INT, p STRING", partition_by=["p"])
    ours.append([[1, "x"]])
    peer.call("add_column", warehouse=str(tmp_path), table=NAME, name="extra", type="BIGINT")
    peer.append(tmp_path, NAME, [[2, "x", 20]])
    ours.append([[3, "y", 30]])
    expected: Rows = [[1, "x", None], [2, "x", 20], [3, "y", 30]]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    same(ours.read("extra = 20"), [[2, "x", 20]])


def test_older_snapshots_keep_their_schema(tmp_path: Path, peer: PeerSession) -> None:
    ours = Ours(tmp_path, "id INT, v STRING")
    ours.append([[1, "a"]])
    ours.table.alter().rename_column("v", "w").add_column("x", "INT").apply()
    ours.append([[2, "b", 2]])
    answer = peer.call("read", warehouse=str(tmp_path), table=NAME, options={"scan.snapshot-id": "1"})
    assert (answer["columns"], answer["rows"]) == (["id", "v"], [[1, "a"]])
    then = ours.table.at(1).scan().to_arrow()
    assert (then.schema.names, then.num_rows) == (["id", "v"], 1)


# Java 0.9 fails by itself to filter files of TINYINT and SMALLINT columns that were widened.
WIDENED: dict[str, tuple[list[Any], Any]] = {
    "INT to BIGINT": ([-(2**31), 0, 5], 2**40),
    "INT to DOUBLE": ([-(2**31), 0, 5], 0.5),
    "FLOAT to DOUBLE": ([-1.5, 0.25], 1e300),
    "DECIMAL(4, 2) to DECIMAL(8, 4)": (["-99.99", "1.50"], "1.2345"),
    "VARCHAR(3) to STRING": (["", "abc"], "abcdef" * 9),
}


@pytest.mark.parametrize("name", WIDENED)
def test_widened_columns_are_read_and_filtered(tmp_path: Path, peer: PeerSession, name: str) -> None:
    old, _, new = name.partition(" to ")
    before, after = WIDENED[name]
    ours = Ours(tmp_path, f"id INT, v {old}")
    ours.append([[at, value] for at, value in enumerate(before)])
    ours.table.alter().widen_column("v", new).apply()
    ours.append([[10, after]])
    everything = ours.read()
    assert len(everything) == len(before) + 1
    same(peer.read(tmp_path, NAME), everything)
    for at, value in everything:
        condition = {"op": "equal", "column": "v", "values": [value]}
        same(peer.read(tmp_path, NAME, filter=condition), [[at, value]])
    peer.append(tmp_path, NAME, [[20, after]])
    same(ours.read(), [*everything, [20, after]])
    same(peer.read(tmp_path, NAME), [*everything, [20, after]])


def test_rows_that_were_written_before_a_change_and_committed_after_it(
    tmp_path: Path, peer: PeerSession
) -> None:
    ours = Ours(tmp_path, "k INT NOT NULL, v STRING, n INT", options={"bucket": "2", "bucket-key": "k"})
    writer = ours.table.writer()
    late = writer.write(ours.arrow([[k, "old", k] for k in range(10)]).to_batches())
    change = ours.table.alter().rename_column("k", "key").widen_column("n", "BIGINT")
    change.drop_column("v").add_column("v", "STRING").drop_not_null("key").apply()
    ours.append([[k, 2**40, "new"] for k in range(10)])
    ours.table.commit(Append(late))
    expected: Rows = [[k, 2**40, "new"] for k in range(10)] + [[k, k, None] for k in range(10)]
    same(ours.read(), expected)
    same(peer.read(tmp_path, NAME), expected)
    for key in (0, 5, 9):
        picked = [row for row in expected if row[0] == key]
        same(ours.read(f"key = {key}"), picked)
        same(peer.read(tmp_path, NAME, filter={"op": "equal", "column": "key", "values": [key]}), picked)
    same(
        peer.read(tmp_path, NAME, filter={"op": "is_null", "column": "v"}),
        [[k, k, None] for k in range(10)],
    )


OLD = {"x": 1, "y": "a"}
NESTED: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "add": (lambda a: a.add_column("r.z", "INT", first=True), OLD | {"z": None}, {"x": 5, "y": "b", "z": 7}),
    "drop": (lambda a: a.drop_column("r.x"), {"y": "a"}, {"y": "b"}),
    "rename": (lambda a: a.rename_column("r.x", "q"), {"q": 1, "y": "a"}, {"q": 5, "y": "b"}),
    "again": (
        lambda a: a.drop_column("r.x").add_column("r.x", "INT"),
        {"x": None, "y": "a"},
        {"x": 5, "y": "b"},
    ),
    "move": (lambda a: a.move_column("r.y", first=True), OLD, {"x": 5, "y": "b"}),
    "widen": (lambda a: a.widen_column("r.x", "BIGINT"), OLD, {"x": 2**40, "y": "b"}),
    "nulls": (lambda a: a.drop_not_null("r.y"), OLD, {"x": 5, "y": None}),
}


@pytest.mark.parametrize("name", NESTED)
def test_fields_inside_of_rows(tmp_path: Path, peer: PeerSession, name: str) -> None:
    """Java 0.9 refuses files of another form inside; compacted into today's form it reads them."""
    change, then, now = NESTED[name]
    ours = Ours(tmp_path, "id INT, r ROW<x INT, y STRING NOT NULL>")
    ours.append([[1, OLD]])
    change(ours.table.alter()).apply()
    ours.append([[2, now]])
    expected: Rows = [[1, then], [2, now]]
    same(ours.read(), expected)
    if peer.name == "java-0.9":
        with pytest.raises(PeerError, match="Only support column type evolution in atomic data type"):
            peer.read(tmp_path, NAME)
        Ours.open(tmp_path).table.compact(full=True)
    same(peer.read(tmp_path, NAME), expected)
    peer.append(tmp_path, NAME, [[3, now]])
    same(ours.read(), [*expected, [3, now]])
    same(peer.read(tmp_path, NAME), [*expected, [3, now]])
