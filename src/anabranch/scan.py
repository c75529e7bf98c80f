"""A read as a value: what to read, not yet read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from anabranch.engine import Engine, ReadsFrames
from anabranch.errors import InvalidInputError
from anabranch.expr.bind import BoundPredicate
from anabranch.kernel.context import TableContext
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import ScanRequest
from anabranch.kernel.scan.split import Split
from anabranch.lazy import lazy
from anabranch.lineage.recording import note_changes, note_state
from anabranch.options import FILE_CHECKSUM
from anabranch.read import Reader
from anabranch.read_feed import FeedReader
from anabranch.spec.names import name_list
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot
from anabranch.streaming.delivery import FeedSplit
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class SplitReader(Protocol[S_contra]):
    """Reads splits of one kind."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what is read."""
        ...

    def read_batches(
        self, splits: Iterable[S_contra], *, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits, in order, in bounded memory."""
        ...

    def read_table(self, splits: Iterable[S_contra], *, limit: int | None = None) -> pa.Table:
        """All rows of splits, in order."""
        ...


class Rows(ABC, Generic[S]):
    """Rows that can be had in several forms."""

    limit: int | None = None
    """The most rows to return."""

    @property
    @abstractmethod
    def reader(self) -> SplitReader[S]:
        """What reads a split, here or in another process."""

    @property
    @abstractmethod
    def splits(self) -> Sequence[S]:
        """What to read, in order."""

    def to_arrow(self) -> pa.Table:
        """All rows as one table, in the table's Arrow types."""
        return self.reader.read_table(self.splits, limit=self.limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches, read as they are consumed, in memory bounded by the batch size."""
        return self.reader.read_batches(self.splits, limit=self.limit)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame


@dataclass(frozen=True)
class Scan(Rows[Split]):
    """Rows of one snapshot. Nothing is read before a plan or rows are asked for."""

    context: TableContext
    snapshot: Snapshot | None
    schema: TableSchema
    predicate: BoundPredicate | None = None
    columns: tuple[str, ...] | None = None
    """Columns to return, in this order; None for all."""
    limit: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    engine: Engine | None = field(default=None, repr=False, compare=False)
    """What works for the table; None if nothing but this process does."""
    only: pl.DataFrame | None = field(default=None, repr=False, compare=False)
    """The files to read of those there are, by partition, bucket and file_name; None for all."""

    @property
    def splits(self) -> Sequence[Split]:
        note_state(self.context, self.snapshot)
        return self.plan().splits

    def plan(self) -> Plan:
        """The files to read. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        return self._plan

    @lazy
    def _plan(self) -> Plan:
        limit = self.limit if self.only is None else None  # which files hold so many rows is seen afterwards
        plan = ScanRequest(
            self.context, self.snapshot, self.schema, self.predicate, limit, self.options
        ).plan()
        return plan if self.only is None else plan.restricted_to(self.only)

    @property
    def reader(self) -> Reader:
        """What reads a split of the plan, here or in another process."""
        return Reader(self.context, self.schema.fields, self.columns, self.predicate, verify=self.verify)

    @property
    def verify(self) -> bool:
        """Whether reading checks the checksums of pages. Raises `OptionError`."""
        return FILE_CHECKSUM.of({**self.schema.options, **self.options})

    def to_spark(self) -> DataFrame:
        """The rows as a DataFrame of the session that the lake was connected with; nothing is read yet.

        Spark's own Parquet reader reads them where it can, and Spark's filters then leave out partitions and files;
        otherwise they come through the data source ``anabranch``, and the log says why. The frame is of this snapshot
        however often it is used.

        Raises:
            InvalidInputError: the lake knows no session, or its warehouse is in the memory of this process.
        """
        note_state(self.context, self.snapshot)
        engine: object = self.engine
        if not isinstance(engine, ReadsFrames):
            raise InvalidInputError(
                f"a DataFrame of '{self.context.title}' was asked for, but the lake knows no SparkSession",
                hint="open it with anabranch.connect(warehouse, spark=session).",
            )
        frame: DataFrame = engine.frame(self)
        return frame

    def explain(self) -> str:
        """How the plan came about: files before and after each pruning step, as text."""
        return explain(self.plan(), self)


@dataclass(frozen=True)
class Changes(Rows[FeedSplit]):
    """Rows that were appended between two snapshots, in the columns of today.

    With ``scan.on-overwrite=changes`` also those that were taken away, told apart by the column ``_change``.
    """

    feed: Feed
    start: Position
    end: Position
    columns: tuple[str, ...] | None = None
    limit: int | None = None

    @property
    def reader(self) -> FeedReader:
        return FeedReader.of(self.feed, self.columns)

    @property
    def splits(self) -> Sequence[FeedSplit]:
        """Raises `NotFoundError` if some of the snapshots have expired, `OptionError` at an overwrite."""
        note_changes(self.feed.context, self.start, self.end)
        return self.feed.splits(self.start, self.end)

    def count(self) -> int:
        """How many rows there are, read no further than to count them. Raises as `splits`."""
        found = self.reader.count(self.splits)
        return found if self.limit is None else min(found, self.limit)


def explain(plan: Plan, scan: Scan) -> str:
    """Text for people: what is read, and what each step left out."""
    snapshot = "no snapshot" if plan.snapshot is None else f"snapshot {plan.snapshot.id}"
    lines = [f"scan of {scan.context.title} at {snapshot}"]
    if scan.predicate is not None:
        lines.append(f"  filter   {scan.predicate}")
    lines.append(f"  columns  {', '.join(scan.columns or [f.name for f in scan.schema.fields])}")
    lines.append(f"  {'step':<12}{'manifests':>12}{'files':>12}")
    for step in plan.report.steps:
        files = "" if step.files is None else f"{step.files:,}"
        lines.append(f"  {step.name:<12}{step.manifests:>12,}{files:>12}")
    report = plan.report
    lines.append(f"  reads {plan.files.height:,} files in {report.splits:,} splits: "
                 f"{report.rows:,} rows, {report.bytes:,} bytes")  # fmt: skip
    return "\n".join(lines)


def check_columns(columns: str | Sequence[str] | None, schema: TableSchema) -> tuple[str, ...] | None:
    """The columns by their exact names. Raises `SchemaError` for unknown ones."""
    if columns is None:
        return None
    return tuple(schema.field(name).name for name in name_list(columns, "columns"))


def check_limit(limit: int | None) -> int | None:
    """The most rows to return: None for all, 0 for none, as in SQL. Raises `InvalidInputError` for less."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidInputError(
            f"limit is {limit!r}, which is no number of rows",
            hint="write a whole number from 0 on; None means all rows.",
        )
    return limit


__all__ = ["Scan", "check_columns", "check_limit", "explain"]
