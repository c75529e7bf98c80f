"""The records of a branch's merges: the intent of each, put before it starts, and its outcome.

``MERGE-<k>`` in the branch's folder claims the number k and fixes what is merged; ``MERGE-<k>.done`` says how it
ended. Both are written once. One without the other is a merge under way, or one whose process died: see `merge`.
All of a branch's are read by `merge_log`.

Each names its branch: a merge that stands still while its branch is deleted and made again under its name may leave either
in the new one's folder. Such a record has claimed its number there, and is given up like that of a process that died. Such
an end says nothing, and is overwritten by the end of the merge that has the number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.record import JsonFile, JsonRecord, Stored
from anabranch.kernel.log.context import TableContext

_FILE: Final = re.compile(r"MERGE-([1-9][0-9]{0,17})(\.done)?")


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
    branch_uuid: Annotated[str | None, Stored(key="branch", seldom=True)] = field(default=None, compare=False)
    """The branch; None in files of earlier releases, which are taken for those of the branch whose folder it is."""


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
    branch_uuid: Annotated[str | None, Stored(key="branch", seldom=True)] = field(default=None, compare=False)
    """As in `MergeRecord`."""

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


class MergeFile(NamedTuple):
    """The name of a record."""

    number: int
    is_end: bool

    @property
    def name(self) -> str:
        return f"MERGE-{self.number}{'.done' if self.is_end else ''}"

    @classmethod
    def parse(cls, name: str) -> MergeFile | None:
        """Parse a file name; None if it is no such name."""
        match = _FILE.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2] is not None)


def record_of(data: bytes, path: str) -> MergeRecord | MergeEnd:
    """Read a record. Raises `CorruptTableError` also if it is that of another merge; `UnsupportedFeatureError`."""
    file = MergeFile.parse(path.rpartition("/")[2])
    assert file is not None, "it has the name of one"
    found = (MergeEnd if file.is_end else MergeRecord).from_json(data, path=path)
    if found.number != file.number:
        raise CorruptTableError(f"is the record of merge {found.number}", path=path)
    return found


def is_left_behind(branch: TableContext, record: MergeRecord | MergeEnd) -> bool:
    """Whether it is of a former branch of the name."""
    return record.branch_uuid not in (None, branch.branch_uuid)


def content_of(branch: TableContext, record: MergeRecord | MergeEnd) -> bytes:
    """Return the content of a record's file."""
    return replace(record, branch_uuid=branch.branch_uuid).to_json()


def put_record(branch: TableContext, record: MergeRecord) -> bool:
    """Claim the number of a merge; False if it is taken."""
    path = branch.layout.branch_file_path(MergeFile(record.number, is_end=False).name)
    return branch.storage.put_if_absent(path, content_of(branch, record))


def put_end(branch: TableContext, end: MergeEnd) -> None:
    """Record how a merge ended. All processes that do it write the same."""
    path = branch.layout.branch_file_path(MergeFile(end.number, is_end=True).name)
    content = content_of(branch, end)
    if branch.storage.put_if_absent(path, content):
        return
    try:
        found = record_of(branch.storage.get(path), path)
        # Somebody who still has a former branch of the name overwrites nothing of this one.
        is_to_go = is_left_behind(branch, found) and not branch.is_other_branch()
    except (NotFoundError, CorruptTableError, UnsupportedFeatureError):
        return  # the branch is gone, or whoever reads the record says what is wrong with it
    if is_to_go:
        branch.storage.put(path, content)
