"""Where the rows of a micro-batch come from, as far as its checkpoint tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pyspark

from anabranch.errors import AnabranchError
from anabranch.lineage.model import Engine, Input, LineageEntry
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between, sources_of_kind
from anabranch.options import CODE_VERSION
from anabranch.spark.checkpoint import Checkpoint
from anabranch.spark.stream_sources import source_names

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The run of a query that a batch belongs to; what is not known is None."""

    application: str | None = None
    run: str | None = None


def batch_origin(
    checkpoint: Checkpoint, job: str, batch: int, run: BatchRun, options: Mapping[str, str]
) -> tuple[LineageEntry, BatchOffsets | None]:
    """The lineage of a batch, and how far it read its sources; None if that cannot be found out.

    Never raises: what cannot be found out is said in the entry, because lineage must not stop a commit.
    """
    problems: list[str] = []
    offsets, inputs = _inputs(checkpoint, batch, problems)
    for problem in problems:
        _LOG.warning("lineage of batch %d of '%s' is incomplete: %s", batch, job, problem)
    engine = Engine("spark", pyspark.__version__, run.application, checkpoint.query_id, batch)
    entry = LineageEntry(job, run.run, CODE_VERSION.of(options), engine, inputs, tuple(problems))
    return entry, offsets


def named_inputs(
    checkpoint: Checkpoint, previous: BatchOffsets | None, offsets: BatchOffsets
) -> tuple[Input, ...]:
    """What a batch read, with the names of its sources. Raises `InvalidInputError`."""
    folders, others = sources_of_kind("files", offsets), sources_of_kind("unknown", offsets)
    names = source_names(checkpoint.storage, folders, others) if folders or others else {}
    return inputs_between(previous, offsets, names)


def _inputs(
    checkpoint: Checkpoint, batch: int, problems: list[str]
) -> tuple[BatchOffsets | None, tuple[Input, ...]]:
    try:
        offsets = checkpoint.batch_offsets(batch)
    except (AnabranchError, ValueError) as error:
        problems.append(f"offsets of batch {batch}: {error}")
        return None, ()
    previous: BatchOffsets | None = None
    if batch > 0:
        try:
            previous = checkpoint.batch_offsets(batch - 1)
        except (AnabranchError, ValueError) as error:
            problems.append(f"offsets of batch {batch - 1}, where this one begins: {error}")
            return offsets, ()
    try:
        return offsets, named_inputs(checkpoint, previous, offsets)
    except AnabranchError as error:
        problems.append(f"offsets of batches {batch - 1} and {batch}: {error}")
        return offsets, ()
