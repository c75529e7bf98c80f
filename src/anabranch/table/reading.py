"""Reading a table: rows, and what the table knows of itself."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import ScanRequest
from anabranch.options import SCAN_MODE, SCAN_ON_OVERWRITE
from anabranch.read import Reader
from anabranch.scan import Changes, Scan, check_columns
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position
from anabranch.streaming.tail import Follower, Tail, check_range
from anabranch.system_tables import View, read_system_table
from anabranch.table.view import TableView


class Reading(TableView):
    """The part of a table that reads."""

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

    def changes(
        self,
        start: int,
        end: int | None = None,
        *,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        on_overwrite: str | None = None,
    ) -> Changes:
        """Rows that were appended after snapshot `start` up to `end`, in today's columns and the order of the commits.

        Args:
            start: the last snapshot that is known already; 0 for all there ever were.
            end: the last one wanted; the newest if None.
            filter: as in `scan`.
            columns: as in `scan`.
            on_overwrite: ``fail``, ``skip`` or ``added`` for snapshots that took rows away; the option
                `scan.on-overwrite` if None.

        Raises:
            InvalidInputError: there is no such range.
            NotFoundError: when rows are asked for: some of the snapshots have expired.
        """
        head = self._context.snapshots.head() if self._pinned is None else self._pinned.snapshot
        last = check_range(start, end, 0 if head is None else head.id)
        feed = self._feed(self.schema, filter, on_overwrite)
        chosen = check_columns(columns, feed.schema)
        return Changes(feed, Position(start, None), Position(last, None), chosen)

    def tail(
        self,
        consumer: str | None = None,
        start: str = "latest-full",
        *,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        idle: float | None = None,
    ) -> Tail[pa.RecordBatch]:
        """Follow the branch: batches of the rows there are, then of those that are added, as they are.

        A consumer remembers the position and keeps from expiring what it has not read. It moves on when the next
        batch is asked for after the last one of a snapshot: what a dead process had not worked through comes again.

        Args:
            consumer: name of the consumer; one that exists goes on where it was, whatever `start` says.
            start: ``latest-full``, ``latest``, or ``from-snapshot`` with the option `scan.snapshot-id`.
            filter: as in `scan`.
            columns: as in `scan`.
            idle: end when nothing was added for so many seconds, 0 for what there is now; never if None.

        Raises what `scan` does, and when it is iterated `NotFoundError` if history does not go on from there.
        """
        self._check_unpinned()
        schema = self.schema
        self._check_readable(schema, self.snapshot)
        feed = self._feed(schema, filter, None)
        reader = Reader(self._context, schema.fields, check_columns(columns, schema), feed.predicate)
        options = {**self._options, SCAN_MODE.key: start}
        return Tail(Follower(feed, options, consumer), reader.read, idle)

    def _feed(self, schema: TableSchema, filter: str | Predicate | None, on_overwrite: str | None) -> Feed:
        asked = {SCAN_ON_OVERWRITE.key: on_overwrite} if on_overwrite is not None else {}
        how = SCAN_ON_OVERWRITE.of({**self._options, **asked})
        return Feed(self._context, schema, how, _bound(filter, schema))

    def predicate(self, filter: str | Predicate | None) -> BoundPredicate | None:
        """A filter bound to this view's columns. Raises `PredicateError`."""
        return _bound(filter, self.schema)

    def plan_delta(self, snapshot: Snapshot, filter: str | Predicate | None = None) -> Plan:
        """The files that one snapshot added, in the schema of this view."""
        schema = self.schema
        self._check_readable(schema, snapshot)
        predicate = _bound(filter, schema)
        return ScanRequest(self._context, snapshot, schema, predicate, None, self._options).plan_delta()

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


def _bound(filter: str | Predicate | None, schema: TableSchema) -> BoundPredicate | None:
    if filter is None:
        return None
    return bind(parse(filter) if isinstance(filter, str) else filter, schema.fields)
