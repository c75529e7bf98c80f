"""A table as its users hold it: thin, over the kernel and the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from anabranch.alter import Alter
from anabranch.arrow.convert import convert
from anabranch.engine import Engine, LocalEngine, WritesFrames
from anabranch.errors import InvalidInputError
from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.base import Action
from anabranch.kernel.commit_message import CommitMessage
from anabranch.kernel.compaction.selection import Partitions
from anabranch.kernel.context import TableContext
from anabranch.kernel.expiry import Expiry, Tally
from anabranch.kernel.guards import check_snapshot_readable
from anabranch.kernel.health import Health, health
from anabranch.kernel.identity import CommitIdentity
from anabranch.kernel.moment import Moment, newest, of_tag
from anabranch.kernel.moments import named_moment, resolve, to_millis
from anabranch.kernel.plan import Plan
from anabranch.kernel.refs import branch_names, open_branch
from anabranch.kernel.savepoint_log import savepoints
from anabranch.kernel.savepoints import create_savepoint, delete_savepoint
from anabranch.kernel.scan import ScanRequest
from anabranch.kernel.tag_log import get_tag, is_internal, tag_names
from anabranch.kernel.tags import create_tag, delete_tag, parse_retained, rename_tag, replace_tag
from anabranch.kernel.time_travel import at_time, at_watermark
from anabranch.kernel.transaction import NOT_PUBLISHED, CommitRequest, Committed, commit
from anabranch.kernel.upkeep import keep_due
from anabranch.maintenance.compact import CompactionResult, compact
from anabranch.maintenance.expire import expire_snapshots
from anabranch.maintenance.maintain import Upkeep, maintain
from anabranch.maintenance.orphans import Cleaning, remove_orphan_files, restore_orphan_files
from anabranch.maintenance.rollback import RollbackResult, rollback
from anabranch.maintenance.sort import sort_compact
from anabranch.options import BRANCH, DYNAMIC_PARTITION_OVERWRITE, check_options, parse_duration
from anabranch.savepoint_manager import SavepointManager
from anabranch.scan import Scan, check_columns
from anabranch.spec.per_use import asks_of_the_table, refuse_table_options
from anabranch.spec.refs import Tag
from anabranch.spec.savepoint import Savepoint
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot
from anabranch.spec.snapshot_ref import SnapshotRef
from anabranch.spec.support import check_readable, check_writable
from anabranch.system_tables import View, read_system_table
from anabranch.write import Writer


class Table:
    """One branch of a table, at its newest state or pinned to a moment."""

    def __init__(
        self,
        context: TableContext,
        *,
        pinned: Moment | None = None,
        options: Mapping[str, str] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._context = context
        self._pinned = pinned
        self._engine = engine or LocalEngine()
        self._options = dict(options or {})
        self._last: Snapshot | None = None
        check_options(self._options)
        if asks_of_the_table(self._options):
            refuse_table_options(self._options, self.schema)

    def __repr__(self) -> str:
        at = "" if self._pinned is None else f" at {self._pinned}"
        return f"<Table {self._context.title}{at}>"

    # What it is

    @property
    def context(self) -> TableContext:
        """The kernel's view of this branch."""
        return self._context

    @property
    def name(self) -> str:
        """``database.table``, with ``$branch_<name>`` on a branch."""
        return self._context.title

    @cached_property
    def table_uuid(self) -> str:
        """Identity of the table; it survives renaming."""
        return self._context.table_uuid

    @property
    def branch_uuid(self) -> str:
        """Identity of this branch; main's is the table's."""
        return self._context.branch_uuid

    @property
    def schema(self) -> TableSchema:
        """The newest schema, or that of the pinned moment."""
        if self._pinned is not None:
            return self._context.schemas.get(self._pinned.snapshot.schema_id)
        latest = self._context.schemas.latest()
        assert latest is not None, "an open table has a schema"
        return latest

    def schemas(self) -> list[TableSchema]:
        """All schema versions, oldest first."""
        return [self._context.schemas.get(i) for i in self._context.schemas.ids()]

    @property
    def options(self) -> dict[str, str]:
        """Options of the table, with those of this view over them."""
        return {**self.schema.options, **self._options}

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot or the pinned one; None for a table that was never written."""
        return self._context.snapshots.head() if self._pinned is None else self._pinned.snapshot

    @property
    def moment(self) -> Moment | None:
        """What this view is pinned to: the snapshot, by what it was found, and how far it is from what was asked.

        None for the table at its newest state.
        """
        return self._pinned

    def snapshots(self) -> Iterator[Snapshot]:
        """Retained snapshots, newest first."""
        head = self.snapshot
        return iter(()) if head is None else self._context.snapshots.backwards(head)

    def tags(self, *, include_internal: bool = False) -> list[str]:
        """Names of the tags of this branch, sorted; those the table made for itself only if asked for."""
        return [name for name in tag_names(self._context) if include_internal or not is_internal(name)]

    def savepoints(self) -> list[Savepoint]:
        """The savepoints of this branch, oldest number first."""
        return savepoints(self._context)

    @property
    def savepoint_manager(self) -> SavepointManager:
        """The savepoints of this branch, one by one and by path."""
        return SavepointManager(self._context)

    def branches(self) -> list[str]:
        """Names of the branches besides main."""
        return branch_names(self._context)

    def system(self, name: str) -> pa.Table:
        """A system table of this view: what the table knows of itself.

        Args:
            name: ``snapshots``, ``schemas``, ``options``, ``files``, ``manifests``, ``partitions``, ``buckets``,
                ``tags``, ``savepoints``, ``branches``, ``consumers`` or ``lineage``.

        Returns:
            All its rows. Of a view of the past, those of that moment.

        Raises:
            NotFoundError: there is no such system table; the hint names the one that was probably meant.
            InvalidInputError: it tells only of now, but this is a view of the past.
        """
        view = View(self._context, self.snapshot, self.schema, pinned=self._pinned is not None)
        return read_system_table(view, name)

    # Other views of it

    def at(
        self,
        version: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        watermark: int | None = None,
        exact: bool = False,
    ) -> Table:
        """The table at a moment, with the schema of that moment. Its `moment` says what was found.

        Args:
            version: a snapshot id, ``snapshot.N``, ``savepoint.N``, ``watermark-N`` or a tag's name.
            timestamp: text such as ``2026-01-01 00:00:00`` (UTC unless it names a zone), a datetime, or epoch
                milliseconds: the newest that was committed at that time or before it is taken, over snapshots
                and savepoints together.
            watermark: epoch milliseconds: the first whose watermark is at least that is taken.
            exact: refuse an answer by time or watermark if what has expired might be a better one.

        Raises:
            NotFoundError: nothing is there; the message says what is.
            InvalidInputError: the version names several things, or the timestamp is no time.
        """
        if sum(asked is not None for asked in (version, timestamp, watermark)) != 1:
            raise InvalidInputError("at() takes either a version, a timestamp or a watermark")
        if version is not None:
            found = resolve(self._context, version, exact=exact)
        elif timestamp is not None:
            found = at_time(self._context, to_millis(timestamp), exact=exact)
        else:
            assert watermark is not None
            found = at_watermark(self._context, watermark, exact=exact)
        return self._pinned_to(found)

    def tag(self, name: str) -> Table:
        """The table at a tag, by its exact name, whatever else might be called so. Raises `NotFoundError`."""
        return self._pinned_to(of_tag(get_tag(self._context, name)))

    def branch(self, name: str) -> Table:
        """The table on another branch. Raises `NotFoundError`."""
        branch = None if name == "main" else name
        root = self._context.on_branch(None)
        found = root if branch is None else open_branch(root, branch)
        return Table(found, options=self._options, engine=self._engine)

    def with_options(self, options: Mapping[str, str]) -> Table:
        """The view that these options ask for, over those it has: branch, moment, settings of a read.

        Raises `NotFoundError` if the branch, snapshot or tag does not exist, `OptionError`.
        """
        merged = {**self._options, **options}
        check_options(merged)
        branch = BRANCH.of(options)
        view = self if branch is None else self.branch(branch)
        pinned = named_moment(view.context, options) or (self._pinned if branch is None else None)
        return Table(view.context, pinned=pinned, options=merged, engine=self._engine)

    # Reading

    def scan(
        self,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Scan:
        """A read of this view; nothing is read yet.

        Args:
            filter: SQL text such as ``dt = '2026-01-01' AND price > 10``, or an expression of `anabranch.col`.
            columns: names of the columns to return, in that order; all if None.
            limit: the most rows to return.

        Raises:
            PredicateError, SchemaError: the filter or a column does not fit the table.
            UnsupportedFeatureError: the table uses something that is not implemented.
        """
        snapshot = self.snapshot
        schema = self.schema  # after the snapshot: no file of it is of a later schema
        self._check_readable(schema, snapshot)
        return Scan(
            self._context,
            snapshot,
            schema,
            _bound(filter, schema),
            check_columns(columns, schema),
            limit,
            self._options,
        )

    def predicate(self, filter: str | Predicate | None) -> BoundPredicate | None:
        """A filter bound to this view's columns. Raises `PredicateError`."""
        return _bound(filter, self.schema)

    def plan_delta(self, snapshot: Snapshot, filter: str | Predicate | None = None) -> Plan:
        """The files that one snapshot added, in the schema of this view."""
        schema = self.schema
        self._check_readable(schema, snapshot)
        predicate = _bound(filter, schema)
        return ScanRequest(self._context, snapshot, schema, predicate, None, self._options).plan_delta()

    # Writing

    def append(self, data: Any) -> Snapshot:
        """Add rows: a pyarrow table, batches or reader, a pandas or Polars frame, or a list of dicts.

        A Spark DataFrame is written by the tasks of its session, clustered by partition and bucket (see
        `anabranch.spark.cluster`); in a queue its rows keep their order.

        Columns go by name. Missing nullable columns become null; unknown ones are an error.

        Raises:
            SchemaError: the data does not fit; nothing was written.
            CommitError: see `anabranch.errors`.
        """
        return self._write(data, Append)

    def overwrite(self, data: Any, partition: Mapping[str, Any] | None = None) -> Snapshot:
        """Replace rows by `data`.

        Without `partition`, a partitioned table loses exactly the partitions that occur in `data` (option
        ``dynamic-partition-overwrite``), an unpartitioned one all its rows. With `partition`, for example
        ``{"dt": "2026-01-01"}``, all rows of it are replaced and `data` must lie inside of it.
        """
        return self._write(data, lambda messages: self.overwriting(messages, partition))

    def overwriting(
        self, messages: Sequence[CommitMessage], partition: Mapping[str, Any] | None = None
    ) -> Overwrite:
        """The action that replaces rows by the files of these messages. Raises `InvalidInputError`."""
        schema = self.schema
        if partition is not None:
            return Overwrite.of_partition(messages, partition, schema)
        dynamic = bool(schema.partition_keys) and DYNAMIC_PARTITION_OVERWRITE.of(self.options)
        return Overwrite(messages, dynamic=dynamic)

    def writer(self) -> Writer:
        """What writes data files for a later `commit`, here or in another process.

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
        watermark: int | None = None,
        floor: SnapshotRef | None = None,
    ) -> Committed:
        """Make an action permanent, once per identity. See `anabranch.kernel.transaction.commit`.

        Afterwards the automatic tags and the savepoint that are due are made.
        """
        self._check_unpinned()
        request = CommitRequest(
            action,
            identity or CommitIdentity.batch(self._context.runtime),
            properties or {},
            watermark,
            floor,
        )
        committed = commit(self._context, request, known_head=self._last)
        self._last = committed.snapshot or self._last
        if committed.snapshot is not None:
            schema = self._context.schemas.get(committed.snapshot.schema_id)
            keep_due(self._context, {**schema.options, **self._options}, committed.snapshot)
        return committed

    def alter(self) -> Alter:
        """Schema changes to collect and then apply together."""
        self._check_unpinned()
        return Alter(self._context, self._context.schemas.latest())

    # Moments that are kept

    def create_tag(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        retained: str | int | None = None,
    ) -> Tag:
        """Name a moment, which keeps it from expiring.

        Args:
            name: of the new tag.
            snapshot: what to name, as `at` takes it; by default what this view shows.
            timestamp: name the table as it was at this time instead, as `at` takes it.
            retained: how long to keep it, such as ``7 d``; option `tag.default-time-retained` if None.

        Raises:
            InvalidNameError: a new tag must not be called so.
            AlreadyExistsError: there is such a tag.
            NotFoundError: there is no such moment.
        """
        moment = self._moment(snapshot, timestamp)
        return create_tag(self._context, name, moment, retained=parse_retained(retained))

    def delete_tag(self, name: str) -> Tag:
        """Remove a tag. Files that only it kept go with the next expiry. Raises `NotFoundError`."""
        return delete_tag(self._context, name)

    def rename_tag(self, name: str, new_name: str) -> Tag:
        """Give a tag another name. Raises `NotFoundError`, `AlreadyExistsError`, `InvalidNameError`."""
        return rename_tag(self._context, name, new_name)

    def replace_tag(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        retained: str | int | None = None,
    ) -> Tag:
        """Let a tag name another moment, at once. Arguments as for `create_tag`.

        Without `retained` it is kept as long as it was to be kept so far, from now on. Raises `NotFoundError`.
        """
        moment = self._moment(snapshot, timestamp)
        return replace_tag(self._context, name, moment, retained=parse_retained(retained))

    def create_savepoint(
        self, snapshot: str | int | None = None, *, timestamp: str | int | datetime | None = None
    ) -> Savepoint:
        """Keep a moment for good, under the next number: ``at("savepoint.3")`` reads it.

        Args:
            snapshot: what to keep, as `at` takes it; by default what this view shows.
            timestamp: keep the table as it was at this time instead, as `at` takes it.

        Raises `NotFoundError`: there is no such moment.
        """
        return create_savepoint(self._context, self._moment(snapshot, timestamp))

    def delete_savepoint(self, savepoint_id: int) -> Savepoint:
        """Let go of a savepoint; its number is never given out again. Raises `NotFoundError`."""
        return delete_savepoint(self._context, savepoint_id)

    # Upkeep

    def compact(
        self, full: bool = False, partitions: Partitions | None = None, idle: str | None = None
    ) -> CompactionResult:
        """Rewrite small files as larger ones, while everybody keeps reading and writing.

        Where there is nothing to gain nothing is committed. Rows stay as they are, and those of a queue in
        their order.

        Args:
            full: leave no small file, however few there are.
            partitions: only these: a condition such as ``dt < '2026-01-01'``, or partition values as a dict or a
                list of dicts.
            idle: only partitions that have got no file for so long, such as ``1 h``.

        Raises:
            InvalidInputError: `partitions` or `idle` cannot be read, or this view is pinned.
            CommitError, StorageError: it could not be brought to its end; what was finished is committed.
        """
        self._check_unpinned()
        return compact(
            self._context,
            self._options,
            engine=self._engine,
            full=full,
            partitions=partitions,
            idle_millis=None if idle is None else _duration(idle),
        )

    def health(self) -> Health:
        """How the table is: small files, what compaction would gain, and the commands that mend it."""
        schema, snapshot = self.schema, self.snapshot
        self._check_readable(schema, snapshot)
        return health(self._context, snapshot, schema, self.options)

    def sort_compact(
        self, by: Sequence[str], strategy: str = "zorder", partitions: Partitions | None = None
    ) -> CompactionResult:
        """Rewrite whole partitions with their rows sorted, so that queries on these columns skip most files.

        Rows stay the same and streams see nothing of it. What is appended meanwhile stays as it is; a partition
        of which others rewrote files meanwhile is given up, and it alone.

        Args:
            by: columns of atomic types, no partition columns.
            strategy: ``order`` sorts by the first column, then by the second and so on; ``zorder`` and ``hilbert``
                keep rows together that are near in all of them.
            partitions: only these, as `compact` takes them.

        Raises:
            SchemaError: a column does not exist or cannot be sorted by.
            InvalidInputError: `by`, `strategy` or `partitions` cannot be read, or this view is pinned.
            UnsupportedFeatureError: the table is a queue, whose order sorting would destroy.
            CommitError, StorageError: it could not be brought to its end; what was finished is committed.
        """
        self._check_unpinned()
        return sort_compact(
            self._context, self._options, engine=self._engine, by=by, strategy=strategy, partitions=partitions
        )

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: str | int | None = None,
        dry_run: bool = False,
    ) -> Expiry:
        """Remove old snapshots of this branch, and the files that no ref of any branch reaches then.

        What tags, savepoints and branches reach stays; snapshots that a consumer has not read stay as well. At
        least two snapshots are kept. See the page on expiry.

        Args:
            retain_max: keep at most so many snapshots; the option ``snapshot.num-retained.max`` if None.
            retain_min: keep at least so many; ``snapshot.num-retained.min`` if None.
            older_than: expire what was replaced before: an age such as ``1 d``, a time such as ``2026-01-31 12:00:00``
                or epoch milliseconds; ``snapshot.time-retained`` if None.
            dry_run: find out only.

        Raises:
            CorruptTableError: what stays cannot be read in full; nothing was deleted.
            UnsupportedFeatureError: the table uses something that this version does not know; nothing was deleted.
            InvalidInputError: an argument cannot be used.
        """
        self._check_unpinned()
        return expire_snapshots(
            self._context,
            self.options,
            retain_max=retain_max,
            retain_min=retain_min,
            older_than=older_than,
            engine=self._engine,
            dry_run=dry_run,
        )

    def remove_orphan_files(self, older_than: str | int = "1 d", dry_run: bool = False) -> Cleaning:
        """Move the files that no ref of any branch reaches out of the way, and purge what was moved before.

        Args:
            older_than: spares what was stored, and moved, since: an age, a time or epoch milliseconds, as in
                `expire_snapshots`. It must be longer than the longest write takes.
            dry_run: find out only.

        Raises:
            CorruptTableError: a ref, or what it names, cannot be read; nothing was moved.
            UnsupportedFeatureError: the table uses something that this version does not know; nothing was moved.
        """
        self._check_unpinned()
        return remove_orphan_files(self._context, older_than=older_than, engine=self._engine, dry_run=dry_run)

    def restore_orphan_files(self, run: int) -> Tally:
        """Bring back what a run of `remove_orphan_files` moved, until a later run purges it. Raises `NotFoundError`."""
        return restore_orphan_files(self._context, run, engine=self._engine)

    def maintain(self, dry_run: bool = False) -> Upkeep:
        """Compact, expire snapshots and clean up, as the table's options say. Raises what these three raise.

        Args:
            dry_run: find out only.
        """
        self._check_unpinned()
        return maintain(self._context, self.options, engine=self._engine, dry_run=dry_run)

    def rollback(
        self, version: str | int, *, destructive: bool = False, force: bool = False, dry_run: bool = False
    ) -> RollbackResult:
        """Go back to an earlier moment of this branch.

        By default one new snapshot is committed whose live files are those of the moment: nothing of the history
        in between goes away, and rolling back can itself be rolled back. Rows are read under the newest schema;
        the watermark stays. What others append meanwhile is rolled away if it lands before, and stays if it
        lands after.

        Args:
            version: a snapshot's id, ``snapshot.N``, ``savepoint.N`` or the name of a tag.
            destructive: remove the snapshots after the moment for good instead. The schema stays the newest.
            force: of a destructive rollback, also remove what refers to them: tags, savepoints, branches and
                consumers; streaming queries that committed in between must start anew.
            dry_run: only return what would be done.

        Raises:
            NotFoundError: there is no such moment.
            CommitConflictError: data files of the moment are gone; or, if destructive, something refers to what
                would be removed (``conflicts`` lists it) or the moment is not part of the current history.
            CommitError: see `anabranch.errors`.
        """
        self._check_unpinned()
        return rollback(self._context, version, destructive=destructive, force=force, dry_run=dry_run)

    def _write(self, data: Any, action: Any) -> Snapshot:
        writer = self.writer()
        engine = self._engine
        messages = engine.write(data, self) if isinstance(engine, WritesFrames) else None
        if messages is None:
            messages = writer.write(convert(data, writer.table_schema.fields))
        try:
            committed = self.commit(action(messages))
        except NOT_PUBLISHED:
            writer.abort(messages)  # after any other error files stay
            raise
        assert committed.snapshot is not None
        return committed.snapshot

    def _pinned_to(self, moment: Moment) -> Table:
        return Table(self._context, pinned=moment, options=self._options, engine=self._engine)

    def _moment(self, version: str | int | None, timestamp: str | int | datetime | None) -> Moment:
        """What to keep. Raises `NotFoundError`, `InvalidInputError`."""
        if version is not None and timestamp is not None:
            raise InvalidInputError("a moment is named either by a snapshot or by a timestamp")
        if version is not None:
            return resolve(self._context, version)
        if timestamp is not None:
            return at_time(self._context, to_millis(timestamp))
        return self._pinned or newest(self._context)

    def _check_readable(self, schema: TableSchema, snapshot: Snapshot | None) -> None:
        check_readable(schema, path=self._context.layout.schema_path(schema.id))
        if snapshot is not None:
            check_snapshot_readable(self._context, snapshot)

    def _check_unpinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                f"'{self.name}' is pinned to {self._pinned.name}: the past cannot be written",
                hint="write to the table itself, or to a branch.",
            )


def _bound(filter: str | Predicate | None, schema: TableSchema) -> BoundPredicate | None:
    if filter is None:
        return None
    return bind(parse(filter) if isinstance(filter, str) else filter, schema.fields)


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInputError(
            f"'{text}' is no duration", hint="write a number and its unit: 30 s, 10 min, 1 h, 2 d."
        ) from error
