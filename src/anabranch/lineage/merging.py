"""The lineage of a merge: the commits of the branch that it takes, and their inputs.

The entry names the range of the branch's commits, which is enough while the branch is known. It also
holds the inputs of these commits, joined, so that `coverage`, `duplicates` and readers of main's snapshots have them
when the branch is gone. It follows from the branch and the number of the merge, so a merge repeated after a failure
writes the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.errors import AnabranchError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.kernel.log.archive import Following
from anabranch.kernel.log.commits import expired
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.joining import joined
from anabranch.lineage.model import EMBEDDED, LINEAGE_PROPERTY, Input, LineageEntry, TableInput, entry_or_none
from anabranch.streaming.offsets import Position

_NAMED_AT_MOST = 5


def merged_origin(
    branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot], /
) -> Mapping[str, str]:
    """Return properties of the snapshot that merges a branch's commits into main. See `kernel.provenance.origin`."""
    return _properties(f"merge-branch {branch.branch}", branch, taken, head, commits)


def replaced_origin(
    branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot], /
) -> Mapping[str, str]:
    """Return the same for the commit that replaces main's rows with those of the branch."""
    return _properties(f"replace-main-branch {branch.branch}", branch, taken, head, commits)


def _properties(
    job: str, branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot]
) -> Mapping[str, str]:
    try:
        # Where the first of them is there still, and so it was when it was read, none has expired.
        is_whole = bool(commits) and commits[0].id == taken.id + 1
        older = _Expired((), None) if is_whole else _expired(branch, taken.id, head.id)
    except AnabranchError as error:
        older = _Expired((), f"what expired of '{branch.title}' cannot be read: {error.message}")
    inputs, problems = _of_commits([*older.commits, *commits])
    if older.problem is not None:
        problems.append(older.problem)
    title, table, uuid = branch.title, branch.table_uuid, branch.branch_uuid
    own = TableInput(title, table, uuid, Position(taken.id, taken.stamp), Position(head.id, head.stamp))
    entry = LineageEntry(job, None, None, EMBEDDED, inputs, tuple(problems), own)
    return {LINEAGE_PROPERTY: entry.to_json()}


class _Expired(NamedTuple):
    """Commits that are merged although their snapshots are gone."""

    commits: Sequence[PastSnapshot]
    """Commits found in the table's archive, oldest first."""
    problem: str | None


def _expired(branch: TableContext, taken: int, head: int) -> _Expired:
    """Return archived commits after `taken` that expired before they were merged."""
    left = next((s for i in range(taken + 1, head + 1) if (s := branch.snapshots.find(i)) is not None), None)
    if left is None or left.id == taken + 1:
        return _Expired((), None)
    found = [*expired(branch, Following.of(left), above=taken)][::-1]
    missing = left.id - taken - 1 - len(found)
    said = f"{missing} snapshots of '{branch.title}' had expired before they were merged, and are not in its archive"
    return _Expired(found, said if missing > 0 else None)


def _of_commits(commits: Iterable[Snapshot | PastSnapshot]) -> tuple[tuple[Input, ...], list[str]]:
    """Return the inputs of commits, and the problems they record."""
    inputs: list[Input] = []
    problems: dict[str, None] = {}
    silent: list[int] = []
    for commit in commits:
        if commit.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
            continue
        entry = entry_or_none(commit)
        if entry is None or entry.is_silent:
            silent.append(commit.id)
        else:
            inputs.extend(entry.inputs)
            problems |= dict.fromkeys(entry.problems)
    if silent:
        listed = ", ".join(map(str, silent[:_NAMED_AT_MOST]))
        more = "" if len(silent) <= _NAMED_AT_MOST else f" and {len(silent) - _NAMED_AT_MOST} more"
        problems[f"snapshots {listed}{more} of the branch do not say where their rows come from"] = None
    return _newest_states(joined(inputs)), list(problems)


def _newest_states(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Keep only the newest state read of each table: others only need to know how far it was read."""
    found: dict[object, Input] = {}
    for read in inputs:
        if not isinstance(read, TableInput) or not read.is_state:
            found[len(found), "other"] = read
            continue
        known = found.get(read.branch_uuid)
        if not isinstance(known, TableInput) or known.through < read.through:
            found[read.branch_uuid] = read
    return tuple(found.values())
