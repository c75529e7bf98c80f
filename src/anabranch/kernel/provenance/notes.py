"""Notes of a merge for the next one: what it found in the past of both sides, so that only what came since is read.

A merge must know what main and the branch did since the fork, however often the branch was merged before: see `sides`.
``NOTES-<k>`` in the branch's folder keeps it, as merge k found it: the snapshots of both sides, the changes of each of
main's and the names of the files that it added, and the births of the branch's files. As long as nothing has expired, the
result of a merge is the same with and without notes:

* A snapshot's stamp is made of its commit and the names of its manifest lists, and neither is ever stored anew. So what
  was derived from a snapshot is true for whatever has its number and stamp.
* Notes are used for a history only if the newest snapshot noted is found in it, going down from its head, by number and
  stamp (`past_since`). What is noted below was then the past that this snapshot was built on. A rollback that removes
  it, another main or another branch of the name leads to another stamp, and everything is read.
* Births are found by following a branch's snapshots upwards from the fork. They are noted at the newest one noted, and
  followed on from there.

Of snapshots that expired since, notes know exactly what the records of an expiry (`carry`) only sum up, and what another
engine's expiry left no record of. So with notes a merge may find no conflict where without them it is careful: a rollback
whose moment has expired counts as an overwrite, and a gap is in doubt (`HISTORY_GAP`). Neither merges without being asked
what the other would not.

Notes are no records: where they are missing, damaged or of a newer release, everything is read. They are written once a
merge is done, and only where the next one has enough of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.records.snapshot_columns import from_columns, to_columns
from anabranch.format.text.packed import pack_json, unpack_json
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.log.merge_log import NOTES_PREFIX
from anabranch.kernel.log.properties import MERGE_USER
from anabranch.kernel.provenance.births import Birth, Births
from anabranch.kernel.provenance.classify import (
    DELTA_COLUMNS,
    MarksKey,
    SnapshotMarks,
    marks_key,
    marks_keys,
    marks_of,
)
from anabranch.kernel.provenance.past import Past

WORTH: Final = 32
"""Number of snapshots that no notes have, from which on new ones are written."""
_VERSION: Final = 3
"""Earlier ones had snapshots one by one: reading thousands was most of what a merge took. They are not read."""


@dataclass(frozen=True)
class Notes:
    """What a merge found; empty where there are none."""

    main: Sequence[Snapshot] = ()
    """Main's snapshots after the fork, oldest first, without gap."""
    marks: Mapping[MarksKey, SnapshotMarks] = field(default_factory=dict)
    """What they changed; without merges of the branch itself."""
    added: Mapping[MarksKey, tuple[str, ...]] = field(default_factory=dict)
    """Names of the files that they added; of the same snapshots."""
    own: Sequence[Snapshot] = ()
    """The branch's snapshots after the fork."""
    born: Mapping[str, Birth] = field(default_factory=dict)
    """Births of the branch's files up to the last of them."""

    @property
    def of_main(self) -> Past | None:
        """Main's noted past, for `past_since`."""
        return Past(self.main, reaches_base=True) if self.main else None

    @property
    def of_branch(self) -> Past | None:
        """The branch's noted past, for `past_since`."""
        return Past(self.own, reaches_base=True) if self.own else None

    def count_in(self, past: Past) -> int:
        """Return how many of the branch's snapshots in `past`, from its beginning, are the noted ones; all or 0."""
        count = len(self.own)
        if not count or not past.reaches_base or len(past.snapshots) < count:
            return 0
        mine, last = past.snapshots[count - 1], self.own[-1]
        return count if (mine.id, mine.stamp) == (last.id, last.stamp) else 0


def find_notes(branch: TableContext, numbers: Sequence[int]) -> Notes:
    """Return the newest notes of a branch's merges that can be read; empty if there are none.

    Args:
        numbers: of the merges that have left notes.
    """
    for number in sorted(numbers, reverse=True):
        path = _path(branch, number)
        try:
            return _from_bytes(branch, branch.storage.get(path), path)
        except AnabranchError:
            continue
    return Notes()


def made_notes(
    branch: TableContext, before: Notes, *, main: TableContext, past: Past, own: Past, born: Births
) -> Notes | None:
    """Return the notes of a merge, if the next one has enough of them; else None.

    Args:
        before: the notes that it used.
        main: the main branch.
        past: main's snapshots since the fork, up to those that the merge met.
        own: the branch's snapshots since the fork, up to the one that was merged.
        born: births of the branch's files up to that one.

    Raises `AnabranchError`: they could not be made, and the next merge reads everything.
    """
    fresh = len(past.snapshots) - len(before.main) + len(own.snapshots) - len(before.own)
    if not (past.reaches_base and own.reaches_base) or fresh < WORTH:
        return None
    user = f"{MERGE_USER}{branch.branch_uuid}"
    others = [snapshot for snapshot in past.snapshots if snapshot.commit_user != user]
    unknown = [snapshot for snapshot in others if marks_key(snapshot) not in before.added]
    marks, added = dict(before.marks), dict(before.added)
    deltas = main.manifests.deltas(unknown, only=DELTA_COLUMNS)
    for snapshot, delta in zip(unknown, deltas, strict=True):
        marks[marks_key(snapshot)] = marks_of(main, snapshot, delta)
        added[marks_key(snapshot)] = tuple(delta.adds().df["file_name"])
    return Notes(past.snapshots, marks, added, own.snapshots, born.known)


def keep_notes(branch: TableContext, number: int, notes: Notes, *, replaces: Sequence[int] = ()) -> None:
    """Write the notes of a merge that is done.

    Args:
        branch: the branch.
        number: of the merge.
        notes: its notes.
        replaces: numbers of merges whose notes are not needed any more.

    Raises `StorageError`: they could not be written, and the next merge reads everything.
    """
    branch.storage.put(_path(branch, number), _to_bytes(branch, notes), durable=False)
    branch.storage.delete_many([_path(branch, old) for old in replaces if old != number])


def _path(branch: TableContext, number: int) -> str:
    return branch.layout.branch_file_path(f"{NOTES_PREFIX}{number}")


def _to_bytes(branch: TableContext, notes: Notes) -> bytes:
    fork = fork_of(branch).snapshot
    return pack_json(
        {
            "version": _VERSION,
            "fork": fork.to_dict(),
            "main": to_columns(notes.main),
            "changes": [
                notes.marks[key].to_json() if (key := marks_key(s)) in notes.added else None
                for s in notes.main
            ],
            "added": ["/".join(notes.added.get(marks_key(s), ())) for s in notes.main],
            "own": to_columns(notes.own),
            "births": [
                [*notes.born],
                [birth.first for birth in notes.born.values()],
                [birth.last for birth in notes.born.values()],
            ],
        }
    )


def _from_bytes(branch: TableContext, data: bytes, path: str) -> Notes:
    """Raises `CorruptTableError`; `UnsupportedFeatureError` if they are newer."""
    try:
        content = unpack_json(data, path=path)
        if content.version(_VERSION) != _VERSION:
            raise CorruptTableError("is of an earlier release", path=path)
        if SnapshotRef.from_dict(content.values["fork"], where=path) != fork_of(branch).snapshot:
            raise CorruptTableError("is of another branch", path=path)
        main = from_columns(content.values["main"], path=path)
        own = from_columns(content.values["own"], path=path)
        marks, added = {}, {}
        alike: dict[str, SnapshotMarks] = {}  # most commits of a job change the same
        changes, names = content.values["changes"], content.values["added"]
        for key, made, files in zip(marks_keys(main), changes, names, strict=True):
            if made is None:
                continue
            added[key] = _names(files)
            if not isinstance(made, str):
                marks[key] = SnapshotMarks.from_json(key[0], made)
            else:
                if made not in alike:
                    alike[made] = SnapshotMarks.from_json(key[0], made)
                marks[key] = alike[made]
        born = _births(*content.values["births"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError("cannot be read as notes of a merge", path=path) from error
    return Notes(main, marks, added, own, born)


def _names(files: str) -> tuple[str, ...]:
    return tuple(str.split(files, "/")) if files else ()


def _births(names: list[str], firsts: list[int], lasts: list[int]) -> dict[str, Birth]:
    if not set(map(type, names)) <= {str} or not set(map(type, chain(firsts, lasts))) <= {int}:
        raise TypeError
    return dict(zip(names, map(Birth, firsts, lasts), strict=True))
