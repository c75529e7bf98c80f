"""Reading of a stream's splits: the rows of files, and facts about them as additional columns.

| column       | type                  | value                                                                   |
|--------------|-----------------------|-------------------------------------------------------------------------|
| `_change`    | STRING                | ``insert``, or ``delete`` for a row that the snapshot took away         |
| `_watermark` | TIMESTAMP, an instant | the table's watermark after the step; 1970-01-01 as long as it has none |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple, Self

import pyarrow as pa

from anabranch.arrow.table_read import Reader
from anabranch.errors import OptionError, SchemaError
from anabranch.expr.bound import BoundPredicate, conjunction
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import Split
from anabranch.lazy import lazy
from anabranch.streaming.feed import Feed
from anabranch.streaming.late_rows import late, on_time
from anabranch.streaming.offsets import (
    CHANGE_COLUMN,
    INSERTED,
    REMOVED,
    WATERMARK_COLUMN,
    FeedFile,
    FeedSplit,
)

CHANGE_FIELD: Final = pa.field(CHANGE_COLUMN, pa.string(), nullable=False)
WATERMARK_FIELD: Final = pa.field(WATERMARK_COLUMN, pa.timestamp("us", "UTC"), nullable=False)

_MOST_MILLIS: Final = (2**63 - 1) // 1000


@dataclass(frozen=True)
class FeedReader:
    """Reader of a feed's splits. Without additional columns it costs no more than `reader` does.

    Picklable where the table's storage is.
    """

    reader: Reader
    """Reader of the table's columns."""
    change_column: bool = False
    """Whether to add the column ``_change``."""
    watermark_column: bool = False
    """Whether to add the column ``_watermark``."""
    late_rows: str = "keep"
    """``keep``, ``drop`` or ``only``, as in the option ``scan.late-rows``."""
    event_time: str | None = None
    """Column by which rows are late, whether it is read or not; needed unless late rows are kept."""

    @classmethod
    def of(
        cls,
        feed: Feed,
        columns: tuple[str, ...] | None = None,
        *,
        watermark_column: bool = False,
        threads: int | None = None,
    ) -> Self:
        """Create the reader for a feed's options: with ``_change`` for ``scan.on-overwrite=changes``.

        Args:
            feed: what hands out the splits.
            columns: names of the columns of the table to read, in that order; all if None.
            watermark_column: whether to add ``_watermark``.
            threads: as in `Reader`.
        """
        event_time = feed.event_time
        return cls(
            Reader(feed.context, feed.schema.fields, columns, feed.predicate, threads, feed.verify),
            feed.on_overwrite == "changes",
            watermark_column,
            feed.late_rows,
            None if event_time is None else event_time.name,
        )

    def __post_init__(self) -> None:
        """Raise `SchemaError` for table columns with the name of an added one."""
        for field in self._added:
            if field.name in self.reader.schema.names:
                raise SchemaError(
                    f"the table has a column '{field.name}', and the stream adds one of that name",
                    hint="read other columns, or rename it: lake.table(...).alter().rename_column(...).apply().",
                )

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the result: added columns come last."""
        schema = self.reader.schema
        for field in self._added:
            schema = schema.append(field)
        return schema

    def read(self, split: FeedSplit) -> Iterator[pa.RecordBatch]:
        """The rows of one split, in bounded memory."""
        return self.read_batches([split])

    def read_batches(
        self, splits: Iterable[FeedSplit], *, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits, in order, in bounded memory; no more than `limit`."""
        left = limit
        for branch, group in groupby(splits, key=lambda split: split.branch):
            for batch in self._read(self._on(branch), group, left):
                left = None if left is None else left - batch.num_rows
                yield batch
            if left is not None and left <= 0:
                return

    def read_table(self, splits: Iterable[FeedSplit], *, limit: int | None = None) -> pa.Table:
        """All rows of splits, in order; no more than `limit`."""
        splits = list(splits)
        if self.is_plain and all(split.branch == self.reader.context.branch for split in splits):
            return self.reader.read_table((split.split for split in splits), limit=limit)
        return pa.Table.from_batches(list(self.read_batches(splits, limit=limit)), self.schema)

    def count(self, splits: Iterable[FeedSplit]) -> int:
        """Return the number of rows in the splits."""
        rows = replace(self.reader, columns=())
        alone = replace(self, reader=rows, change_column=False, watermark_column=False)
        return sum(batch.num_rows for batch in alone.read_batches(splits))

    @property
    def is_plain(self) -> bool:
        """Whether the result is exactly that of `reader`, with the columns of the table only."""
        return not self._added and self.late_rows == "keep"

    @property
    def gives_whole_files(self) -> bool:
        """Whether the result is all rows of the files, and beside their columns at most ``_watermark``, which is one for a step."""
        return self.reader.predicate is None and not self.change_column and self.late_rows == "keep"

    @property
    def _added(self) -> list[pa.Field]:
        wanted = ((self.change_column, CHANGE_FIELD), (self.watermark_column, WATERMARK_FIELD))
        return [field for is_wanted, field in wanted if is_wanted]

    def _on(self, branch: str | None) -> Reader:
        """Return the reader for the files of a branch, whose schema ids are only valid there."""
        if branch == self.reader.context.branch:
            return self.reader
        found = self._elsewhere.get(branch)
        if found is None:
            found = replace(self.reader, context=self.reader.context.on_branch(branch))
            self._elsewhere[branch] = found
        return found

    @lazy
    def _elsewhere(self) -> dict[str | None, Reader]:
        return {}

    def _read(
        self, reader: Reader, splits: Iterable[FeedSplit], limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of splits of one branch, by the reader for it."""
        if self.is_plain:
            yield from reader.read_batches((split.split for split in splits), limit=limit)
            return
        left = limit
        for marks, files in groupby(self._files(splits), key=lambda marked: marked[0]):
            found = self._filtered(reader, marks)
            for batch in found.read_batches((split for _, split in files), limit=left):
                left = None if left is None else left - batch.num_rows
                yield self._with_columns(batch, marks)
            if left is not None and left <= 0:
                return

    def _files(self, splits: Iterable[FeedSplit]) -> Iterator[tuple[_Marks, Split]]:
        """Yield each file as a split of its own, with the facts about its rows."""
        for split in splits:
            for file in split.files:
                if self.late_rows != "only" or file.late_before is not None:
                    yield self._marks(file), Split(split.partition, split.bucket, (file.file,))

    def _marks(self, file: FeedFile) -> _Marks:
        return _Marks(
            (REMOVED if file.removed else INSERTED) if self.change_column else None,
            file.watermark if self.watermark_column else None,
            file.late_before if self.late_rows != "keep" else None,
        )

    def _filtered(self, reader: Reader, marks: _Marks) -> Reader:
        if marks.late_before is None:
            return reader
        asked = late if self.late_rows == "only" else on_time
        wanted: list[BoundPredicate] = [asked(self._event_time, marks.late_before)]
        if reader.predicate is not None:
            wanted.append(reader.predicate)
        return replace(reader, predicate=conjunction(wanted))

    @lazy
    def _event_time(self) -> Field:
        for field in self.reader.fields:
            if field.name == self.event_time:
                return field
        raise OptionError(
            f"late rows are told by the column '{self.event_time}', which the table does not have",
            hint="the watermark definition of the table names its column of event times.",
        )

    def _with_columns(self, batch: pa.RecordBatch, marks: _Marks) -> pa.RecordBatch:
        if not self._added:
            return batch
        arrays = list(batch.columns)
        if self.change_column:
            arrays.append(pa.repeat(pa.scalar(marks.change, CHANGE_FIELD.type), batch.num_rows))
        if self.watermark_column:
            micros = watermark_millis(marks.watermark) * 1000
            arrays.append(pa.repeat(pa.scalar(micros, WATERMARK_FIELD.type), batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def watermark_millis(recorded: int | None) -> int:
    """Return the value of ``_watermark`` for a recorded watermark, both in epoch milliseconds."""
    return min(max(0, recorded or 0), _MOST_MILLIS)


class _Marks(NamedTuple):
    """Facts about all rows of a file that the reader needs."""

    change: str | None
    watermark: int | None
    late_before: int | None
