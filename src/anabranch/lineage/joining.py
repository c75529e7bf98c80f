"""Joins the inputs of several reads or commits into as few inputs as possible.

Steps of which each begins where the previous one ended are one input. Anything else stays separate: what lies
in a gap between two ranges was not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch.lineage.model import Input, LineageEntry, SourceInput, TableInput
from anabranch.streaming.offsets import Position


def joined(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return the inputs without repetition, joined where they touch; in the order their sources first appear."""
    together = Inputs()
    for read in inputs:
        together.add(read)
    return together.all()


def made_of(entry: LineageEntry) -> tuple[Input, ...]:
    """Return everything the rows of a commit may have come from directly, including what was held in state.

    For a merge that is the branch, whose own commits record their inputs.
    """
    if entry.taken is not None:
        return (entry.taken,)
    return (*entry.held, *(read for read in entry.inputs if read not in entry.held))


def spanning(one: TableInput, other: TableInput) -> TableInput:
    """Return one input that covers two of the same branch, and what lies between them."""
    last = max(one.end, other.end, key=place)
    if not any(read.is_state or read.start.full for read in (one, other)):
        first = min(one.start, other.start, key=place)
        return replace(other, start=first, end=last)
    if one.is_state and other.is_state and one.through == other.through:
        return other
    # The content at the oldest place that either begins at, and everything added since: rows overwritten
    # before the newer one was read are in it as well.
    first = min((_whole_at(read) for read in (one, other)), key=lambda at: at.snapshot)
    start = replace(first, files=0, full=True, watermark=None)
    return replace(other, start=start, end=replace(last, full=False))


def _whole_at(read: TableInput) -> Position:
    """Return the oldest moment at which an input may have seen the table's content."""
    if read.is_state:
        return read.end
    return (
        read.start
        if read.start.full
        else replace(read.start, snapshot=read.start.delivered_through, files=None)
    )


class Inputs:
    """A growing collection of inputs, joined as they are added."""

    def __init__(self) -> None:
        self._of_sources: dict[Hashable, list[Input]] = {}

    def add(self, read: Input) -> None:
        """Add an input; the cost depends only on the inputs of the same source."""
        source = _source(read)
        known = self._of_sources.get(source, [])
        if read not in known:
            self._of_sources[source] = _joined([*known, read])

    def all(self) -> tuple[Input, ...]:
        """Return all inputs, joined."""
        return tuple(read for of_source in self._of_sources.values() for read in of_source)


def newest(inputs: Sequence[Input], at_most: int) -> tuple[Input, ...]:
    """Return at most so many inputs, in order: the last ones of each source, of as many sources as fit."""
    if len(inputs) <= at_most:
        return tuple(inputs)
    seen: Counter[Hashable] = Counter()
    ranks: list[tuple[int, int]] = []
    for place_from_end, read in enumerate(reversed(inputs)):
        source = _source(read)
        ranks.append((seen[source], place_from_end))
        seen[source] += 1
    kept = {len(inputs) - 1 - place_from_end for _, place_from_end in sorted(ranks)[:at_most]}
    return tuple(read for i, read in enumerate(inputs) if i in kept)


def _source(read: Input) -> Hashable:
    if isinstance(read, TableInput):
        return ("table", read.table_uuid, read.branch_uuid, read.is_state)
    return (read.kind, read.source, read.name)


def _joined(reads: list[Input]) -> list[Input]:
    tables = [read for read in reads if isinstance(read, TableInput)]
    if not tables:
        return list(_chained([read for read in reads if isinstance(read, SourceInput)]))
    return list(tables if tables[0].is_state else _united(tables))


def _united(reads: list[TableInput]) -> list[TableInput]:
    """Return the ranges of one branch, ascending, with those that touch joined."""
    united: list[TableInput] = []
    for read in sorted(reads, key=lambda one: (place(one.start), place(one.end))):
        last = united[-1] if united else None
        if last is None or place(read.start) > place(last.end):
            united.append(read)
        elif place(read.end) > place(last.end):
            united[-1] = replace(last, end=read.end)
    return united


def _chained(reads: list[SourceInput]) -> list[SourceInput]:
    """Join ranges of one source whose offsets only the engine understands: equal ends are all that can be compared."""
    chains: list[SourceInput] = []
    for read in reads:
        at = next(
            (i for i, chain in enumerate(chains) if read.start is not None and chain.end == read.start), None
        )
        if at is None:
            chains.append(read)
        else:
            chains[at] = replace(chains[at], end=read.end)
    return chains


def place(position: Position) -> tuple[int, int]:
    """Return a sort key for a position: what was delivered there, greater further on."""
    return (position.delivered_through, position.files or 0)


@dataclass(eq=False)
class StreamStep:
    """A part of a stream that was handed out."""

    read: Input
    number: int
    """Number within the run, from 1."""
    is_done: bool = False
    """Whether it was worked through: the next one was asked for."""


class Steps:
    """The steps of a run. Not thread-safe: the caller serialises access."""

    def __init__(self) -> None:
        self.delivered = 0
        """Number of steps so far."""
        self._steps: list[StreamStep] = []
        self._told: dict[str, int] = {}
        """By branch identity: the last step up to which its commits have named all."""

    def deliver(self, read: Input) -> StreamStep:
        """Add a step, which is not worked through yet."""
        self.delivered += 1
        step = StreamStep(read, self.delivered)
        self._steps.append(step)
        return step

    def of(self, sink: str) -> list[Input]:
        """Return the reads that may go into the rows of a commit to that branch."""
        return [step.read for step in self._steps if not self._is_over(step, sink)]

    def committed(self, sink: str, through: int) -> None:
        """Record that a commit to that branch has named all steps up to that number."""
        self._told[sink] = max(through, self._told.get(sink, 0))
        self._steps = self._fewer()

    def _is_over(self, step: StreamStep, sink: str) -> bool:
        """Whether no rows of a step can go into later commits to that branch."""
        return step.is_done and step.number <= self._told.get(sink, 0)

    def _fewer(self) -> list[StreamStep]:
        """Join steps that differ only in what was read, so that a long run does not remember each of them.

        If a commit is made meanwhile that names only the first of them, the next one to its branch names them again.
        """
        fewer: list[StreamStep] = []
        for step in self._steps:
            last = fewer[-1] if fewer else None
            if last is not None and last.is_done and step.is_done and self._whose(last) == self._whose(step):
                both = joined([last.read, step.read])
                if len(both) == 1:
                    fewer[-1] = replace(step, read=both[0])
                    continue
            fewer.append(step)
        return fewer

    def _whose(self, step: StreamStep) -> set[str]:
        """Return the branches whose commits have named a step."""
        return {sink for sink, number in self._told.items() if step.number <= number}
