"""Writes to a table: rows and schema."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from anabranch.arrow.convert import convert
from anabranch.arrow.incoming import incoming
from anabranch.arrow.sources import is_held
from anabranch.arrow.table_read import Writer
from anabranch.engine import WritesFrames, WrittenRows
from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    SealedBranchError,
)
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.format.records.snapshot import CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.base import Action
from anabranch.kernel.commit.commit_message import CommitMessage, WriteLoad, load_warning
from anabranch.kernel.commit.transaction import NOT_PUBLISHED, CommitRequest, Committed, SeenHead, commit
from anabranch.kernel.commit.watermark import Claim, claim
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.refs.auto_tags import keep_due
from anabranch.kernel.refs.moments import resolve
from anabranch.kernel.replacement.follow import carried_over
from anabranch.lineage.model import LINEAGE_PROPERTY
from anabranch.lineage.reads import outside_of_jobs
from anabranch.lineage.recording import current, is_aside
from anabranch.lineage.remembered import Handed, handed
from anabranch.maintenance.expire import expire_now_and_then
from anabranch.options import DYNAMIC_PARTITION_OVERWRITE
from anabranch.scan.scan import Rows
from anabranch.table.alter import Alter
from anabranch.table.merging import SchemaMerge
from anabranch.table.view import TableView

_LOG = logging.getLogger(__name__)

_MOST_COLLISIONS: Final = 20
"""Number of concurrent schema changes after which appending rows with new columns gives up."""


class WriteMethods(TableView):
    """Table methods that write."""

    def append(self, data: Any, *, schema: Literal["merge"] | None = None) -> Snapshot:
        """Append rows: a pyarrow table, batches or reader, a pandas or Polars frame, or a list of dicts.

        A Spark DataFrame is written by the tasks of its session, clustered by partition and bucket (see
        `anabranch.spark.cluster`); in a queue its rows keep their order.

        Columns go by name. Missing nullable columns become null; unknown ones are an error, unless the schema is to be
        merged.

        Args:
            data: the rows.
            schema: with ``merge``, columns that the table lacks are added, and columns are widened within their kind
                (INT to BIGINT, FLOAT to DOUBLE) if the rows need it. Of rows that are all in memory the values say
                whether they do, of streams and Spark's frames the types.

        Raises:
            SchemaError: the data does not fit; nothing was written, and the schema is as it was.
            CommitError: see `anabranch.errors`.
        """
        if schema is None:
            return self._write(data, Append)
        if schema != "merge":
            raise InvalidInputError(
                f"append(schema={schema!r}) is not known",
                hint="schema='merge' adds and widens columns; leave it out to append to the columns there are.",
            )
        return self._append_merging(data)

    def overwrite(
        self,
        data: Any,
        partition: Mapping[str, Any] | None = None,
        *,
        if_unchanged_since: int | Snapshot | None = None,
    ) -> Snapshot:
        """Replace rows by `data`.

        Without `partition`, a partitioned table loses exactly the partitions that occur in `data` (option
        ``dynamic-partition-overwrite``), an unpartitioned one all its rows. With `partition`, for example
        ``{"dt": "2026-01-01"}``, all rows of it are replaced and `data` must lie inside of it.

        What is replaced are the rows that are there when it commits, those included that others have added since
        `data` was computed. With `if_unchanged_since`, the snapshot that `data` was computed from or its number, it is
        a `CommitConflictError` instead if anybody has changed rows of what is replaced after that snapshot.
        """
        since = self._reference(if_unchanged_since)
        return self._write(
            data, lambda messages: self.overwriting(messages, partition, unchanged_since=since)
        )

    def replace(
        self,
        data: Any,
        where: str | Predicate | None = None,
        *,
        if_unchanged_since: int | Snapshot | None = None,
    ) -> Snapshot:
        """Replace all rows by `data`, whatever the options say; or those of the partitions that `where` names.

        Args:
            data: as for `append`; with `where` it must lie inside of these partitions.
            where: a condition on partition columns, such as ``dt >= '2026-01-01'``.
            if_unchanged_since: as for `overwrite`.

        Raises:
            PredicateError, InvalidInputError: `where` does not fit the table, or names other columns.
        """
        since = self._reference(if_unchanged_since)
        if where is None:
            return self._write(data, lambda messages: Overwrite(messages, unchanged_since=since))
        condition = parse(where) if isinstance(where, str) else where

        def action(messages: Sequence[CommitMessage]) -> Overwrite:
            return replace(Overwrite.where(messages, condition, self._schema), unchanged_since=since)

        return self._write(data, action)

    def overwriting(
        self,
        messages: Sequence[CommitMessage],
        partition: Mapping[str, Any] | None = None,
        *,
        unchanged_since: SnapshotRef | None = None,
    ) -> Overwrite:
        """Return the action that replaces rows by the files of these messages. Raises `InvalidInputError`."""
        return replace(self._overwriting(messages, partition), unchanged_since=unchanged_since)

    def reference(self, snapshot: int | Snapshot) -> SnapshotRef:
        """Return a permanent reference to a snapshot of this branch; number 0 is the state before the first one.

        Raises `NotFoundError` if there is no snapshot of the number.
        """
        found = snapshot if isinstance(snapshot, Snapshot) or snapshot == 0 else self._retained(snapshot)
        stamp, number = (found.stamp, found.id) if isinstance(found, Snapshot) else ("", 0)
        return SnapshotRef(self._context.branch_uuid, number, stamp)

    def _reference(self, snapshot: int | Snapshot | None) -> SnapshotRef | None:
        return None if snapshot is None else self.reference(snapshot)

    def _retained(self, number: int) -> Snapshot:
        return resolve(self._context, number).snapshot

    def _overwriting(
        self, messages: Sequence[CommitMessage], partition: Mapping[str, Any] | None
    ) -> Overwrite:
        schema = self._schema
        if partition is not None:
            return Overwrite.of_partition(messages, partition, schema)
        options = {**schema.options, **self._options}
        dynamic = bool(schema.partition_keys) and DYNAMIC_PARTITION_OVERWRITE.of(options)
        return Overwrite(messages, dynamic=dynamic)

    def writer(self) -> Writer:
        """Return a writer of data files for a later `commit`, here or in another process.

        Raises `UnsupportedFeatureError` if the table must not be written to.
        """
        self._check_unpinned()
        schema = self.schema
        check_writable(schema, path=self._context.layout.schema_path(schema.id))
        return Writer.of(self._context, schema, self._options)

    def commit(
        self,
        action: Action,
        *,
        identity: CommitIdentity | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: Claim = None,
        floor: SnapshotRef | None = None,
    ) -> Committed:
        """Commit an action, once per identity. See `anabranch.kernel.commit.transaction.commit`.

        Where main was replaced meanwhile, rows of a batch go to the new main, if it has the schema they were written
        in. A streaming identity stays with the branch it belongs to, and is refused.

        Inside of `Lake.job` the commit says what the job has read, unless `properties` say where the rows come from.

        Afterwards the automatic tags and the savepoint that are due are made.
        """
        request = CommitRequest(
            action,
            identity or CommitIdentity.batch(self._context.runtime),
            properties or {},
            watermark,
            floor,
        )
        return self._commit(request, None)

    def _commit(self, request: CommitRequest, rows: Handed | None, seen: SeenHead | None = None) -> Committed:
        """Commit a request, with the lineage of the object whose rows these are."""
        self._check_unpinned()
        is_asked = _has_rows(request.action) and LINEAGE_PROPERTY not in request.properties
        job = current() if is_asked else None
        taken = None if job is None else job.taken(self._context.branch_uuid, rows)
        said: Mapping[str, str] = {}
        if job is not None and taken is not None:
            said = {LINEAGE_PROPERTY: job.entry(taken).to_json()}
        elif is_asked and not is_aside() and _brings_files(request.action):
            said = outside_of_jobs(self, rows)
        if said:
            request = replace(request, properties={**request.properties, **said})
        committed = self._committed(request, seen)
        if committed.repeated and self._once is not None:
            self._check_own(committed.snapshot, request)
        if job is not None and taken is not None:
            job.committed(self._context.branch_uuid, taken)
        self._last = committed.snapshot or self._last
        if committed.snapshot is not None:
            schema = self._context.schemas.get(committed.snapshot.schema_id)
            keep_due(self._context, {**schema.options, **self._options}, committed.snapshot)
        return committed

    def _check_own(self, made: Snapshot | None, request: CommitRequest) -> None:
        """Raise `CommitConflictError` if the commit of an identity was made by another run, which its lineage names."""
        own = request.properties.get(LINEAGE_PROPERTY)
        if made is None or own is None or made.properties.get(LINEAGE_PROPERTY) != own:
            which = "which has expired" if made is None else f"snapshot {made.id}"
            identity = f"{request.identity.user}, {request.identity.identifier}"
            raise CommitConflictError(
                f"a commit of this identity is there already in '{self._context.title}', {which} ({identity})",
                hint="nothing was added. Run it again: it goes on from what is there.",
            )

    def alter(self) -> Alter:
        """Start schema changes, to be collected and then applied together."""
        self._check_unpinned()
        context = self._follow()
        return Alter(context, context.schemas.latest())

    def _committed(self, request: CommitRequest, seen: SeenHead | None) -> Committed:
        while True:
            try:
                return commit(self._context, request, known_head=self._last, seen=seen)
            except SealedBranchError:
                seen = None
                sealed, action = self._context, request.action
                if not request.identity.is_batch or not isinstance(action, Append | Overwrite):
                    raise
                if self._follow() is sealed:
                    raise
                messages = carried_over(action.messages, sealed, self._context)
                request = replace(request, action=replace(action, messages=messages))

    def _write(self, data: Any, action: Any) -> Snapshot:
        beside = self._written_beside(data)
        if beside is not None:
            return self._publish(data, action, *beside)
        writer = self.writer()
        return self._publish(data, action, writer, self._files_of(data, data, writer))

    def _written_beside(self, data: Any) -> tuple[Writer, WrittenRows, SeenHead | None] | None:
        """Write rows while a store that is far away is asked whether main and its schema are as they were.

        The newest snapshot is asked for as well. If this view committed it, nobody else seems to write, so the commit can
        build on it at once; among several writers what was found before the rows were written is soon out of date.

        None if nothing is known yet, or is different now, or the rows could not be written again then: no file is left.
        """
        context, last = self._context, self._last
        schema = context.schemas.known
        if not context.storage.is_far or schema is None or last is None or not is_held(data):
            return None
        self._check_unpinned()
        check_writable(schema, path=context.layout.schema_path(schema.id))
        writer = Writer.of(context, schema, self._options)
        began = context.runtime.clock.now_millis()
        with reading(context.storage) as begin:
            followed, latest = begin(self._follow), begin(context.schemas.latest)
            newest = begin(partial(context.snapshots.head, last, strict=True))
            try:
                written = self._files_of(data, data, writer)
            except AnabranchError:
                if followed() is context and latest() is schema:
                    raise
                return None
            try:
                is_as_known = followed() is context and latest() is schema
            except AnabranchError:
                writer.abort(written.messages)
                raise
            if not is_as_known:
                writer.abort(written.messages)
                return None
            try:
                head = newest()
            except AnabranchError:
                head = None  # the commit looks again, and says so
        is_alone = head is not None and head.stamp == last.stamp
        return writer, written, SeenHead(head, schema, began) if is_alone else None

    def _append_merging(self, data: Any) -> Snapshot:
        """Append rows after adding the columns that they need to the schema."""
        self._check_unpinned()
        engine = self._engine
        for _ in range(_MOST_COLLISIONS):
            frame = engine.columns(data) if isinstance(engine, WritesFrames) else None
            rows = incoming(data, self.schema.fields) if frame is None else None
            columns = frame if rows is None else rows.fields
            is_repeatable = rows is None or rows.is_repeatable
            merge = SchemaMerge.of(self, columns or (), ignore_case=rows is None)
            check_writable(merge.schema, path=self._context.layout.schema_path(merge.schema.id))
            writer = Writer.of(self._context, merge.schema, self._options)
            written = self._files_of(
                data, data if rows is None else rows.batches, writer, planned=merge.schema
            )
            try:
                written = replace(written, messages=merge.stored(written.messages))
            except AnabranchError as error:
                writer.abort(written.messages)  # whatever became of the schema, nobody knows these files
                if not isinstance(error, CommitConflictError) or not is_repeatable:
                    raise
                continue
            try:
                return self._publish(data, Append, writer, written)
            except CommitConflictError as error:
                if not is_repeatable or [c.kind for c in error.conflicts] != ["SCHEMA_CHANGED"]:
                    raise
        raise CommitRetriesExhaustedError(
            f"the schema of '{self.name}' was changed by others {_MOST_COLLISIONS} times while rows were appended",
            hint="try again.",
        )

    def _files_of(
        self, data: Any, rows: Any, writer: Writer, *, planned: TableSchema | None = None
    ) -> WrittenRows:
        """Write the rows of `data` to new files; `rows` are these rows if this process writes them."""
        engine = self._engine
        if isinstance(engine, WritesFrames):
            written = engine.write(data, self, planned)
            if written is not None:
                return written
        written = WrittenRows(writer.write(convert(rows, writer.fields)))
        warning = load_warning(
            WriteLoad.of_messages([written.messages]), self.name, writer.context.all_options
        )
        if warning is not None:
            _LOG.warning(warning)
        return written

    def _publish(
        self, data: Any, action: Any, writer: Writer, written: WrittenRows, seen: SeenHead | None = None
    ) -> Snapshot:
        """Commit the files with the rows of `data`."""
        messages = written.messages
        rows = Handed((data.read_from(),), is_whole=True) if isinstance(data, Rows) else handed(data)
        watermark = claim(writer.table_schema, writer.context.all_options, messages)
        try:
            once = self._once
            identity = CommitIdentity.batch(self._context.runtime) if once is None else once.identity
            floor = None if once is None else once.floor
            request = CommitRequest(action(messages), identity, written.origin, watermark, floor)
            committed = self._commit(request, rows, seen)
        except NOT_PUBLISHED:
            writer.abort(messages)  # after any other error files stay
            raise
        assert committed.snapshot is not None
        written.told(self._context.branch_uuid)
        expire_now_and_then(self._context, self._options, committed.snapshot)
        return committed.snapshot

    def publish_first(self, data: Any, writer: Writer, messages: Sequence[CommitMessage]) -> Snapshot:
        """Commit rows that were written before the table existed. For `Lake.create_table`."""
        return self._publish(data, Append, writer, WrittenRows(messages))


def _has_rows(action: Action) -> bool:
    """Whether an action brings rows, instead of only rewriting files or removing rows."""
    return isinstance(action, Append | Overwrite)


def _brings_files(action: Action) -> bool:
    return isinstance(action, Append | Overwrite) and any(message.new_files for message in action.messages)
