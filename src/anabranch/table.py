"""A table as its users hold it: thin, over the kernel and the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from anabranch.alter import Alter
from anabranch.arrow.convert import convert
from anabranch.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.expr.values import parse_timestamp
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.base import Action
from anabranch.kernel.commit_message import CommitMessage
from anabranch.kernel.context import TableContext
from anabranch.kernel.guards import check_snapshot_readable
from anabranch.kernel.identity import CommitIdentity
from anabranch.kernel.plan import Plan
from anabranch.kernel.refs import at_or_before, branch_names, open_branch, resolve, snapshot_of, tag_names
from anabranch.kernel.scan import ScanRequest
from anabranch.kernel.transaction import CommitRequest, Committed, commit
from anabranch.options import BRANCH, DYNAMIC_PARTITION_OVERWRITE, check_options
from anabranch.scan import Scan, check_columns
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot
from anabranch.spec.snapshot_ref import SnapshotRef
from anabranch.spec.support import check_readable, check_writable
from anabranch.write import Writer

_NOT_PUBLISHED = (
    *(CommitConflictError, CommitRetriesExhaustedError),
    *(InvalidInputError, NotFoundError, UnsupportedFeatureError),
)
"""After these errors nothing of a commit can ever become visible, so its files may go."""


class Table:
    """One branch of a table, at its newest state or pinned to a moment."""

    def __init__(
        self,
        context: TableContext,
        *,
        pinned: Snapshot | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._context = context
        self._pinned = pinned
        self._options = dict(options or {})
        self._last: Snapshot | None = None
        check_options(self._options)

    def __repr__(self) -> str:
        at = "" if self._pinned is None else f" at snapshot {self._pinned.id}"
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
            return self._context.schemas.get(self._pinned.schema_id)
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
        return self._pinned or self._context.snapshots.head()

    def snapshots(self) -> Iterator[Snapshot]:
        """Retained snapshots, newest first."""
        head = self.snapshot
        return iter(()) if head is None else self._context.snapshots.backwards(head)

    def tags(self) -> list[str]:
        """Names of the tags of this branch."""
        return tag_names(self._context)

    def branches(self) -> list[str]:
        """Names of the branches besides main."""
        return branch_names(self._context)

    # Other views of it

    def at(self, version: str | int | None = None, *, timestamp: str | int | None = None) -> Table:
        """The table at a moment, with the schema of that moment.

        Args:
            version: a snapshot id, ``snapshot.N`` or a tag's name.
            timestamp: text such as ``2026-01-01 00:00:00`` (UTC unless it names a zone) or epoch
                milliseconds; the newest snapshot at or before it is taken.

        Raises:
            NotFoundError: nothing is there; the message says what is.
        """
        if (version is None) == (timestamp is None):
            raise InvalidInputError("at() takes either a version or a timestamp")
        if version is not None:
            found = resolve(self._context, version)
        else:
            assert timestamp is not None
            found = at_or_before(self._context, _millis(timestamp))
        return Table(self._context, pinned=found, options=self._options)

    def branch(self, name: str) -> Table:
        """The table on another branch. Raises `NotFoundError`."""
        branch = None if name == "main" else name
        root = self._context.on_branch(None)
        return Table(root if branch is None else open_branch(root, branch), options=self._options)

    def with_options(self, options: Mapping[str, str]) -> Table:
        """The view that these options ask for, over those it has: branch, moment, settings of a read.

        Raises `NotFoundError` if the branch, snapshot or tag does not exist, `OptionError`.
        """
        merged = {**self._options, **options}
        check_options(merged)
        branch = BRANCH.of(options)
        view = self if branch is None else self.branch(branch)
        pinned = snapshot_of(view.context, options) or (self._pinned if branch is None else None)
        return Table(view.context, pinned=pinned, options=merged)

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
        schema = self.schema
        self._check_readable(schema, self.snapshot)
        return Scan(
            self._context,
            self.snapshot,
            schema,
            self.predicate(filter),
            check_columns(columns, schema),
            limit,
            self._options,
        )

    def predicate(self, filter: str | Predicate | None) -> BoundPredicate | None:
        """A filter bound to this view's columns. Raises `PredicateError`."""
        if filter is None:
            return None
        return bind(parse(filter) if isinstance(filter, str) else filter, self.schema.fields)

    def plan_delta(self, snapshot: Snapshot, filter: str | Predicate | None = None) -> Plan:
        """The files that one snapshot added, in the schema of this view."""
        schema = self.schema
        self._check_readable(schema, snapshot)
        predicate = self.predicate(filter)
        return ScanRequest(self._context, snapshot, schema, predicate, None, self._options).plan_delta()

    # Writing

    def append(self, data: Any) -> Snapshot:
        """Add rows: a pyarrow table, batches or reader, a pandas or Polars frame, or a list of dicts.

        A Spark DataFrame comes through the driver as well; large ones are better written by Spark itself,
        with ``df.write.format("anabranch")``.

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
        """Make an action permanent, once per identity. See `anabranch.kernel.transaction.commit`."""
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
        return committed

    def alter(self) -> Alter:
        """Schema changes to collect and then apply together."""
        self._check_unpinned()
        return Alter(self._context)

    def _write(self, data: Any, action: Any) -> Snapshot:
        writer = self.writer()
        messages = writer.write(convert(data, writer.table_schema.fields))
        try:
            committed = self.commit(action(messages))
        except _NOT_PUBLISHED:
            writer.abort(messages)  # after any other error files stay
            raise
        assert committed.snapshot is not None
        return committed.snapshot

    def _check_readable(self, schema: TableSchema, snapshot: Snapshot | None) -> None:
        check_readable(schema, path=self._context.layout.schema_path(schema.id))
        if snapshot is not None:
            check_snapshot_readable(self._context, snapshot)

    def _check_unpinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                f"'{self.name}' is pinned to snapshot {self._pinned.id}: the past cannot be written",
                hint="write to the table itself, or to a branch.",
            )


def _millis(moment: str | int) -> int:
    if isinstance(moment, int):
        return moment
    parsed = parse_timestamp(moment)
    if parsed is None:
        raise InvalidInputError(
            f"'{moment}' is no moment", hint="write 2026-01-31 12:00:00, with a zone if it is not UTC."
        )
    return parsed.nanos // 1_000_000
