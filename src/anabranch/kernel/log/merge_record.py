"""The records of a branch's merges: the intent of each, put before it starts, and its outcome.

``MERGE-<k>`` in the branch's folder claims the number k and fixes what is merged; ``MERGE-<k>.done`` says how it
ended. Both are written once. One without the other is a merge under way, or one whose process died: see `merge`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

from anabranch.errors import InvalidInputError
from anabranch.format.records.layout import numbered_id
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.record import JsonFile, JsonRecord, Stored
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.log.parallel import OnUnread, each, tried

_FILE: Final = re.compile(r"MERGE-([1-9][0-9]{0,17})(\.done)?")

NOTES_PREFIX: Final = "NOTES-"
"""File name prefix of what a merge has found for later ones."""


class Choice(StrEnum):
    """The side whose rows a partition keeps where both changed it."""

    OURS = "ours"
    """Main's."""
    THEIRS = "theirs"
    """The branch's."""


@dataclass(frozen=True, slots=True)
class MergeRequest(JsonRecord):
    """Conflict choices that a person makes beforehand."""

    everywhere: Choice | None = None
    """Default choice, for partitions without their own."""
    partitions: Mapping[str, Choice] = field(default_factory=dict)
    """By partition, as `MergeConflict.partition` names it."""
    allow_source_overlap: bool = False
    """Whether to allow merging events that main already took from the same source."""

    def of(self, partition: str) -> Choice | None:
        return self.partitions.get(partition, self.everywhere)


_EVERYWHERE: Final = "*"


def wishes_of(resolve: str | Mapping[str, str] | None, *, allow_source_overlap: bool = False) -> MergeRequest:
    """Parse a person's choices: one for all partitions, or one by partition with ``*`` for all others.

    Raises `InvalidInputError` for another choice than ``ours`` and ``theirs``.
    """
    given = {} if resolve is None else {_EVERYWHERE: resolve} if isinstance(resolve, str) else dict(resolve)
    unknown = next((choice for choice in given.values() if choice not in set(Choice)), None)
    if unknown is not None:
        raise InvalidInputError(
            f"a conflict cannot be resolved as '{unknown}'",
            hint="write 'ours' for main's rows, 'theirs' for the branch's.",
        )
    choices = {partition: Choice(choice) for partition, choice in given.items()}
    everywhere = choices.pop(_EVERYWHERE, None)
    return MergeRequest(everywhere, choices, allow_source_overlap)


@dataclass(frozen=True, slots=True)
class MergeRecord(JsonFile):
    """Intent of a merge."""

    number: Annotated[int, Stored(key="merge", minimum=1)]
    """k: the number of the merge within its branch, from 1."""
    head: Snapshot
    """The branch is merged up to this snapshot of it."""
    schema_id: Annotated[int, Stored(minimum=0)]
    """The branch's newest schema, which is merged; that of `head` may be older."""
    main: SnapshotRef
    """The newest snapshot of main before the merge; the merge's own comes after it."""
    wishes: MergeRequest
    created_millis: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class MergeEnd(JsonFile):
    """Outcome of a merge. All of it has to be there: what is missing would be taken for abandoned, or for appended."""

    number: Annotated[int, Stored(key="merge", minimum=1)]
    snapshot: Annotated[SnapshotRef | None, Stored(always=True)]
    """The snapshot of main that the merge made; None if it was abandoned, and nothing was merged."""
    replaced: frozenset[bytes]
    """Partition rows whose files were replaced by the branch's; none also where that is not known any more."""
    theirs: frozenset[bytes]
    """Those of them that a person chose to take from the branch, which from then on counts as knowing main there."""

    @classmethod
    def abandoned(cls, number: int) -> MergeEnd:
        """Return the end of a merge that merged nothing."""
        return cls(number, None, frozenset(), frozenset())

    @classmethod
    def expired(cls, number: int, snapshot: SnapshotRef) -> MergeEnd:
        """Return the end of a merge whose snapshot has expired.

        It said which partitions were replaced. Without that later merges refuse what may depend on it; they lose nothing.
        """
        return cls(number, snapshot, frozenset(), frozenset())


@dataclass(frozen=True)
class MergeLog:
    """All merges of a branch that were begun."""

    records: Mapping[int, MergeRecord] = field(default_factory=dict)
    """By number, ascending."""
    ends: Mapping[int, MergeEnd] = field(default_factory=dict)
    noted: tuple[int, ...] = ()
    """Numbers of the merges that have left notes for later ones: see `anabranch.kernel.provenance.notes`."""

    @property
    def under_way(self) -> list[MergeRecord]:
        """Merges that have not ended, or whose end is not recorded; oldest first."""
        return [record for number, record in self.records.items() if number not in self.ends]

    @property
    def next_number(self) -> int:
        return max(self.records, default=0) + 1


def merge_log(branch: TableContext, unread: OnUnread | None = None) -> MergeLog:
    """Read the records of a branch's merges.

    Args:
        branch: the branch.
        unread: told of damaged ones, which are left out. Without it they raise `CorruptTableError`.
    """
    infos = [*branch.storage.list(branch.layout.branch_root)]
    found = [
        (int(match[1]), match[2] is not None, info.path)
        for info in infos
        if (match := _FILE.fullmatch(info.path.rpartition("/")[2])) is not None
    ]
    names = (info.path.rpartition("/")[2] for info in infos)
    noted = sorted(number for name in names if (number := numbered_id(name, NOTES_PREFIX)) is not None)

    def content(file: tuple[int, bool, str]) -> bytes | None:
        return tried(_named(branch, file[0]), lambda: _content(branch, file[2]), unread)

    contents = each(content, sorted(found), at=branch.storage)
    records, ends = dict[int, MergeRecord](), dict[int, MergeEnd]()
    for (number, is_end, path), data in zip(sorted(found), contents, strict=True):
        if data is None:
            continue
        what = _named(branch, number)
        if is_end:
            end = tried(what, partial(MergeEnd.from_json, data, path=path), unread)
            ends |= {} if end is None else {number: end}
        else:
            record = tried(what, partial(MergeRecord.from_json, data, path=path), unread)
            records |= {} if record is None else {number: record}
    return MergeLog(records, ends, tuple(noted))


def _named(branch: TableContext, number: int) -> str:
    return f"merge {number} of '{branch.title}'"


def _content(branch: TableContext, path: str) -> bytes:
    """Return the content of a write-once file; cached, as every compaction of the branch asks for all of them."""
    # A copy of the table elsewhere has the same identity, and diverges from this one.
    key = (branch.storage.url, branch.branch_uuid, "merge", path)
    return branch.cache.get_or(key, lambda: branch.storage.get(path), len)


def points(branch: TableContext) -> list[SnapshotRef]:
    """Return the snapshots of a branch that no compaction may rewrite across, oldest first: see `fence`.

    A merge puts its record first and a snapshot on the branch afterwards. So a caller that reads this for a base, and
    commits on exactly that base, has seen every merge whose point lies below.
    """
    fork = fork_of(branch)
    heads = [record.head for record in merge_log(branch).records.values()]
    merged = [SnapshotRef(fork.branch_uuid, head.id, head.stamp) for head in heads]
    return [fork.snapshot, *sorted(merged, key=lambda ref: ref.id)]


def put_record(branch: TableContext, record: MergeRecord) -> bool:
    """Claim the number of a merge; False if it is taken."""
    path = branch.layout.branch_file_path(f"MERGE-{record.number}")
    return branch.storage.put_if_absent(path, record.to_json())


def put_end(branch: TableContext, end: MergeEnd) -> None:
    """Record how a merge ended. All processes that do it write the same."""
    path = branch.layout.branch_file_path(f"MERGE-{end.number}.done")
    branch.storage.put_if_absent(path, end.to_json())
