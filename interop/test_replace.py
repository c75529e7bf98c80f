"""What other engines see of a main that was replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch
from anabranch.errors import CommitConflictError
from interop import canonical
from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerError, PeerSession

FIX = f"{NAME}$branch_fix"
BEGUN: Rows = [[1, "a"], [2, "b"]]


def _parted(warehouse: Path) -> anabranch.Table:
    """A table with two rows in two snapshots and a tag, a branch of that with one more, and main with another."""
    ours = Ours(warehouse, "n INT, p STRING", options={"write-only": "true"})
    for row in BEGUN:
        ours.append([row])
    ours.table.create_tag("good")
    ours.table.create_branch("fix", "good")
    ours.table.branch("fix").append(ours.arrow([[10, "fix"]]))
    ours.append([[3, "main"]])
    return ours.table


def _rows(table: anabranch.Table) -> Rows:
    return canonical.rows_of(table.scan().to_arrow())


def test_as_a_commit_others_see_the_new_main(tmp_path: Path, peer: PeerSession) -> None:
    table = _parted(tmp_path)
    table.branch("fix").alter().add_column("w", "INT").apply()
    fix = table.branch("fix")
    fix.append(canonical.table_of([[11, "fix", 5]], fix.scan().to_arrow().schema))
    expected = [[1, "a", None], [2, "b", None], [10, "fix", None], [11, "fix", 5]]
    table.replace_main_branch("fix", mode="commit")
    same(peer.read(tmp_path, NAME), expected)
    same(peer.read(tmp_path, NAME, options={"scan.snapshot-id": "3"}), [*BEGUN, [3, "main"]])
    peer.append(tmp_path, NAME, [[12, "theirs", 6]])
    same(_rows(table), [*expected, [12, "theirs", 6]])


def test_after_a_replacement_by_pointer_others_see_the_old_main_and_the_branch(
    tmp_path: Path, peer: PeerSession
) -> None:
    table = _parted(tmp_path)
    table.replace_main_branch("fix")
    same(peer.read(tmp_path, NAME), [*BEGUN, [3, "main"]])
    same(peer.read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    same(peer.read(tmp_path, FIX, options={"scan.snapshot-id": "2"}), BEGUN)
    with pytest.raises(PeerError):  # it is where main was before: history is not copied
        peer.read(tmp_path, FIX, options={"scan.snapshot-id": "1"})
    peer.append(tmp_path, FIX, [[11, "theirs"]])
    same(_rows(table), [*BEGUN, [10, "fix"], [11, "theirs"]])


def test_what_others_write_to_the_old_main_is_not_in_the_new_one(
    tmp_path: Path, peer: PeerSession, caplog: pytest.LogCaptureFixture
) -> None:
    table = _parted(tmp_path)
    table.replace_main_branch("fix")
    peer.append(tmp_path, NAME, [[4, "lost?"]])
    late = anabranch.connect(str(tmp_path)).table(NAME)
    assert "FOREIGN_AFTER_SEAL" in caplog.text
    same(_rows(late), [*BEGUN, [10, "fix"]])
    same(_rows(late.branch("main@1")), [*BEGUN, [3, "main"], [4, "lost?"]])
    kept = late.with_options({"branch.replaced-main.time-retained": "1 ms"}).maintain().mains.kept
    assert [name for name, _ in kept] == ["main@1"]
    assert "another engine" in kept[0][1]


def test_after_the_drop_others_read_the_branch_by_its_name(tmp_path: Path, peer: PeerSession) -> None:
    table = _parted(tmp_path)
    table.replace_main_branch("fix")
    now = table.with_options({"branch.replaced-main.time-retained": "0 ms"})
    assert now.maintain().mains.dropped == ("main@1",)
    now.remove_orphan_files(older_than=4_000_000_000_000)  # moves them away
    now.remove_orphan_files(older_than=4_000_000_000_000)  # purges them
    same(peer.read(tmp_path, FIX), [*BEGUN, [10, "fix"]])
    with pytest.raises(PeerError):  # and not: no rows
        peer.read(tmp_path, NAME)


def test_main_is_not_replaced_by_pointer_where_others_write(tmp_path: Path, peer: PeerSession) -> None:
    table = _parted(tmp_path)
    peer.append(tmp_path, NAME, [[4, "theirs"]])
    with pytest.raises(CommitConflictError, match="another engine committed snapshot 4"):
        table.replace_main_branch("fix")
    table.replace_main_branch("fix", mode="commit")
    same(peer.read(tmp_path, NAME), [*BEGUN, [10, "fix"]])
