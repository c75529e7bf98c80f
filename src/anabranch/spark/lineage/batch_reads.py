"""Reads of a ``foreachBatch`` function besides its frame: they may go into whatever the function writes.

Spark tells a thread which batch it works on. So reads of Python and of the catalog are found to be of a batch by their
thread. Reads through the data source are planned in other processes: they are of the thread that waits for these just then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import SparkContext

from anabranch.lineage import reads
from anabranch.lineage.joining import joined
from anabranch.lineage.model import TableInput
from anabranch.lineage.reads import ReadingThread, note_elsewhere
from anabranch.lineage.recording import Gathered, JobRun, aside, current, open_runs
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import plans
from anabranch.spark.lineage.job_marks import WORKERS, taking_part
from anabranch.spark.lineage.plan_inputs import found_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_MOST_QUERIES: Final = 100
_LOCK = threading.Lock()
_BATCHES: Final[dict[str, _Batch]] = {}
"""Per query id, the latest batch in which something was read."""


@dataclass
class _Batch:
    number: int
    reads: JobRun
    before: dict[str, TableInput]
    """Reads of earlier batches that the function may have kept, the newest per branch."""

    def and_before(self, found: Gathered) -> Gathered:
        """Return the reads together with what the function may have kept from earlier batches."""
        own = {read.branch_uuid for read in found.inputs if isinstance(read, TableInput)}
        kept = (read for branch, read in self.before.items() if branch not in own)
        return replace(found, inputs=joined([*kept, *found.inputs]))


def seen(batch: plans.Batch) -> Gathered:
    """Return what the function has read so far, in this batch and in earlier ones."""
    known = _batch(batch.query, batch.batch)
    return known.and_before(known.reads.seen)


def gathered(batch: plans.Batch) -> Gathered:
    """Return the same plus the reads of its writes' plans, as the program may have got some of those rows too."""
    known = _batch(batch.query, batch.batch)
    return known.and_before(known.reads.gathered)


@contextmanager
def reading(spark: SparkSession) -> Iterator[bool]:
    """Attribute reads in the block, for this Spark thread, to its job or else its batch.

    Yields whether a plan says where the rows go: then reads of a thread without job or batch are not noted.
    """
    is_planned = _is_command(spark)
    with taking_part(spark) as run:
        batch = _of_thread() if run is None else None
        if batch is not None:
            with batch.reads.joined():
                yield is_planned
        elif run is None and is_planned:
            with aside():
                yield is_planned
        else:
            yield is_planned


@contextmanager
def writing() -> Iterator[None]:
    """Attribute reads in the block, for this thread, to the data being written, as its plan does."""
    run = current() or _reader()
    with aside() if run is None else run.writing():
        yield


def note_planned(spark: SparkSession, read: TableInput) -> None:
    """Register a read that another process is planning for Spark, for the waiting thread's job. Never raises.

    Spark may plan in a thread of unknown purpose. Then the read is attributed to the job or function that is under
    way, and a problem of each if there are several, or if a stream may just as well be looking the table up.
    """
    waiting: list[ReadingThread] = []
    others = {run.run: ReadingThread(run) for run in open_runs()}
    is_of_stream = False
    try:
        jvm = Jvm(spark)
        for worker in list(WORKERS):
            doing = plans.doing(jvm, worker.thread)
            reader = ReadingThread(worker.run, doing.is_command, worker.ident)
            if doing.is_planning:
                waiting.append(reader)
            elif doing.is_command:
                others[worker.run.run] = reader
        for thread, query, number in plans.batches(jvm):
            doing = plans.doing(jvm, thread)
            reader = ReadingThread(
                _batch(query, number).reads if doing.is_function else None, doing.is_command
            )
            if doing.is_planning:
                waiting.append(reader)
            elif reader.run is not None:
                others[query] = reader
            elif not waiting:
                is_of_stream |= _looks_up(jvm, query, number, read)
    except Exception as error:  # whatever Spark is made of
        _LOG.debug("it is not known who reads '%s': %s", read.name, error)
    note_elsewhere(read, waiting or [*others.values(), *([ReadingThread(None)] if is_of_stream else [])])


def _looks_up(jvm: Jvm, query: str, batch: int, read: TableInput) -> bool:
    """Whether the plan of a batch names the table."""
    named = found_in(jvm, lambda: plans.lookup_leaves(jvm, query, batch)).inputs
    return any(isinstance(one, TableInput) and one.branch_uuid == read.branch_uuid for one in named)


def _is_command(spark: SparkSession) -> bool:
    try:
        return plans.is_command(Jvm(spark))
    except Exception as error:  # as above
        _LOG.debug("it is not known what this thread does: %s", error)
        return False


def _batch(query: str, number: int) -> _Batch:
    with _LOCK:
        known = _BATCHES.pop(query, None)
        if known is None or known.number != number:
            before = {} if known is None else known.before
            for read in () if known is None else known.reads.seen.inputs:
                if isinstance(read, TableInput):
                    before[read.branch_uuid] = read
            known = _Batch(number, JobRun(f"batch {number}", query, is_gathering=True), before)
        _BATCHES[query] = known
        while len(_BATCHES) > _MOST_QUERIES:
            del _BATCHES[next(iter(_BATCHES))]
        return known


def _of_thread() -> _Batch | None:
    """Return the batch that this thread works on, or None."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public word for it
    if context is None:
        return None
    try:
        found = plans.batch_of_thread(context)
    except Exception as error:  # a gateway that is gone
        _LOG.debug("the batch of this thread is not known: %s", error)
        return None
    return None if found is None else _batch(*found)


def _reader() -> JobRun | None:
    batch = _of_thread()
    return None if batch is None else batch.reads


reads.READERS.append(_reader)
