"""Branches of ours, as others read, write and alter them, and as their expiry leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch
from interop import canonical
from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerError, PeerSession

FIX = f"{NAME}$branch_fix"
BEGUN: Rows = [[1, "a"], [2, "b"]]
RETAIN_ONE = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "snapshot.time-retained": "1 ms",
    "write-only": "false",
}


def _branched(warehouse: Path) -> anabranch.Table:
    """A table with two rows and a tag, a branch of that with one more, and main with another."""
    ours = Ours(warehouse, "n INT, p STRING", options={"write-only": "true"})
    for row in BEGUN:
        ours.append([row])
    ours.table.create_tag("good")
    ours.table.create_branch("fix", "good")
    fix = ours.table.branch("fix")
    fix.append(ours.arrow([[10, "fix"]]))
    ours.append([[3, "main"]])
    return ours.table


def _read(warehouse: Path, name: str, version: str | None = None) -> Rows:
    table = anabranch.connect(str(warehouse)).table(name)
    return canonical.rows_of((table if version is None else table.at(version)).scan().to_arrow())


def test_others_read_and_write_a_branch(tmp_path: Path, peer: PeerSession) -> None:
    _branched(tmp_path).branch("fix").create_tag("own")
    same(peer.read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    same(peer.read(tmp_path, FIX, options={"scan.tag-name": "good"}), BEGUN)
    if peer.name == "java-0.9":
        # That release looks for the tags of every branch in main's folder.
        with pytest.raises(PeerError, match="Tag 'own' doesn't exist"):
            peer.read(tmp_path, FIX, options={"scan.tag-name": "own"})
    else:
        same(peer.read(tmp_path, FIX, options={"scan.tag-name": "own"}), [*BEGUN, [10, "fix"]])
    same(peer.read(tmp_path, NAME), [*BEGUN, [3, "main"]])
    peer.append(tmp_path, FIX, [[11, "theirs"]])
    same(_read(tmp_path, FIX), [*BEGUN, [10, "fix"], [11, "theirs"]])
    same(_read(tmp_path, NAME), [*BEGUN, [3, "main"]])
    fix = anabranch.connect(str(tmp_path)).table(FIX)
    fix.append(canonical.table_of([[12, "ours"]], fix.scan().to_arrow().schema))
    same(peer.read(tmp_path, FIX), [*BEGUN, [10, "fix"], [11, "theirs"], [12, "ours"]])


def test_others_write_to_a_branch_first(tmp_path: Path, peer: PeerSession) -> None:
    """Its newest snapshot is then still the one of main."""
    table = _branched(tmp_path)
    table.create_branch("new", "good")
    peer.append(tmp_path, f"{NAME}$branch_new", [[11, "theirs"]])
    same(_read(tmp_path, f"{NAME}$branch_new"), [*BEGUN, [11, "theirs"]])
    new = table.branch("new")
    new.append(canonical.table_of([[12, "ours"]], new.scan().to_arrow().schema))
    same(peer.read(tmp_path, f"{NAME}$branch_new"), [*BEGUN, [11, "theirs"], [12, "ours"]])


def test_columns_of_others_are_numbered_in_the_block_of_the_branch(tmp_path: Path, peer: PeerSession) -> None:
    _branched(tmp_path)
    peer.call("add_column", warehouse=str(tmp_path), table=FIX, name="x", type="INT")
    peer.call("add_column", warehouse=str(tmp_path), table=NAME, name="x", type="STRING")
    lake = anabranch.connect(str(tmp_path))
    assert lake.table(FIX).schema.field("x").id == 4096
    assert lake.table(NAME).schema.field("x").id == 2
    assert lake.table(FIX).alter().add_column("y", "INT").apply().field("y").id == 4097
    peer.append(tmp_path, FIX, [[11, "theirs", 5, 6]])
    same(
        _read(tmp_path, FIX),
        [[1, "a", None, None], [2, "b", None, None], [10, "fix", None, None], [11, "theirs", 5, 6]],
    )
    same(peer.read(tmp_path, FIX), _read(tmp_path, FIX))
    same(peer.read(tmp_path, NAME), [[1, "a", None], [2, "b", None], [3, "main", None]])


def test_java_expires_main_and_the_branch(tmp_path: Path, java: PeerSession) -> None:
    """Each deletes what both began with, and neither what the other still shows."""
    table = _branched(tmp_path)
    fix = table.branch("fix")
    for view in (table, fix):
        view.delete_tag("good")
        changes: Any = view.alter()
        for key, value in RETAIN_ONE.items():
            changes = changes.set_option(key, value)
        changes.apply()
    table.overwrite(canonical.table_of([[4, "new"]], table.scan().to_arrow().schema))
    for n in range(3):
        java.append(tmp_path, NAME, [[5 + n, "java"]])
    assert len([*Ours.open(tmp_path).table.snapshots()]) == 1
    same(_read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    same(java.read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    head = Ours.open(tmp_path).table.snapshot
    assert head is not None
    table.create_branch("more", snapshot=head.id)
    more = table.branch("more")
    more.delete_tag("more")
    more.overwrite(canonical.table_of([[20, "more"]], more.scan().to_arrow().schema))
    for n in range(3):
        java.append(tmp_path, f"{NAME}$branch_more", [[21 + n, "java"]])
    assert len([*table.branch("more").snapshots()]) == 1
    same(_read(tmp_path, NAME), [[4, "new"], *([5 + n, "java"] for n in range(3))])
    same(_read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    assert table.maintain().branches.pins.restored == ()
