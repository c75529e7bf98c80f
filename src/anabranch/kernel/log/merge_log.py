"""All merges of a branch: what `merge_record` keeps of each, read together.

A branch may be merged every hour for years. So a merge from time to time leaves a summary of all that ended before it
(`merge_summary`), and what it says is not read again one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError
from anabranch.format.records.layout import numbered_id
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.log.merge_record import MergeEnd, MergeFile, MergeRecord, is_left_behind, record_of
from anabranch.kernel.log.merge_summary import SUMMARY_PREFIX, find_summary, put_summary
from anabranch.kernel.log.parallel import OnUnread, each, reading, tried

NOTES_PREFIX: Final = "NOTES-"
"""File name prefix of what a merge has found for later ones."""
_MOST_MISSING: Final = 16
"""One is enough to stop at; more only where a listing was of different moments. A name may claim any number."""
WORTH: Final = 32
"""Number of ended merges in no summary, from which on one is written."""


@dataclass(frozen=True)
class MergeLog:
    """All merges of a branch that were begun."""

    records: Mapping[int, MergeRecord] = field(default_factory=dict)
    """By number, ascending."""
    ends: Mapping[int, MergeEnd] = field(default_factory=dict)
    noted: tuple[int, ...] = ()
    """Numbers of the merges that have left notes for later ones: see `anabranch.kernel.provenance.notes`."""
    summarized: int = 0
    """Number of the last merge that was read from a summary."""
    summaries: tuple[int, ...] = ()
    """Numbers of the last merges in the summaries that there are."""

    @property
    def under_way(self) -> list[MergeRecord]:
        """The newest merge, if it has not ended or its end is not recorded.

        The record of a merge is put once those before it have ended: where the end of one of them is missing, it got lost.
        """
        newest = max([*self.records, *self.ends], default=0)
        return [self.records[newest]] if newest in self.records and newest not in self.ends else []

    @property
    def next_number(self) -> int:
        return max([*self.records, *self.ends], default=0) + 1


def merge_log(branch: TableContext, unread: OnUnread | None = None) -> MergeLog:
    """Read the records of a branch's merges.

    Args:
        branch: the branch.
        unread: told of those that are damaged or gone, which are left out; so each is read by itself. Without it those
            that are read raise `CorruptTableError`.
    """
    names = _names(branch)
    there = {file for name in names if (file := MergeFile.parse(name)) is not None}
    # What is missing among them is asked for as well: a listing is not of one moment.
    lost = islice((file for file in missing(branch, there) if not file.is_end), _MOST_MISSING)
    files = sorted({*there, *lost})
    noted, summaries = _numbers(names, NOTES_PREFIX), _numbers(names, SUMMARY_PREFIX)
    last = max(summaries, default=0) if unread is None else 0
    first, later = [f for f in files if f.number <= last], [f for f in files if f.number > last]
    with reading(branch.storage) as begin:  # in whatever order: what is read is written once
        finding = begin(lambda: find_summary(branch, last) if last else None)
        reading_later = begin(partial(_read, branch, later, unread))
        summary = finding()
        records, ends = summary or _read(branch, first, unread)
        later_records, later_ends = reading_later()
    summarized = 0 if summary is None else last
    return MergeLog(records | later_records, ends | later_ends, noted, summarized, summaries)


def missing(branch: TableContext, there: Collection[MergeFile]) -> Iterator[MergeFile]:
    """Yield the records that are missing beside others: a merge has the next number, and begins once that before has ended.

    Not those that only seem so because of what a merge of a former branch of the name has left.
    """
    if not any(_gaps(there)):
        return
    # What is left behind lacks what comes before it: an end its record, and a record that of the number below.
    before = {file: MergeFile(file.number - (not file.is_end), is_end=False) for file in there}
    odd = [file for file, needed in before.items() if needed.number and needed not in there]
    left = {file for file in odd if _is_left_behind(branch, file)}
    claimed = max((file.number for file in left if not file.is_end), default=0)
    own = {file for file in there if file not in left or not file.is_end}
    yield from (file for file in _gaps(own) if file.number > claimed)


def _gaps(there: Collection[MergeFile]) -> Iterator[MergeFile]:
    newest = max((file.number for file in there), default=0)
    for number in range(1, newest + 1):
        files = (MergeFile(number, is_end) for is_end in (False, True))
        yield from (file for file in files if file not in there and (number < newest or not file.is_end))


def _is_left_behind(branch: TableContext, file: MergeFile) -> bool:
    """Whether a record is of a former branch of the name; one that cannot be read is not known to be."""
    path = branch.layout.branch_file_path(file.name)
    with suppress(AnabranchError):
        return is_left_behind(branch, record_of(branch.storage.get(path), path))
    return False


def from_summaries(branch: TableContext, number: int) -> tuple[MergeRecord, MergeEnd] | None:
    """Return what a merge recorded as the summaries have it; None if it is in none of them."""
    for last in reversed(_numbers(_names(branch), SUMMARY_PREFIX)):
        records, ends = find_summary(branch, last) or ({}, {})
        if number in records:
            return records[number], ends[number]
    return None


def check_begun(branch: TableContext, number: int) -> None:
    """Raise `CorruptTableError` if the record of a merge that main has is gone."""
    path = branch.layout.branch_file_path(MergeFile(number, is_end=False).name)
    if not branch.storage.exists(path):
        raise _gone(path)


def _gone(path: str) -> CorruptTableError:
    return CorruptTableError(
        "is gone: what main has of the branch is not known without it",
        path=path,
        hint="`verify` tells what is missing, `repair` makes it again where it can. Or put it back from a copy.",
    )


def summarize(branch: TableContext, log: MergeLog) -> None:
    """Write a summary of all merges that have ended, if there is none of many of them. It is no loss if it fails."""
    last = _ended_until(log.records.keys(), log.ends.keys())
    if last - log.summarized < WORTH:
        return
    with suppress(AnabranchError):
        put_summary(
            branch,
            [log.records[number] for number in range(1, last + 1)],
            [log.ends[number] for number in range(1, last + 1)],
            replaces=log.summaries,
        )


def points(branch: TableContext) -> list[SnapshotRef]:
    """Return the snapshots of a branch that no compaction may rewrite across, oldest first: see `fence`.

    A merge puts its record first and a snapshot on the branch afterwards. So a caller that reads this for a base, and
    commits on exactly that base, has seen every merge whose point lies below.
    """
    fork = fork_of(branch)
    heads = [record.head for record in merge_log(branch).records.values()]
    merged = [SnapshotRef(fork.branch_uuid, head.id, head.stamp) for head in heads]
    return [fork.snapshot, *sorted(merged, key=lambda ref: ref.id)]


def _names(branch: TableContext) -> list[str]:
    return [info.path.rpartition("/")[2] for info in branch.storage.list(branch.layout.branch_root)]


def _numbers(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    return tuple(sorted(number for name in names if (number := numbered_id(name, prefix)) is not None))


def _ended_until(begun: AbstractSet[int], ended: AbstractSet[int]) -> int:
    """Return the number of the last merge up to which all are there, each with its end."""
    return next(number for number in count() if number + 1 not in begun or number + 1 not in ended)


def _read(
    branch: TableContext, files: Sequence[MergeFile], unread: OnUnread | None
) -> tuple[dict[int, MergeRecord], dict[int, MergeEnd]]:
    """Read these records one by one."""

    def content(file: MergeFile) -> bytes | None:
        return tried(_named(branch, file), lambda: _content(branch, file), unread)

    records, ends = dict[int, MergeRecord](), dict[int, MergeEnd]()
    for file, data in zip(files, each(content, files, at=branch.storage), strict=True):
        if data is None:
            continue
        path = branch.layout.branch_file_path(file.name)
        match tried(_named(branch, file), partial(record_of, data, path), unread):
            case MergeRecord() as record:
                records[file.number] = record
            case MergeEnd() as end if is_left_behind(branch, end):
                branch.cache.drop(_key(branch, path))  # it may be overwritten
            case MergeEnd() as end:
                ends[file.number] = end
    return records, ends


def _named(branch: TableContext, file: MergeFile) -> str:
    return f"merge {file.number} of '{branch.title}'"


def _content(branch: TableContext, file: MergeFile) -> bytes:
    """Return the content of a write-once file; cached, as every compaction of the branch asks for all of them."""
    path = branch.layout.branch_file_path(file.name)
    try:
        return branch.cache.get_or(_key(branch, path), lambda: branch.storage.get(path), len)
    except NotFoundError as error:
        raise _gone(path) from error


def _key(branch: TableContext, path: str) -> tuple[str, ...]:
    # A copy of the table elsewhere has the same identity, and diverges from this one.
    return branch.storage.url, branch.branch_uuid, "merge", path
