"""Schema changes by either side, with files of every schema alive at once."""

from __future__ import annotations

from pathlib import Path

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession


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
