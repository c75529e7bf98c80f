"""Reads of a table: rows, and system tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import CorruptTableError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.branch_log import newest_schema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import ScanRequest
from anabranch.lineage.reads import note_step, range_read
from anabranch.lineage.remembered import hand_out
from anabranch.option_kinds import Option
from anabranch.options import (
    MAX_BYTES_PER_TRIGGER,
    MAX_FILES_PER_TRIGGER,
    MAX_ROWS_PER_TRIGGER,
    SCAN_LATE_ROWS,
    SCAN_ON_OVERWRITE,
)
from anabranch.scan.feed import FeedReader
from anabranch.scan.scan import Changes, Scan, check_columns, check_limit
from anabranch.streaming.between import between_of, number_of
from anabranch.streaming.course import Course, Place
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import FeedSplit, Position
from anabranch.streaming.pace import limits_of
from anabranch.streaming.tail import Follower, Tail, check_range, start_options
from anabranch.system_tables import (
    View,
    read_system_parts,
    read_system_table,
    select_parts,
    system_table,
)
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.table.plotting import Chart


class ReadMethods(TableView):
    """Table methods that read."""

    def scan(
        self,
        filter: str | Predicate | None = None,
        columns: str | Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Create a scan of this view; nothing is read yet.

        Args:
            filter: SQL text such as ``dt = '2026-01-01' AND price > 10``, or an expression of `anabranch.col`.
            columns: names of the columns to return, in that order; all if None. Text is one column. Besides the table's
                there are `_file`, `_row_position`, `_partition`, `_bucket`, `_snapshot_added` and `_commit_time`, for who
                names them.
            limit: the most rows to return; 0 for none, all if None.

        Raises:
            PredicateError, SchemaError: the filter or a column does not fit the table.
            UnsupportedFeatureError: the table uses something that is not implemented.
        """
        snapshot, schema = self._newest()
        self._check_readable(schema, snapshot)
        between = between_of(self._context, self._options, 0 if snapshot is None else snapshot.id)
        return Scan(
            self._context,
            snapshot,
            schema,
            _bound(filter, schema),
            check_columns(columns, schema, metadata=True),
            check_limit(limit),
            self._options,
            self._engine,
            between=between,
        )

    def changes(
        self,
        start: int | str,
        end: int | str | None = None,
        *,
        filter: str | Predicate | None = None,
        columns: str | Sequence[str] | None = None,
        on_overwrite: str | None = None,
        late_rows: str | None = None,
    ) -> Changes:
        """Return rows that were appended after snapshot `start` up to `end`, in the current columns.

        Partitions come in the order of their creation, or of their values with the option
        `scan.plan-sort-partition`; rows of one bucket of a queue in the order in which they were written.

        Args:
            start: the last snapshot that is known already; 0 for all there ever were. Its number in the history that this
                view is of, or as `at` takes it: ``snapshot.5``, ``savepoint.2`` or a tag.
            end: the last one wanted; the newest if None.
            filter: as in `scan`.
            columns: as in `scan`.
            on_overwrite: ``fail``, ``skip``, ``added`` or ``changes`` for snapshots that took rows away; the option
                `scan.on-overwrite` if None. With ``changes`` a column ``_change`` says of every row whether it is an
                ``insert`` or a ``delete``; in a bucket of a queue those that a snapshot took away come before those it added.
            late_rows: ``keep``, ``drop`` or ``only``; the option `scan.late-rows` if None.

        Raises:
            InvalidInputError: there is no such range.
            OptionError: late rows are asked for, but the table has no watermark definition.
            NotFoundError: when rows are asked for: some of the snapshots have expired.
        """
        head = self.snapshot
        start = number_of(self._context, start)
        last = check_range(
            start, None if end is None else number_of(self._context, end), 0 if head is None else head.id
        )
        asked = _given({SCAN_ON_OVERWRITE: on_overwrite, SCAN_LATE_ROWS: late_rows})
        feed = replace(self._feed(self._schema, filter, asked), bounded_watermark=None)
        chosen = check_columns(columns, feed.schema)
        return Changes(feed, Position(start, None), Position(last, None), chosen)

    def late_rows(self, start: int = 0, end: int | None = None) -> int:
        """Return the number of late rows among those appended after snapshot `start` up to `end`.

        A row is late if its event time is smaller than the watermark that the table had before its snapshot: the
        same rows for every reader. Only files are read whose statistics leave it open. Of the first snapshot that is
        left after others have expired no row is counted, because the watermark before it is not known any more.

        Args:
            start: the last snapshot that is not to be counted; 0 for all there ever were.
            end: the last one that is; the newest if None.

        Raises as `changes`.
        """
        return self.changes(start, end, on_overwrite="added", late_rows="only").count()

    @property
    def watermark(self) -> int | None:
        """Watermark of this view's snapshot, epoch milliseconds: up to this event time the table is complete.

        None as long as no commit has recorded one.
        """
        snapshot = self.snapshot
        return None if snapshot is None else snapshot.watermark

    def tail(
        self,
        consumer: str | None = None,
        start: str | int = "latest-full",
        *,
        filter: str | Predicate | None = None,
        columns: str | Sequence[str] | None = None,
        idle: float | None = None,
        on_overwrite: str | None = None,
        late_rows: str | None = None,
        max_rows: int | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
    ) -> Tail[pa.RecordBatch]:
        """Follow the branch: batches of its current rows, then of those that are added, as they are.

        Iterate with ``for``, or with ``async for`` without holding up the event loop. A consumer remembers the
        position and keeps from expiring what it has not read. It moves on when the next batch is asked for after the
        last one of a step: what a dead process had not worked through comes again.

        Args:
            consumer: name of the consumer; one that exists goes on where it was, whatever `start` says.
            start: a `scan.mode`: ``latest-full``, ``latest``, or ``from-snapshot``, ``from-snapshot-full`` or
                ``from-timestamp`` with the option that says where; or a moment to begin with what was added in it:
                ``snapshot.5`` or 5, ``savepoint.2``, ``watermark-1000``, or the name of a tag. Of a view of a moment,
                such as ``t.at("good")``, ``latest-full`` is all rows of that moment, and then what was added after.
            filter: as in `scan`.
            columns: as in `scan`.
            idle: end when nothing was added for so many seconds, 0 for what there is now; never if None.
            on_overwrite: as in `changes`.
            late_rows: as in `changes`.
            max_rows: rows of one step, after which the consumer moves on; never less than one file.
            max_files: data files of one step.
            max_bytes: bytes of the files of one step.

        Raises what `scan` does; and when it is iterated over `NotFoundError` if what it is to begin with has expired
        or history does not go on from there, and `OptionError` at an overwrite.
        """
        schema = newest_schema(self._follow())
        head = self._context.snapshots.head()
        if head is None:
            self._context.snapshots.check_empty()
        self._check_readable(schema, head)
        asked = _given(
            {
                SCAN_ON_OVERWRITE: on_overwrite,
                SCAN_LATE_ROWS: late_rows,
                MAX_ROWS_PER_TRIGGER: max_rows,
                MAX_FILES_PER_TRIGGER: max_files,
                MAX_BYTES_PER_TRIGGER: max_bytes,
            }
        )
        feed = self._feed(schema, filter, asked)
        reader = FeedReader.of(feed, check_columns(columns, schema))
        options = {**self._options, **asked}
        begin = start_options(start, options, self._pinned)
        follower = Follower(feed, begin, consumer, limits_of({**schema.options, **options}))
        steps: list[tuple[TableContext, Position, Position]] = []

        def delivering(start: Place, end: Place) -> Callable[[], None]:
            steps[:] = [(end.feed.context, Course.begin_of(start, end), end.position)]
            return note_step(*steps[0])

        def read(split: FeedSplit) -> Iterator[pa.RecordBatch]:
            taken = tuple(steps)
            for batch in reader.read(split):
                yield hand_out(batch, lambda: [range_read(*step) for step in taken])

        return Tail(follower, read, idle, delivering)

    def _feed(self, schema: TableSchema, filter: str | Predicate | None, asked: Mapping[str, str]) -> Feed:
        return Feed.of(self._context, schema, {**self._options, **asked}, _bound(filter, schema))

    def predicate(self, filter: str | Predicate | None) -> BoundPredicate | None:
        """Bind a filter to this view's columns. Raises `PredicateError`."""
        return _bound(filter, self.schema)

    def plan_delta(self, snapshot: Snapshot, filter: str | Predicate | None = None) -> Plan:
        """Plan the files that one snapshot added, in the schema of this view."""
        schema = self.schema
        self._check_readable(schema, snapshot)
        predicate = _bound(filter, schema)
        return ScanRequest(self._context, snapshot, schema, predicate, None, self._options).plan_delta()

    def plot(self, what: str = "sizes") -> Chart:
        """Return a chart of this view: a picture in notebooks, text elsewhere, and a file by its `save`.

        Args:
            what: ``sizes`` of partitions, rows that ``commits`` added over time, or the ``lag`` of the watermark behind the
                time of each commit.

        Raises `InvalidInputError` for another.
        """
        from anabranch.table.plotting import plot

        return plot(self, what)

    def system(self, name: str) -> pa.Table:
        """Return a system table of this view: metadata about the table.

        Args:
            name: ``snapshots``, ``schemas``, ``options``, ``files``, ``manifests``, ``partitions``, ``buckets``,
                ``tags``, ``savepoints``, ``branches``, ``branches_log``, ``consumers`` or ``lineage``.

        Returns:
            All its rows. Of a view of the past, those of that moment.

        Raises:
            NotFoundError: there is no such system table; the hint names the one that was probably meant.
            InvalidInputError: it tells only of now, but this is a view of the past.
        """
        return read_system_table(self._system_view(), name)

    def system_batches(
        self,
        name: str,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a system table as `system` does, in batches: also `files` of millions in little memory.

        Args:
            name: as for `system`.
            filter: a condition on its columns; the other rows are left out.
            columns: those to return, in that order.
            limit: the most rows to return; no more is read than they need.

        Raises:
            NotFoundError, InvalidInputError: as `system`.
            PredicateError, SchemaError: the condition or a column does not fit the table.
        """
        parts = read_system_parts(self._system_view(), name, columns if filter is None else None)
        fields = system_table(name).fields
        batches = select_parts(parts, fields, filter=filter, columns=columns, limit=limit)
        first = next(batches)
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))

    def _system_view(self) -> View:
        try:
            snapshot, schema = self._newest()
            self._check_same_branch(snapshot)
        except CorruptTableError as error:
            if self._pinned is not None:
                raise
            return View.damaged(self._follow(), error)
        return View(self._context, snapshot, schema, pinned=self._pinned is not None)


def _bound(filter: str | Predicate | None, schema: TableSchema) -> BoundPredicate | None:
    if filter is None:
        return None
    return bind(parse(filter) if isinstance(filter, str) else filter, schema.fields)


def _given(arguments: Mapping[Option[Any], object]) -> dict[str, str]:
    """Convert arguments to the options they stand for, without those that are None."""
    return {option.key: str(value) for option, value in arguments.items() if value is not None}
