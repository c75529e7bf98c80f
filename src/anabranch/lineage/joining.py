"""Inputs of several reads or commits as few inputs as say the same.

What was read in steps, each of which begins where another one ended, is one input. Anything else stays apart: what lies
in a gap between two ranges was not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from anabranch.lineage.model import Input, SourceInput, TableInput
from anabranch.streaming.offsets import Position


def joined(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """The inputs without repetition, joined where they touch; in the order in which their sources are first named."""
    together = Inputs()
    for read in inputs:
        together.add(read)
    return together.all()


class Inputs:
    """Inputs that become more."""

    def __init__(self) -> None:
        self._of_sources: dict[Hashable, list[Input]] = {}

    def add(self, read: Input) -> None:
        """Take one in; the effort depends on what of its own source is there."""
        source = _source(read)
        known = self._of_sources.get(source, [])
        if read not in known:
            self._of_sources[source] = _joined([*known, read])

    def all(self) -> tuple[Input, ...]:
        """All of them, joined."""
        return tuple(read for of_source in self._of_sources.values() for read in of_source)


def newest(inputs: Sequence[Input], at_most: int) -> tuple[Input, ...]:
    """So many of the inputs at most, in their order: of each source the last ones, of as many sources as there is room for."""
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
    """Ranges of one branch, ascending, without those that touch."""
    united: list[TableInput] = []
    for read in sorted(reads, key=lambda one: (place(one.start), place(one.end))):
        last = united[-1] if united else None
        if last is None or place(read.start) > place(last.end):
            united.append(read)
        elif place(read.end) > place(last.end):
            united[-1] = replace(last, end=read.end)
    return united


def _chained(reads: list[SourceInput]) -> list[SourceInput]:
    """Ranges of one source, of which only the engine knows what they mean: equal ends are all that can be seen."""
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
    """What was delivered at a position, greater further on."""
    return (position.delivered_through, position.files or 0)
