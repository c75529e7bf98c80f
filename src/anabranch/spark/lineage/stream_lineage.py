"""Lineage of a micro-batch: its streams, from the checkpoint, and its lookups, from the plan."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.lineage.joining import joined, spanning
from anabranch.lineage.model import Engine, Input, LineageEntry, TableInput, input_of
from anabranch.lineage.spark_offsets import BatchOffsets, began_at, inputs_between, sources_of_kind
from anabranch.spark.lineage.checkpoint import Checkpoint, source_names
from anabranch.spark.lineage.lookups import Lookups
from anabranch.streaming.offsets import Offset, is_offset

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The run of a query that a batch belongs to; unknown values are None."""

    application: str | None = None
    run: str | None = None


@dataclass
class BatchSources:
    """Sources of a batch, as far as they are known."""

    offsets: BatchOffsets | None = None
    """Offsets up to which it read its streams; None if they cannot be determined."""
    inputs: list[Input] = field(default_factory=list)
    held: list[Input] = field(default_factory=list)
    """Inputs of earlier batches that are in the query's state."""
    problems: list[str] = field(default_factory=list)
    is_positioned: bool | None = None
    """Whether everything it read of its streams is known; see `LineageEntry.is_positioned`."""

    def take(self, other: BatchSources) -> None:
        """Add the sources of another batch."""
        self.inputs += other.inputs
        self.held += other.held
        self.problems += (problem for problem in other.problems if problem not in self.problems)
        self.offsets, self.is_positioned = other.offsets, other.is_positioned


def batch_sources(
    checkpoint: Checkpoint, batch: int, lookups: Lookups, last: LastEntry = lambda: None
) -> BatchSources:
    """Return the sources of a batch. Never raises: what cannot be determined is listed among the problems.

    Args:
        last: gives the entry of the commit of the batch before; see `held_in_state`.
    """
    found = BatchSources()
    before: BatchOffsets | None = None
    what = f"offsets of batch {batch}"
    try:
        found.offsets = checkpoint.batch_offsets(batch)
        if batch > 0:
            what = f"offsets of batch {batch - 1}, where this one begins"
            before = checkpoint.batch_offsets(batch - 1)
        what = f"offsets of batches {batch - 1} and {batch}"
        found.inputs += named_inputs(checkpoint, before, found.offsets)
        found.is_positioned = True
    except (AnabranchError, ValueError) as error:
        found.is_positioned = False
        found.problems.append(f"{what}: {error}")
    found.inputs += lookups.inputs
    found.problems += lookups.problems
    try:
        if has_state(checkpoint):
            state = held_in_state(checkpoint, batch, before, found.offsets, lookups, last=last)
            since = () if found.offsets is None else named_inputs(checkpoint, None, found.offsets)
            found.held += (*since, *state.former, *state.lookups)
            found.problems += (problem for problem in state.problems if problem not in found.problems)
    except (AnabranchError, ValueError, KeyError, TypeError) as error:
        found.problems.append(f"what is held in the state of the query: {error}")
    found.inputs = list(joined(found.inputs))
    return found


def batch_origin(
    sources: BatchSources,
    job: str,
    code: str | None,
    run: str | None,
    engine: Engine,
    *,
    millis: int | None = None,
) -> LineageEntry:
    """Return the lineage entry of a batch that took `millis` milliseconds."""
    for problem in sources.problems:
        # Each batch has a process of its own, so of lookups a warning could not be given once only.
        level = logging.INFO if sources.is_positioned else logging.WARNING
        _LOG.log(level, "lineage of batch %d of '%s' is incomplete: %s", engine.batch, job, problem)
    return LineageEntry(
        job,
        run,
        code,
        engine,
        tuple(sources.inputs),
        tuple(sources.problems),
        held=tuple(sources.held),
        is_positioned=sources.is_positioned if sources.problems else None,
        watermark=None if sources.offsets is None else sources.offsets.batch_watermark,
        millis=millis,
    )


def named_inputs(
    checkpoint: Checkpoint, previous: BatchOffsets | None, offsets: BatchOffsets
) -> tuple[Input, ...]:
    """Return the inputs of a batch, with the names of its sources. Raises `InvalidInputError`."""
    folders, others = sources_of_kind("files", offsets), sources_of_kind("unknown", offsets)
    names = source_names(checkpoint.storage, folders, others) if folders or others else {}
    return inputs_between(previous, offsets, names)


# Inputs held in the state of a streaming query: all that its batches read since the query began.
#
# Windows, totals, joins and deduplication keep rows between batches, and a later batch writes what was made of them. When
# the state was emptied of which rows is not known here, so all of them count: never too little.
#
# How far the query has read its streams since its beginning follows from the offsets of a batch. What does not follow from
# them is kept in the query's checkpoint, in ``anabranch/held.json``: what its batches looked up, and what it read of a table
# on a branch that is main no more. It is written before the batch is committed, and only where something new is to be said.

HELD_FILE: Final = "anabranch/held.json"


LastEntry = Callable[[], LineageEntry | None]
"""Function that finds the lineage entry of the previous batch's commit."""


@dataclass(frozen=True, slots=True)
class Held:
    """Inputs that the state may hold and that do not follow from a batch's offsets."""

    lookups: tuple[Input, ...] = ()
    """Per table looked up at several snapshots: the oldest read, and all rows added up to the newest."""
    former: tuple[TableInput, ...] = ()
    """Stream reads of branches that are no longer main."""
    problems: tuple[str, ...] = ()
    """Reasons why this may be incomplete."""

    def to_json(self) -> str:
        """Serialise to the content of the file."""
        lookups, former = ([read.to_dict() for read in reads] for reads in (self.lookups, self.former))
        return json.dumps({"lookups": lookups, "former": former, "problems": list(self.problems)})

    @classmethod
    def from_json(cls, data: bytes) -> Held:
        """Parse the file. Raises `ValueError`, `KeyError` or `TypeError` if it is invalid."""
        value: Any = json.loads(data)
        former = (input_of(i) for i in value["former"])
        return cls(
            tuple(input_of(i) for i in value["lookups"]),
            tuple(read for read in former if isinstance(read, TableInput)),
            tuple(map(str, value["problems"])),
        )


def has_state(checkpoint: Checkpoint) -> bool:
    """Whether the query keeps state between its batches. Raises `StorageError`."""
    return any(True for _ in checkpoint.storage.list_folders("state"))


def held_in_state(
    checkpoint: Checkpoint,
    batch: int,
    before: BatchOffsets | None,
    offsets: BatchOffsets | None,
    lookups: Lookups,
    *,
    last: LastEntry = lambda: None,
) -> Held:
    """Update and return the inputs in a query's state at a commit, besides those that follow from its offsets.

    Args:
        batch: number of the batch.
        before: the offsets of the batch before; None if there is none, or they are not known.
        offsets: those of the batch; None if they are not known.
        last: gives the entry of the commit of the batch before, where the checkpoint does not have the file.

    Raises `StorageError`, `InvalidInputError`; and `ValueError`, `KeyError` or `TypeError` for a file that is damaged.
    """
    known = _known(checkpoint, batch, last)
    former = (*known.former, *_former_mains(before, offsets)) if offsets is not None else known.former
    problems = (*known.problems, *lookups.problems)
    kept = Held(
        _with_lookups(known.lookups, lookups.inputs),
        tuple(dict.fromkeys(former)),
        tuple(dict.fromkeys(problems)),
    )
    if kept != known or batch == 0:
        checkpoint.storage.put(HELD_FILE, kept.to_json().encode())
    return kept


def _known(checkpoint: Checkpoint, batch: int, last: LastEntry) -> Held:
    """Return what the earlier batches recorded.

    A checkpoint that was given the state of another query has no file yet: the commit which that state belongs to says it.
    """
    try:
        return Held.from_json(checkpoint.storage.get(HELD_FILE))
    except NotFoundError:
        if batch == 0:
            return Held()
    entry = last()
    if entry is not None and entry.held:
        lookups = (read for read in entry.inputs if read.is_lookup)
        return Held(_with_lookups(entry.held, lookups), problems=entry.problems)
    return Held(
        problems=(f"what the batches before {batch} looked up, whose rows the state may hold, is not known",)
    )


def _former_mains(before: BatchOffsets | None, offsets: BatchOffsets) -> Iterator[TableInput]:
    """Yield what was read of a former main, if the stream has just moved on to its replacement."""
    for source, value in offsets.ends.items():
        start = None if before is None else before.ends.get(source)
        if is_offset(value) and is_offset(start):
            end, was = Offset.from_dict(value), Offset.from_dict(start)
            if end.branch_uuid != was.branch_uuid:
                yield TableInput(
                    was.name, was.table_uuid, was.branch_uuid, began_at(was), was.position, was.begun
                )


def _with_lookups(known: Iterable[Input], new: Iterable[Input]) -> tuple[Input, ...]:
    tables: dict[str, TableInput] = {}
    others: list[Input] = []
    for read in (*known, *new):
        if isinstance(read, TableInput):
            before = tables.get(read.branch_uuid)
            tables[read.branch_uuid] = read if before is None else spanning(before, read)
        elif read not in others:
            others.append(read)
    return (*tables.values(), *others)
