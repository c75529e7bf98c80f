"""Lineage of a micro-batch: its streams, from the checkpoint, and its lookups, from the plan."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from anabranch.errors import AnabranchError
from anabranch.lineage.joining import joined
from anabranch.lineage.model import Engine, Input, LineageEntry
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between, sources_of_kind
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.lookups import Lookups
from anabranch.spark.lineage.stream_sources import source_names
from anabranch.spark.lineage.stream_state import LastEntry, has_state, held_in_state

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
        checkpoint: of its query.
        batch: its number.
        lookups: what it looked up.
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
