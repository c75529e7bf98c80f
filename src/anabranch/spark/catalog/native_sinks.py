"""Batches of streams, overwrites of the partitions that occur in the rows, and ``save``, by Spark's own tasks.

Spark's tasks hand their answers to these objects, which commit what `StreamWriter` and `BatchWriter` commit of rows that
processes of Python wrote. Everything else is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.options import PATH
from anabranch.runtime import SYSTEM
from anabranch.spark.catalog import java
from anabranch.spark.catalog.source import TableLocation
from anabranch.spark.context.options import spelled
from anabranch.spark.context.tables import open_table
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.lineage.stream_lineage import BatchRun
from anabranch.spark.native.compiled import NotCompiledError
from anabranch.spark.native.data_files import commits, data_files, impossible, mismatch
from anabranch.spark.native.door import tell_written
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.writer import TaskAnswer, answers_of
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.source.batch import BatchWriter, WrittenFiles
from anabranch.spark.source.stream_writer import StreamWriter, WrittenBatch
from anabranch.spark.tasks.stream_compaction import watch

_WRITE = f"{java.CONNECTOR}.write"
_RUN_ID = "spark.jobGroup.id"


def native_stream(
    jvm: Jvm, place: TableLocation, info: Any, options: Mapping[str, str], *, overwrite: bool
) -> NativeStreamWrite | None:
    """A ``StreamingWrite`` of the rows that Spark's `info` is about, for one batch; None if Python writes them.

    Args:
        overwrite: whether the rows of a batch replace the table's.
    """
    known = spelled({**place.options, **options, PATH.key: place.path}, is_checked=True)
    schema = java.python_struct(info.schema())
    writer = StreamWriter.of(open_table(known), schema, known, overwrite=overwrite, notices=watch(jvm.spark))
    files = _files(jvm, place, writer.rows, schema, first_batch=writer.first_batch)
    return None if files is None else NativeStreamWrite(jvm, writer, files)


def native_batch(
    jvm: Jvm, place: TableLocation, info: Any, options: Mapping[str, str], *, overwrite: bool
) -> NativeBatch | None:
    """A ``BatchWrite`` that appends, or replaces what the options say; None if Python writes the rows."""
    known = spelled({**place.options, **options, PATH.key: place.path}, is_checked=True)
    schema = java.python_struct(info.schema())
    writer = BatchWriter.of(open_table(known), schema, known, overwrite=overwrite)
    files = _files(jvm, place, writer.rows, schema)
    return None if files is None else NativeBatch(jvm, writer, files)


def _files(jvm: Jvm, place: TableLocation, rows: RowWriter, schema: Any, *, first_batch: int = 0) -> Any:
    """The ``DataFiles`` of our Java; None if Python must write, which the log then says."""
    reason = impossible(jvm, rows) or mismatch(rows, schema)
    if reason is None:
        try:
            return data_files(jvm, rows, schema.json(), rows.places, ordered=False, first_batch=first_batch)
        except NotCompiledError as error:
            reason = str(error)
    tell_written(rows.context, place.name, Obstacle(reason))
    return None


class _Native(JavaProxy):
    """What both kinds have."""

    def __init__(self, jvm: Jvm, writer: BatchWriter | StreamWriter, files: Any) -> None:
        self.jvm = jvm
        self._rows = writer.rows
        self._files = files

    def useCommitCoordinator(self) -> bool:  # noqa: N802 - Java's name, as all of them
        return True

    def _answers(self, messages: Any) -> list[TaskAnswer]:
        """What the tasks wrote. Raises what one of them refused its rows with."""
        found = answers_of(self._heard(messages), self._rows.context)
        for answer in found:
            if answer.refusal is not None:
                raise answer.refusal
        return found

    def _discard(self, messages: Any) -> None:
        """Remove the files of an aborted write, if they certainly belong to no snapshot: see `may_remove`."""
        if any(message is None for message in messages):
            self._heard(messages).discard()

    def _heard(self, messages: Any) -> Any:
        heard = commits(self.jvm, self._files)
        heard.commit(messages)
        return heard


class NativeBatch(_Native):
    """Writes a batch of rows, to append them or in place of others."""

    class Java:
        implements = [f"{_WRITE}.BatchWrite"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, writer: BatchWriter, files: Any) -> None:
        super().__init__(jvm, writer, files)
        self._writer = writer

    def createBatchWriterFactory(self, _info: Any) -> Any:  # noqa: N802
        return self._files

    def onDataWriterCommit(self, _message: Any) -> None:  # noqa: N802
        """Nothing: all is said at the end."""

    def commit(self, messages: Any, *_summary: Any) -> None:
        self._writer.commit([WrittenFiles(tuple(answer.messages)) for answer in self._answers(messages)])

    def abort(self, messages: Any) -> None:
        self._discard(messages)


class NativeStreamWrite(_Native):
    """Writes one batch of a stream."""

    class Java:
        implements = [f"{_WRITE}.streaming.StreamingWrite"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, writer: StreamWriter, files: Any) -> None:
        super().__init__(jvm, writer, files)
        self._writer = writer
        self._began = SYSTEM.clock.now_millis()

    def createStreamingWriterFactory(self, _info: Any) -> Any:  # noqa: N802
        self._began = SYSTEM.clock.now_millis()
        return self._files

    def commit(self, batch: int, messages: Any) -> None:
        context = self.jvm.spark.sparkContext
        run = BatchRun(context.applicationId, context.getLocalProperty(_RUN_ID))
        found = self._answers(messages)
        self._writer.commit(_written(found, run, self._began), batch)

    def abort(self, _batch: int, messages: Any) -> None:
        self._discard(messages)


def _written(answers: Sequence[TaskAnswer], run: BatchRun, began: int) -> list[WrittenBatch]:
    return [WrittenBatch(tuple(answer.messages), run, began) for answer in answers] or [
        WrittenBatch((), run, began)
    ]
