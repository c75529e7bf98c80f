"""Distributed write of a DataFrame: Spark's tasks write the files and report them to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.engine import WrittenRows
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CommitMessage, WriteLoad
from anabranch.lineage.recording import current
from anabranch.spark.lineage.batch_lineage import FrameOrigin
from anabranch.spark.lineage.batch_reads import writing
from anabranch.spark.native.door import tell_written
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.writer import ClassesMissingError, NativeWriter
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.source.batch import warn_of_load
from anabranch.spark.source.clustering import cluster, expected_load
from anabranch.spark.tasks.task_engine import job_error
from anabranch.storage.memory import MemoryStorage
from anabranch.table import Table

_OUTCOME = pa.schema([pa.field("failed", pa.bool_(), nullable=False), pa.field("outcome", pa.binary())])


def write_frame(frame: Any, table: Table, schema: TableSchema | None = None) -> WrittenRows | None:
    """Write all rows of a frame to new files of the table, durable on return, for a later commit.

    Rows are clustered first (`anabranch.spark.cluster`), and the log says so if tasks will have too many buckets
    even then. If writing fails, what the tasks had written is removed, unless Spark lost them.

    Args:
        table: where to.
        schema: what to write them in; the table's if None.

    Returns:
        What was written, with the sources of the frame; None if this is no DataFrame, or if the table is in this
        process's memory, where no task can write.

    Raises:
        InvalidInputError: the frame is of a stream.
        SchemaError: the rows do not fit the table.
        AnabranchError: Spark could not carry out the query.
    """
    if not isinstance(frame, DataFrame) or isinstance(table.context.storage, MemoryStorage):
        return None
    if frame.isStreaming:
        raise InvalidInputError(
            f"the rows for '{table.name}' are of a stream, which never ends",
            hint="write it with df.writeStream.format('anabranch'), or call this for each batch in foreachBatch.",
        )
    if schema is not None:
        table = _AsPlanned(table, schema)
    rows = RowWriter.of(table, frame.schema)
    expected = expected_load(frame, table)
    warned = warn_of_load(expected, table)
    tasks = expected.tasks if expected is not None and expected.tasks > 1 else None
    origin = FrameOrigin(frame, table, current())
    clustered = cluster(frame, table, tasks=tasks)
    with writing():
        carried_out, by_task = _written(clustered, rows, table.name)
    if not warned:
        warn_of_load(WriteLoad.of_messages(by_task), table)
    messages = [message for messages in by_task for message in messages]
    return WrittenRows(messages, origin.properties(carried_out), origin.told)


class _AsPlanned(Table):
    """The table with its future schema."""

    def __init__(self, table: Table, schema: TableSchema) -> None:
        stored = table.schema.options
        of_view = {key: value for key, value in table.options.items() if stored.get(key) != value}
        super().__init__(table.context, options=of_view)
        self._planned = schema

    @property
    def schema(self) -> TableSchema:
        return self._planned


def _written(frame: DataFrame, rows: RowWriter, name: str) -> tuple[DataFrame, list[list[CommitMessage]]]:
    """Return the executed frame, and the messages of each task, in the order of its parts."""
    writer = NativeWriter.of(frame, rows)
    if not isinstance(writer, Obstacle):
        try:
            carried_out, found = writer.write(frame)
        except ClassesMissingError as error:
            writer = Obstacle(str(error))
        except Exception as error:  # of Py4J or of Spark
            raise job_error(f"writing {name}", error) from error
        else:
            refusals = [answer.refusal for answer in found if answer.refusal is not None]
            if refusals:
                raise refusals[0]
            return carried_out, [answer.messages for answer in found]
    tell_written(rows.context, name, writer)
    carried_out = frame.mapInArrow(_task(rows), "failed BOOLEAN, outcome BINARY")
    return carried_out, _written_by_python(carried_out, rows, name)


def _written_by_python(frame: DataFrame, rows: RowWriter, name: str) -> list[list[CommitMessage]]:
    try:
        outcomes = frame.collect()
    except Exception as error:  # of Py4J, of Spark or of gRPC: they have no root in common
        raise job_error(f"writing {name}", error) from error
    answers = [(row.failed, pickle.loads(row.outcome)) for row in outcomes]  # noqa: S301 - of our own tasks
    failures = [answer for failed, answer in answers if failed]
    messages = [answer for failed, answer in answers if not failed]
    if failures:
        rows.abort([message for written in messages for message in written])
        raise failures[0]
    return messages


def _task(rows: RowWriter) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # An error is an answer too: the driver then still hears what the other tasks wrote, and can remove it.
        try:
            failed, outcome = False, pickle.dumps(rows.write(batches))
        except AnabranchError as error:
            failed, outcome = True, pickle.dumps(error)
        yield pa.RecordBatch.from_pylist([{"failed": failed, "outcome": outcome}], schema=_OUTCOME)

    return run
