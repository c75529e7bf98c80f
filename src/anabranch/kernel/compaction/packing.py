"""Packs the files of a bucket into tasks, by sizes alone.

A file is *small* below 7/10 of the target size. A task never has only one file, so every task leaves
fewer small files than it found and repeated packing terminates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from anabranch.options import COMPACTION_MAX_FILE_NUM, COMPACTION_MIN_FILE_NUM, TARGET_FILE_SIZE

OPEN_COST: Final = 128 << 10
"""Minimum weight of a file when files are compared, in bytes: opening it costs as much as reading these."""
MOST_FILES: Final = 1000
"""Most files in a task of a full compaction, so that many tiny ones are read in parallel."""
_FULL_FILES: Final = 4
"""Approximate number of target-size files that a full compaction's task makes; bounds the share of its remainder."""
_FULL_QUEUE_FILES: Final = 8
"""The same in a queue, where the remainder of a task lies between large files and stays."""
LEFT_OUT: Final = -1
"""The kind of a file that must not be touched."""


class FileRun(NamedTuple):
    """Files from `start` up to, not including, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PackingLimits:
    """Thresholds at which files are worth a task."""

    target: int
    """Bytes of a new file."""
    min_files: int
    """Minimum number of files, if they reach the target together."""
    max_files: int
    """Number of files that make a task whatever their size."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> PackingLimits:
        """Read the options. Raises `OptionError`."""
        return cls(
            max(TARGET_FILE_SIZE.of(options), 1),
            max(COMPACTION_MIN_FILE_NUM.of(options), 2),
            max(COMPACTION_MAX_FILE_NUM.of(options), 2),
        )

    @property
    def small(self) -> int:
        """A file is small if it has fewer bytes than this."""
        return max(self.target * 7 // 10, 1)

    def files_after(self, size: int) -> int:
        """Estimate how many files so many bytes make."""
        return max(-(-size // self.target), 1)

    def gains(self, files: int, size: int) -> bool:
        """Whether rewriting leaves fewer files."""
        return self.files_after(size) < files

    def full_weight(self, size: int, *, in_queue: bool = False) -> float:
        """Return the share of a full compaction's task that a file makes up."""
        return size / (self.target * (_FULL_QUEUE_FILES if in_queue else _FULL_FILES)) + 1 / MOST_FILES


def pack(sizes: Sequence[int], limits: PackingLimits) -> list[FileRun]:
    """Pack files in any order into tasks. Files in no run wait for more.

    A run has either the target size and `min_files`, or `max_files`. In the latter case a run with a file heavier than
    the others together stays open: the merged file would be rewritten for every few more.

    Args:
        sizes: bytes of the small files of one partition, ascending.
    """
    runs = []
    start, total, weight = 0, 0, 0
    for i, size in enumerate(sizes):
        total += size
        heaviest = _weight(size)
        weight += heaviest
        count = i + 1 - start
        if (total >= limits.target and count >= limits.min_files) or (
            count >= limits.max_files and heaviest <= weight - heaviest
        ):
            runs.append(FileRun(start, i + 1))
            start, total, weight = i + 1, 0, 0
    return runs


def pack_rest(sizes: Sequence[int], limits: PackingLimits) -> list[FileRun]:
    """Make one task of all waiting files, if it leaves fewer; without those heavier than all lighter ones together.

    Arguments are those of `pack`.
    """
    end, weight = len(sizes), sum(_weight(size) for size in sizes)
    while end and (heaviest := _weight(sizes[end - 1])) > weight - heaviest:
        weight -= heaviest
        end -= 1
    return [FileRun(0, end)] if limits.gains(end, sum(sizes[:end])) else []


@dataclass(frozen=True, slots=True)
class Queue:
    """The files of one bucket of a queue, in reading order."""

    sizes: Sequence[int]
    firsts: Sequence[int]
    """First sequence number of each; non-decreasing."""
    rows: Sequence[int]
    kinds: Sequence[int] = field(default=())
    """Only files of one kind may be combined; `LEFT_OUT` for those that must stay as they are. All alike if empty."""

    def __len__(self) -> int:
        return len(self.sizes)

    def kind(self, i: int) -> int:
        return self.kinds[i] if self.kinds else 0

    def size(self, run: FileRun) -> int:
        return sum(self.sizes[run.start : run.end])

    def can_replace(self, run: FileRun) -> bool:
        """Whether new files take the position of the run.

        They count on from its first sequence number. Other engines give files too few numbers; then the last
        new one could come to stand after what follows.
        """
        if run.end == len(self):
            return True
        return self.firsts[run.start] + sum(self.rows[run.start : run.end]) <= self.firsts[run.end]

    def to_its_end(self, run: FileRun) -> FileRun | None:
        """Extend the run to the end of the bucket; None if that may not be combined."""
        whole = FileRun(run.start, len(self))
        kind = self.kind(run.start)
        return whole if all(self.kind(i) == kind for i in range(*whole)) else None


def pack_queue(queue: Queue, limits: PackingLimits) -> list[FileRun]:
    """Pack consecutive files of a queue into tasks. Small files before a large one are joined if they are `min_files`.

    Like `pack`, but with a sliding window: if it reaches the target with too few files, or its first file is heavier
    than the others together, the first file is left alone.
    """
    runs = []
    for stretch, is_closed in _small_stretches(queue, limits):
        for run in _windows(queue.sizes, stretch, limits, is_closed=is_closed):
            if queue.can_replace(run):
                runs.append(run)
                continue
            whole = queue.to_its_end(run)
            if whole is not None and whole.end == stretch.end:
                runs.append(whole)
                break
    return runs


def pack_queue_fully(queue: Queue, limits: PackingLimits) -> list[FileRun]:
    """Pack a queue so that large files follow each other, with few small ones between and at the end.

    Large files are rewritten only where more small ones lie around them; those at the start never.
    """
    runs: list[FileRun] = []
    for stretch in _mixed_stretches(queue, limits):
        for part in _cut(queue, stretch, limits):
            run = part if queue.can_replace(part) else _small_to_its_end(queue, part, limits)
            if run is not None and limits.gains(run.end - run.start, queue.size(run)):
                runs.append(run)
                if run != part:
                    return runs
            else:
                runs += _small_parts(queue, part, limits)
    return runs


def pack_queue_end(queue: Queue, limits: PackingLimits) -> list[FileRun]:
    """Make one task of the small files at the end of the bucket, like `pack_rest` for files without an order."""
    last = FileRun(0, 0)
    for stretch, _ in _small_stretches(queue, limits):
        last = stretch
    if last.end < len(queue):
        return []
    start, weight = last.start, sum(_weight(size) for size in queue.sizes[last.start :])
    while start < last.end and (first := _weight(queue.sizes[start])) > weight - first:
        weight -= first
        start += 1
    run = FileRun(start, last.end)
    return [run] if limits.gains(run.end - run.start, queue.size(run)) else []


def _weight(size: int) -> int:
    """Return the weight of a file in comparisons."""
    return max(size, OPEN_COST)


def _small_stretches(
    queue: Queue, limits: PackingLimits, within: FileRun | None = None
) -> Iterator[tuple[FileRun, bool]]:
    """Yield stretches of consecutive small files of one kind; and whether nothing can be appended to them any more."""
    small = limits.small
    i, end = within or (0, len(queue))
    while i < end:
        kind = queue.kind(i)
        if kind == LEFT_OUT or queue.sizes[i] >= small:
            i += 1
            continue
        start = i
        while i < end and queue.kind(i) == kind and queue.sizes[i] < small:
            i += 1
        yield FileRun(start, i), i < end and queue.kind(i) != LEFT_OUT


def _windows(
    sizes: Sequence[int], stretch: FileRun, limits: PackingLimits, *, is_closed: bool
) -> Iterator[FileRun]:
    start, total, weight = stretch.start, 0, 0

    def first() -> int:
        return _weight(sizes[start])

    for i in range(*stretch):
        total += sizes[i]
        weight += _weight(sizes[i])
        while start <= i:
            count = i + 1 - start
            is_many = count >= limits.max_files
            if (total >= limits.target and count >= limits.min_files) or (
                is_many and first() <= weight - first()
            ):
                yield FileRun(start, i + 1)
                start, total, weight = i + 1, 0, 0
            elif total >= limits.target or is_many:
                total -= sizes[start]
                weight -= first()
                start += 1
            else:
                break
    while is_closed and stretch.end - start >= limits.min_files:
        if first() <= weight - first():
            yield FileRun(start, stretch.end)
            return
        weight -= first()
        start += 1


def _mixed_stretches(queue: Queue, limits: PackingLimits) -> Iterator[FileRun]:
    """Files of one kind from a small one on to another, in no part from the first of which large ones prevail."""
    small = limits.small
    i, end = 0, len(queue)
    while i < end:
        kind = queue.kind(i)
        if kind == LEFT_OUT or queue.sizes[i] >= small:
            i += 1
            continue
        start, last, surplus = i, i, 0
        while i < end and queue.kind(i) == kind:
            is_small = queue.sizes[i] < small
            surplus += 1 if is_small else -1
            if surplus < 0:
                break
            last = i if is_small else last
            i += 1
        if last > start:
            yield FileRun(start, last + 1)
        i = last + 1


def _cut(queue: Queue, stretch: FileRun, limits: PackingLimits) -> list[FileRun]:
    """Cut the stretch into parts, each of which can replace its files and makes several large files."""
    parts = []
    start, weight = stretch.start, 0.0
    rest = sum(limits.full_weight(queue.sizes[i], in_queue=True) for i in range(*stretch))
    for i in range(*stretch):
        w = limits.full_weight(queue.sizes[i], in_queue=True)
        weight, rest = weight + w, rest - w
        if weight >= 1 and rest >= 1 and queue.can_replace(FileRun(start, i + 1)):
            parts.append(FileRun(start, i + 1))
            start, weight = i + 1, 0.0
    return [*parts, FileRun(start, stretch.end)]


def _small_parts(queue: Queue, run: FileRun, limits: PackingLimits) -> Iterator[FileRun]:
    """Yield stretches of small files within a run that is not worth it as a whole."""
    for stretch, _ in _small_stretches(queue, limits, run):
        gains = limits.gains(stretch.end - stretch.start, queue.size(stretch))
        if gains and queue.can_replace(stretch):
            yield stretch


def _small_to_its_end(queue: Queue, run: FileRun, limits: PackingLimits) -> FileRun | None:
    """Extend the run to the end, if most of it are small files."""
    whole = queue.to_its_end(run)
    if whole is None:
        return None
    count = sum(queue.sizes[i] < limits.small for i in range(*whole))
    return whole if 2 * count > len(range(*whole)) else None
