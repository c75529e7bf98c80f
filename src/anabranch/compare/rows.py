"""The rows that differ: two snapshots as bags, one subtracted from the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.compare.row_counter import Counts, RowCounter, has_map
from anabranch.errors import InvalidInputError
from anabranch.frames.forms import Forms
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.split import Split
from anabranch.lineage.reads import note_state
from anabranch.lineage.remembered import hand_out
from anabranch.scan.scan import Scan
from anabranch.streaming.offsets import CHANGE_COLUMN, INSERTED, REMOVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Number of rows that differ."""

    inserted: int
    """Rows that the right side has more often than the left."""
    deleted: int
    """Rows that the left side has more often than the right."""

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass(frozen=True)
class RowDiff(Forms):
    """Rows that one side has more often than the other, each repeated by the difference.

    A last column ``_change`` says which: ``insert`` for rows of the right side, ``delete`` for rows of the left one. The
    left bag without its deletes and with its inserts is the right bag. Nothing is read before rows are requested.
    """

    left: Scan
    """Scan of the files that the right side does not have."""
    right: Scan
    is_partitioned: bool
    """Whether rows of different partitions always differ, so that each partition can be compared on its own."""
    limit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The compared columns and ``_change``."""
        return self.right.reader.schema.append(_CHANGE)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The compared columns and ``_change``."""
        return self.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in no particular order, compared as they are consumed.

        Memory is bounded whatever the number of rows, see `compare.row_counter`: typically about half a gigabyte. Rows
        of changed files that do not fit wait on local disk.
        """
        left_rows = self.limit
        for rows in self._differences():
            for batch in rows.to_batches():
                if left_rows is None:
                    yield batch
                elif left_rows > 0:
                    yield batch.slice(0, left_rows)
                    left_rows -= batch.num_rows
            if left_rows is not None and left_rows <= 0:
                return

    def to_spark(self) -> DataFrame:
        """Return the rows as a DataFrame of the lake's session: both sides' changed files, each
        without the rows of the other.

        Raises `InvalidInputError` if the lake has no session, or a column is a map, which Spark does not compare.
        """
        from pyspark.sql import functions as f

        maps = [field.name for field in self.schema if has_map(field.type)]
        if maps:
            raise InvalidInputError(
                f"column '{maps[0]}' holds maps, which Spark does not compare",
                hint="compare the rows here, as with to_batches(), or by other columns.",
            )
        left, right = self.left.to_spark(), self.right.to_spark()
        inserted = right.exceptAll(left).withColumn(CHANGE_COLUMN, f.lit(INSERTED))
        deleted = left.exceptAll(right).withColumn(CHANGE_COLUMN, f.lit(REMOVED))
        found = deleted.unionAll(inserted)
        return found if self.limit is None else found.limit(self.limit)

    def count(self) -> RowCounts:
        """Count the rows that differ, whatever the limit. Files whose rows are all on one side are not read."""
        inserted = deleted = 0
        for left, right in self._pairs():
            if self._is_counted_by_files and not (left and right):
                inserted += sum(split.row_count for split in right)
                deleted += sum(split.row_count for split in left)
                continue
            for _, removed, added in self._compared(left, right):
                inserted += int(added.sum())
                deleted += int(removed.sum())
        return RowCounts(inserted, deleted)

    def _known(self, rows: T) -> T:
        return hand_out(rows, lambda: (self.left.read_from(), self.right.read_from()))

    @property
    def _is_counted_by_files(self) -> bool:
        return self.left.predicate is None and self.right.predicate is None

    def _differences(self) -> Iterator[pa.Table]:
        for left, right in self._pairs():
            if left and right:
                for rows, removed, added in self._compared(left, right):
                    yield from _repeated(rows, removed, REMOVED)
                    yield from _repeated(rows, added, INSERTED)
            else:
                for batch in self.left.reader.read_batches(left):
                    yield _marked(pa.Table.from_batches([batch]), REMOVED)
                for batch in self.right.reader.read_batches(right):
                    yield _marked(pa.Table.from_batches([batch]), INSERTED)

    def _pairs(self) -> Iterator[tuple[list[Split], list[Split]]]:
        """Yield pairs of splits that may hold equal rows."""
        for side in (self.left, self.right):
            note_state(side.context, side.snapshot)
        left, right = self.left.plan(), self.right.plan()
        if not self.is_partitioned:
            if left.splits or right.splits:
                yield left.splits, right.splits
            return
        by_left, by_right = _by_partition(left), _by_partition(right)
        for folder in dict.fromkeys([*by_left, *by_right]):
            yield by_left.get(folder, []), by_right.get(folder, [])

    def _compared(self, left: list[Split], right: list[Split]) -> Iterator[tuple[pa.Table, Counts, Counts]]:
        """Yield distinct rows that differ, and how often each was removed and added."""
        row_count = sum(split.row_count for split in chain(left, right))
        with RowCounter(self.right.reader.schema, row_count, cancel=True) as counter:
            for batch in self.left.reader.read_batches(left):
                counter.add(batch, "left")
            for batch in self.right.reader.read_batches(right):
                counter.add(batch, "right")
            for found in counter.counted():
                yield found.rows, found.left, found.right


_CHANGE = pa.field(CHANGE_COLUMN, pa.string(), nullable=False)


def _by_partition(plan: Plan) -> dict[str, list[Split]]:
    found: dict[str, list[Split]] = {}
    for split, folder in zip(plan.splits, plan.files["folder"].gather(plan.starts), strict=True):
        found.setdefault(plan.folders[folder], []).append(split)
    return found


def _repeated(rows: pa.Table, times: Counts, change: str) -> Iterator[pa.Table]:
    """Yield each row as many times as its count says."""
    ends = np.cumsum(times)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, _ROWS_AT_ONCE):
        wanted = np.arange(start, min(start + _ROWS_AT_ONCE, total))
        yield _marked(rows.take(pa.array(np.searchsorted(ends, wanted, side="right"))), change)


def _marked(rows: pa.Table, change: str) -> pa.Table:
    return rows.append_column(_CHANGE, pa.repeat(pa.scalar(change), rows.num_rows))
