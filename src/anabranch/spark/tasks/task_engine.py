"""Work on many files as tasks of a Spark job, classic or through Spark Connect."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.engine import LocalEngine, R, T
from anabranch.errors import AnabranchError
from anabranch.spark.context.running import context_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_DESCRIPTION = "spark.job.description"
_POOL = "spark.scheduler.pool"
_REASON = re.compile(r"^(?:: )?(?P<reason>[\w.]+(?:Error|Exception): .+)", re.MULTILINE)
_OUTCOME = pa.schema([pa.field("failed", pa.bool_(), nullable=False), pa.field("outcome", pa.binary())])


@dataclass(frozen=True)
class TaskEngine:
    """Engine that runs work in the tasks of one Spark job per call of `map`.

    Spark may run a task twice, after a machine failed or out of impatience: see `anabranch.engine`. Its Python
    processes must have Anabranch installed, and everything else that the work needs.
    """

    spark: SparkSession
    slots: int | None = None
    """The most parallel tasks; None for one task per item, with as many in parallel as the cluster allows."""
    pool: str | None = None
    """Scheduler pool of the jobs; without effect through Spark Connect, which has none."""
    tag: str | None = None
    """Tag of the jobs, by which `cancel` finds them."""

    def map(self, work: Callable[[T], R], items: Sequence[T], *, name: str) -> Iterator[R]:
        """Run work on each item; see `anabranch.engine.Engine`. Starts when the first result is asked for.

        An error of the work is raised as it was there, after the results of the items that went well.

        Raises:
            JobFailedError: Spark did not bring the job to its end, or it was cancelled.
        """
        if not items:
            return
        count = min(self.slots or len(items), len(items))
        # All tasks carry all hands, as bytes, and each unpickles its own only.
        hands = [pickle.dumps(list(items[i::count])) for i in range(count)]
        frame = self.spark.range(0, count, 1, count).mapInArrow(
            _worker(pickle.dumps(work), hands), "failed BOOLEAN, outcome BINARY"
        )
        failures: list[Exception] = []
        for row in self.collect(frame, name=name):
            outcome = pickle.loads(row.outcome)  # noqa: S301 - the word of our own tasks
            if row.failed:
                failures.append(outcome)
            else:
                yield outcome
        if failures:
            raise failures[0]

    def collect(self, frame: DataFrame, *, name: str) -> list[Row]:
        """Return the rows of a frame, by a job that `cancel` finds.

        Raises:
            JobFailedError: Spark did not bring the job to its end, or it was cancelled.
        """
        with self._labels(name):
            try:
                return frame.collect()
            except Exception as error:  # of Py4J, of Spark or of gRPC: they have no root in common
                raise job_error(name, error) from error

    def cancel(self) -> None:
        """Cancel the jobs that run under the tag, from any thread; later jobs are not affected."""
        if self.tag is None:
            return
        context = context_of(self.spark)
        # A classic session knows the tags of the calling thread only, its context those of all threads.
        if context is None:
            self.spark.interruptTag(self.tag)
        else:
            context.cancelJobsWithTag(self.tag)

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[()]]:
        # A table that is sent to a task takes its engine along; there is no session there.
        return LocalEngine, ()

    @contextmanager
    def _labels(self, name: str) -> Iterator[None]:
        """Set description, pool and tag for the jobs that this thread starts in the block."""
        context = context_of(self.spark)
        with ExitStack() as undo:
            if context is not None:
                labels = {_DESCRIPTION: name} | ({} if self.pool is None else {_POOL: self.pool})
                for key, value in labels.items():
                    undo.callback(context.setLocalProperty, key, context.getLocalProperty(key))  # type: ignore[arg-type]
                    context.setLocalProperty(key, value)
            if self.tag is not None and context is not None:
                undo.callback(context.removeJobTag, self.tag)
                context.addJobTag(self.tag)
            elif self.tag is not None:
                undo.callback(self.spark.removeTag, self.tag)
                self.spark.addTag(self.tag)
            yield


class SparkJobError(AnabranchError):
    """Spark did not finish a job. None of its results was handed out."""


def _worker(
    work: bytes, hands: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for failed, outcome in _outcomes(work, hands[number]):
                    yield pa.RecordBatch.from_pylist(
                        [{"failed": failed, "outcome": outcome}], schema=_OUTCOME
                    )

    return run


def _outcomes(work: bytes, hand: bytes) -> Iterator[tuple[bool, bytes]]:
    """Yield whether each item failed, and its pickled result or error; the first error is the last outcome."""
    do = pickle.loads(work)  # noqa: S301 - the driver's words, as are the items
    for item in pickle.loads(hand):  # noqa: S301
        try:
            yield False, pickle.dumps(do(item))
        except Exception as error:  # whatever it is, it is raised where the work was asked for
            if not isinstance(error, AnabranchError):
                error.add_note("In a task of Spark:\n" + traceback.format_exc())
            yield True, pickle.dumps(error)
            return


def job_error(name: str, error: Exception) -> SparkJobError:
    """Return the error for a job of that name that Spark did not finish."""
    return SparkJobError(
        f"Spark did not finish '{name}': {reason_in(error)}",
        hint="Spark's own log and web page say more; what was written for it was not committed.",
        retryable=True,
    )


def reason_in(error: Exception) -> str:
    """Return the cause in one line from a Spark error, where it is embedded as <class>: <message>."""
    found = _REASON.search(str(error))
    return found["reason"] if found is not None else str(error).strip().partition("\n")[0]
