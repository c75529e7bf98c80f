"""Tags and savepoints of ours, as others see them; and their expiry, which must leave what these hold."""

from __future__ import annotations

from pathlib import Path

from interop.ours import NAME, Ours, Rows, same
from interop.session import PeerSession

DAYS: list[Rows] = [[[n, "a"]] for n in range(1, 7)]
"""What the table holds after each of six commits, the later ones taking the place of the earlier."""
RETAIN_ONE = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "snapshot.time-retained": "1 ms",
    "write-only": "false",
}


def _six_days(tmp_path: Path, **options: str) -> Ours:
    ours = Ours(tmp_path, "n INT, p STRING", options={"write-only": "true", **options})
    for rows in DAYS:
        ours.table.overwrite(ours.arrow(rows))
    return ours


def test_others_read_what_is_kept(tmp_path: Path, peer: PeerSession) -> None:
    table = _six_days(tmp_path, **{"tag.automatic-creation": "process-time"}).table
    table.create_tag("good", 2)
    table.create_tag("for a while", 3, retained="365 d")
    table.create_savepoint(4)
    assert len(table.tags(include_internal=True)) == 4
    automatic = next(name for name in table.tags() if name[0] == "2")
    tags = {"good": 1, "for a while": 2, "anabranch-savepoint-1": 3, automatic: 0}
    for number in (1, 2, 3, 4):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    for name, day in tags.items():
        same(peer.read(tmp_path, NAME, options={"scan.tag-name": name}), DAYS[day])
    same(peer.read(tmp_path, NAME), DAYS[-1])
    peer.append(tmp_path, NAME, [[9, "z"]])
    same(Ours.open(tmp_path).read(), [*DAYS[-1], [9, "z"]])


def test_java_expires_and_savepoints_are_read(tmp_path: Path, java: PeerSession) -> None:
    table = _six_days(tmp_path, **{"tag.automatic-creation": "process-time"}).table
    for snapshot in (1, 3, 4):
        table.create_savepoint(snapshot)
    table.delete_savepoint(1)
    table.create_tag("good", 2)
    alter = table.alter()
    for key, value in RETAIN_ONE.items():
        alter = alter.set_option(key, value)
    alter.apply()
    for number in range(3):
        java.append(tmp_path, NAME, [[10 + number, "z"]])
    table = Ours.open(tmp_path).table
    assert min(s.id for s in table.snapshots()) > 6
    for version, day in {"savepoint.2": 2, "savepoint.3": 3, "good": 1}.items():
        assert table.at(version).scan().to_arrow()["n"].to_pylist() == [DAYS[day][0][0]]
    assert table.at(timestamp=table.savepoints()[0].saved_time or 0).moment is not None
    files = {info.path for info in table.context.storage.list("bucket-0")}
    assert len(files) >= 3 + 1 + 3, "what is held, the newest of ours, and theirs"
