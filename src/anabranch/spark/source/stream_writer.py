"""Streaming writes to a table through the data source, each batch exactly once.

A batch is committed under (commit user, batch id); a batch that Spark repeats after a crash is recognised by
them and not committed again (`anabranch.kernel.log.ledger`). The commit user is fixed when the query first
starts and kept in its checkpoint (`anabranch.streaming.sink_identity`).

Spark makes a writer anew for every step of every batch: on the driver to plan a batch, by pickle in its tasks,
and again on the driver to commit it. After a driver dies its JVM may go on for seconds and commit, while the
restarted query repeats the same batch: both look for the batch in the history they build on, and only one can
put the next snapshot, so whoever comes second finds the first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.errors import (
    CommitConflictError,
    CorruptTableError,
    NotFoundError,
    OptionError,
    SealedBranchError,
)
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.snapshot import CommitIdentity, Snapshot
from anabranch.format.schema.watermark import watermark_definition
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.transaction import Committed
from anabranch.kernel.commit.watermark import Claim
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.provenance.births import delta_of
from anabranch.kernel.replacement.follow import carried_over
from anabranch.lineage.model import (
    LINEAGE_PROPERTY,
    Engine,
    LineageEntry,
    SourceInput,
    entry_or_none,
    lineage_of,
)
from anabranch.lineage.overlap import Gap, first_overlap
from anabranch.lineage.spark_offsets import BatchOffsets, sources_of_kind
from anabranch.options import CODE_VERSION, JOB, LOOKED_UP, MERGE_SCHEMA, SINK_ON_REPLACE, WRITE_ONLY
from anabranch.runtime import SYSTEM
from anabranch.spark.context.notices import Notice, leave
from anabranch.spark.context.options import QUERY_NAME, refuse_moment, table_options
from anabranch.spark.context.tables import warehouse_of
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.lookups import Lookups, ask
from anabranch.spark.lineage.stream_lineage import BatchRun, batch_origin, batch_sources
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.source.batch import (
    NOT_PUBLISHED,
    WrittenFiles,
    files_of,
    load_of,
    may_remove,
    warn_of_load,
)
from anabranch.spark.source.dead_letters import DeadLetters
from anabranch.spark.streams.stream_watermark import batch_watermark
from anabranch.streaming.sink_identity import (
    STATE_PROPERTY,
    BegunState,
    SinkIdentity,
    SinkRecord,
    begun_state,
    check_may_follow,
    fenced,
    former_identity,
    reference,
)
from anabranch.table import Table

_LOG = logging.getLogger(__name__)
_LAST = 20
"""Number of newest commits among which the previous batch is looked for."""


@dataclass(frozen=True)
class WrittenBatch(WrittenFiles):
    """Files that one task of a batch wrote, and what it knows of the run it belongs to."""

    run: BatchRun
    began_millis: int | None = None
    """Start of the task, in epoch milliseconds by the clock of its machine."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer that appends the rows of each batch; output mode ``complete`` replaces the table's rows."""

    def __init__(
        self,
        table: Table,
        rows: RowWriter,
        checkpoint: Checkpoint,
        identity: SinkIdentity,
        options: Mapping[str, str],
        *,
        overwrite: bool,
        notices: Path | None,
        begun: BegunState | None = None,
    ) -> None:
        self._begun = begun
        self._table = table
        self._rows = rows
        self._checkpoint = checkpoint
        self._identity = identity
        self._options = dict(options)
        self._overwrite = overwrite
        self._notices = notices

    @classmethod
    def of(
        cls,
        table: Table,
        schema: StructType,
        options: Mapping[str, str],
        *,
        overwrite: bool,
        notices: Path | None = None,
    ) -> StreamWriter:
        """Check that rows fit the table, and fix the identity of a query that starts for the first time.

        Raises:
            SchemaError: rows of `schema` do not fit the table.
            InvalidInputError: the options name a moment.
            OptionError, UnsupportedFeatureError, NotFoundError: the checkpoint cannot be used, or is not there.
            SealedBranchError: the query wrote to a main that was replaced since.
        """
        refuse_moment(table.name, options)
        if MERGE_SCHEMA.of(options):
            raise OptionError(
                f"{MERGE_SCHEMA.key} is for batches, and this is a stream: its columns are fixed when it begins",
                hint="leave it out and add the columns before: lake.table(...).alter().add_column(...).apply().",
            )
        checkpoint = Checkpoint.of(options)
        rows = RowWriter.of(table, schema)
        identity = _identity(table, options, checkpoint)
        wanted = JOB.of(options)
        if wanted is not None and wanted != identity.job:
            _LOG.warning(
                "job name '%s' is ignored: the query began as '%s' and stays it", wanted, identity.job
            )
        begun = begun_state(checkpoint.storage)
        return cls(
            table, rows, checkpoint, identity, options, overwrite=overwrite, notices=notices, begun=begun
        )

    @property
    def rows(self) -> RowWriter:
        """What writes the rows of a task."""
        return self._rows

    @property
    def first_batch(self) -> int:
        """Rows of earlier batches are in the table already."""
        return 0 if self._begun is None else self._begun.first_batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:
        began = SYSTEM.clock.now_millis()
        if self._is_withheld(_this_batch()):
            for _ in iterator:
                pass  # all of it is computed, because that is what makes the state
            return WrittenBatch((), _this_run(), began)
        return WrittenBatch(tuple(self._rows.write(iterator)), _this_run(), began)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        files: Sequence[CommitMessage] = files_of(messages)
        run = next((m.run for m in messages if isinstance(m, WrittenBatch)), BatchRun())
        lookups = ask(self._notices, self._checkpoint.query_id, batchId).and_(self._of_function())
        sources = batch_sources(self._checkpoint, batchId, lookups, lambda: self._entry_of(batchId - 1))
        if not sources.is_positioned:
            self._check_checkpoint(batchId, files)
        letters = self._dead_letters(sources.offsets, batchId)
        if self._is_withheld(batchId):  # but what it has taken into the state is recorded by now
            self._rows.abort(files)
            if letters is not None:
                letters.forget()
            return
        query = self._checkpoint.query_id
        engine = Engine("spark", pyspark.__version__, run.application, query, batchId)
        code, took = CODE_VERSION.of(self._options), _took(messages)
        entry = batch_origin(sources, self._identity.job, code, run.run, engine, millis=took)
        watermark = self._watermark(files, sources.offsets, batchId)
        try:
            if (
                letters is not None
            ):  # first, so that a batch whose rows are there has its dead letters there as well
                letters.commit(run.run, self._identity.user, self._table.context.title, entry)
            try:
                committed = self._committed(files, batchId, entry, watermark)
            except SealedBranchError as error:
                files = self._follow(files, error)
                committed = self._committed(files, batchId, entry, watermark)
        except NOT_PUBLISHED:
            self._rows.abort(files)
            raise
        if committed.repeated:
            self._settle_repeated(committed, files, entry)
        if letters is not None:
            letters.forget()
        snapshot = committed.snapshot
        # A dying driver may have gone on to later batches: what is found then is not this batch's snapshot.
        if snapshot is not None and snapshot.commit_identifier == batchId:
            self._record.committed(batchId, reference(self._table.branch_uuid, snapshot))
        if (
            batchId & (batchId - 1) == 0
        ):  # at batches 0, 1, 2, 4, 8 and so on, for it will be true of all of them
            warn_of_load(load_of(messages), self._table)
        if self._notices is not None and not WRITE_ONLY.of(self._rows.context.all_options):
            options = table_options(self._options)
            checkpoint = self._checkpoint.storage if _has_unnamed(entry) else None
            leave(Notice(self._checkpoint.query_id, self._table.context, options, checkpoint), self._notices)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if may_remove(messages):
            self._rows.abort(files_of(messages))

    def _check_checkpoint(self, batch: int, files: Sequence[CommitMessage]) -> None:
        """Give a batch up whose checkpoint was removed while it ran: after a commit without positions its job could not go on."""
        try:
            self._checkpoint.check_holds(batch)
        except NotFoundError:
            self._rows.abort(files)
            raise

    def _dead_letters(self, offsets: BatchOffsets | None, batch: int) -> DeadLetters | None:
        """Return the dead letters of the batch; None if it read no topic."""
        if offsets is None or not sources_of_kind("kafka", offsets):
            return None
        warehouse, query = warehouse_of(self._options), self._checkpoint.query_id
        return None if warehouse is None or query is None else DeadLetters(warehouse, query, batch)

    def _of_function(self) -> Lookups:
        """Return the lookups of the function that made the query, if there was one."""
        told = LOOKED_UP.of(self._options)
        return Lookups() if told is None else Lookups.from_json(told)

    def _is_withheld(self, batch: int | None) -> bool:
        """Whether a batch's rows are in the table already, because the batch only rebuilds state."""
        return self._begun is not None and batch is not None and batch < self._begun.first_batch

    def _properties(self, entry: LineageEntry, batch: int) -> dict[str, str]:
        properties = {LINEAGE_PROPERTY: entry.to_json()}
        if self._begun is not None and batch == self._begun.first_batch:
            properties[STATE_PROPERTY] = self._begun.to_property()
        return properties

    def _committed(
        self, files: Sequence[CommitMessage], batch: int, entry: LineageEntry, watermark: Claim
    ) -> Committed:
        # Empty batches are committed too, so that every batch can be found.
        self._check_not_there(entry)
        return self._table.commit(
            Overwrite(files) if self._overwrite else Append(files),
            identity=CommitIdentity(self._identity.user, batch),
            properties=self._properties(entry, batch),
            watermark=watermark,
            floor=self._record.floor_before(batch, self._identity),
        )

    def _entry_of(self, batch: int) -> LineageEntry | None:
        """Return the lineage entry of the job's commit of a batch, if it is among the last `_LAST` commits."""
        for snapshot in islice(self._snapshots(), _LAST):
            entry = entry_or_none(snapshot)
            if entry is not None and (entry.job, entry.engine.batch) == (self._identity.job, batch):
                return entry
        return None

    def _follow(self, files: Sequence[CommitMessage], error: SealedBranchError) -> Sequence[CommitMessage]:
        """Continue on the new main, if that is wanted, after main was replaced while the batch was being written."""
        table = self._table.branch(MAIN_BRANCH)
        is_of_main = self._table.context.main_generation is not None
        if not is_of_main or table.branch_uuid == self._table.branch_uuid:
            raise error
        identity = _identity(table, self._options, self._checkpoint)
        files = carried_over(files, self._table.context, table.context)
        self._table, self._identity = table, identity
        return files

    def _check_not_there(self, entry: LineageEntry) -> None:
        """Refuse events that a new main already has from its own job, for a query that followed to it."""
        followed = self._identity.follows
        if followed is None or self._record.has_committed:
            return
        context = self._table.context
        head = context.snapshots.head()
        since = [] if head is None else [*back_from(context, head, above=followed)]
        common = first_overlap(entry, since[::-1], after=followed, besides=self._identity.user)
        if common is not None:
            at = common if isinstance(common, Gap) else f"snapshot {common}"
            raise SealedBranchError(
                f"the streaming query '{entry.job}' cannot follow to the new main of '{self._table.name}': "
                f"it has events of the same range of a source already, in {at}",
                hint="end this query: the job of the new main does its work.",
            )

    def _snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots of the branch that is written to, newest first.

        By its context, as all that is asked before a batch is recorded: the view of main goes on to a new main with
        whatever it is asked, and only `_follow` may do that here.
        """
        snapshots = self._table.context.snapshots
        head = snapshots.head()
        return iter(()) if head is None else snapshots.backwards(head)

    @property
    def _record(self) -> SinkRecord:
        return SinkRecord(self._checkpoint.storage, self._table.branch_uuid)

    def _watermark(self, files: Sequence[CommitMessage], offsets: BatchOffsets | None, batch: int) -> Claim:
        rows, user = self._rows.context, self._identity.user
        options = {**rows.all_options, **self._options}
        now = self._table.context.runtime.clock.now_millis()
        return batch_watermark(
            rows.schema,
            options,
            files,
            offsets,
            producer=user,
            is_first=batch == self.first_batch,
            now=now,
            is_of_write=watermark_definition(rows.schema) is None,
        )

    def _settle_repeated(
        self, committed: Committed, files: Sequence[CommitMessage], entry: LineageEntry
    ) -> None:
        """Settle a batch that was committed before this call: remove its duplicate files, check its owner."""
        snapshot = committed.snapshot
        if snapshot is None:
            return  # it has expired, so nothing tells whether these files are its own: they stay
        own = {*delta_of(self._table.context, snapshot).adds().df["file_name"]}
        if not any(file.file_name in own for message in files for file in message.new_files):
            self._rows.abort(files)
        self._check_same_batch(snapshot, entry)
        _LOG.info("batch %d of '%s' is there as snapshot %d", entry.engine.batch, entry.job, snapshot.id)

    def _check_same_batch(self, snapshot: Snapshot, entry: LineageEntry) -> None:
        """Raise `CommitConflictError` if the commit that was found holds other rows than this batch."""
        try:
            found = lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
        except CorruptTableError:
            return
        if found is None:
            return
        there = f"snapshot {snapshot.id} of '{self._table.name}'"
        batch = entry.engine.batch
        if found.engine.query != entry.engine.query:
            raise CommitConflictError(
                f"batch {batch} was not written: {there} was committed under the same job name '{entry.job}' "
                f"by another query ({found.engine.query}, batch {found.engine.batch})",
                hint=f"two queries that write to one table need two names: set the option '{JOB.key}' and a new "
                "checkpoint location for one of them.",
            )
        known = found.knows_positions and entry.knows_positions
        if known and found.engine.batch == batch and found.ranges != entry.ranges:
            raise CommitConflictError(
                f"batch {batch} was not written: {there} is batch {batch} of the same query, but of other inputs: "
                f"{found.ranges}, now {entry.ranges}",
                hint="the offset log of the checkpoint was changed: restore it, or use a new checkpoint location.",
            )


def _identity(table: Table, options: Mapping[str, str], checkpoint: Checkpoint) -> SinkIdentity:
    """Return the query's identity at the branch. Raises `SealedBranchError` if it wrote to a main that was replaced."""
    context, head = table.context, table.snapshot
    former = former_identity(checkpoint.storage, context)
    follows: int | None = None
    if former is None:
        job = None
    else:
        was, pointer = former
        if SINK_ON_REPLACE.of({**table.options, **options}) != "follow":
            raise fenced(context, was.job, pointer)
        check_may_follow(context, was.job, pointer)
        job, follows = was.job, pointer.replaced.fork.id if pointer.replaced is not None else 0
    return SinkRecord(checkpoint.storage, table.branch_uuid).identity(
        lambda: SinkIdentity.of_job(
            job or _job(options, checkpoint), table.branch_uuid, head, follows=follows
        )
    )


def _job(options: Mapping[str, str], checkpoint: Checkpoint) -> str:
    job = JOB.of(options)
    if job is not None:
        return job
    name = options.get(QUERY_NAME)
    if name:
        _LOG.warning(
            "the job has no name: it is called '%s' after its query; set '%s' to choose one", name, JOB.key
        )
        return name
    derived = f"query-{checkpoint.query_id}"
    _LOG.warning(
        "neither job nor query has a name: it is called '%s'; set '%s' to choose one", derived, JOB.key
    )
    return derived


def _has_unnamed(entry: LineageEntry) -> bool:
    """Whether the batch has read a source whose name is not known."""
    return any(isinstance(i, SourceInput) and i.kind == "unknown" and i.name is None for i in entry.inputs)


def _this_batch() -> int | None:
    """Return the number of the batch that a task belongs to."""
    task = TaskContext.get()
    text = None if task is None else task.getLocalProperty("streaming.sql.batchId")
    return int(text) if text else None


def _took(messages: Sequence[WriterCommitMessage | None]) -> int | None:
    """Return milliseconds since the first task began, at least 0, as clocks of machines may differ."""
    begun = [m.began_millis for m in messages if isinstance(m, WrittenBatch) and m.began_millis is not None]
    return max(0, SYSTEM.clock.now_millis() - min(begun)) if begun else None


def _this_run() -> BatchRun:
    """Return what Spark tells a task about the run its batch belongs to."""
    task = TaskContext.get()
    if task is None:
        return BatchRun()
    return BatchRun(task.getLocalProperty("spark.app.id"), task.getLocalProperty("spark.jobGroup.id"))
