"""A read as a value: describes what to read, and reads nothing until asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload

import polars as pl
import pyarrow as pa

from anabranch.arrow.table_read import Reader
from anabranch.engine import Engine, ReadsFrames
from anabranch.errors import InvalidInputError, PredicateError, SchemaError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate, conjunction
from anabranch.expr.nodes import Predicate
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import name_list
from anabranch.format.types.data_types import Field
from anabranch.frames.forms import Forms
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.answers import Aggregate, answered
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import ScanRequest
from anabranch.kernel.scan.split import Split
from anabranch.lazy import lazy
from anabranch.lineage.model import TableInput
from anabranch.lineage.reads import note_changes, note_state, range_read, state_read
from anabranch.lineage.remembered import hand_out
from anabranch.long_work import is_shown, step
from anabranch.options import FILE_CHECKSUM
from anabranch.scan.facts import count, count_by, extreme, sample
from anabranch.scan.feed import FeedReader
from anabranch.scan.metadata import MetadataReader, metadata_columns
from anabranch.streaming.between import Between
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import FeedSplit, Position
from anabranch.tabular import Glance, Shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.frames.dataset import ScanDataset


S = TypeVar("S")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)


class SplitReader(Protocol[S_contra]):
    """Reader of splits of one kind."""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the result."""
        ...

    def read_batches(
        self, splits: Iterable[S_contra], *, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits, in order, in bounded memory."""
        ...

    def read_table(self, splits: Iterable[S_contra], *, limit: int | None = None) -> pa.Table:
        """All rows of splits, in order."""
        ...


class Rows(Forms, Generic[S]):
    """Rows that are read by splits, in all forms."""

    limit: int | None = None
    """The most rows to return."""

    @property
    @abstractmethod
    def reader(self) -> SplitReader[S]:
        """Reader of a split, here or in another process."""

    @property
    @abstractmethod
    def splits(self) -> Sequence[S]:
        """Splits to read, in order."""

    @abstractmethod
    def read_from(self) -> TableInput:
        """Return the rows as an input of a commit, for lineage."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the rows, in Arrow's types."""
        return self.reader.schema

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, in the table's Arrow types."""
        if is_shown():
            return self._known(pa.Table.from_batches(self.to_batches(), schema=self.arrow_schema))
        return self._known(self.reader.read_table(self.splits, limit=self.limit))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches, read as they are consumed, in memory bounded by the batch size."""
        return self._known(self._each(self.reader.read_batches(self.splits, limit=self.limit)))

    def head(self, count: int = 5) -> pa.Table:
        """Return the first rows as an Arrow table, reading no more than needed."""
        most = count if self.limit is None else min(count, self.limit)
        return self._known(self.reader.read_table(self.splits, limit=check_limit(most)))

    def to_torch(self, *, batch_size: int = 1024) -> Any:
        """Return all rows as a ``torch.utils.data.IterableDataset`` of batches, for a ``DataLoader`` without a batch size.

        A batch is a dictionary: numbers and booleans are tensors, lists of numbers too, everything else is a list. Workers of
        the loader share the files, so that each row comes once: ``DataLoader(scan.to_torch(), batch_size=None, num_workers=4)``.
        On an object store with ``multiprocessing_context="spawn"``: connections do not outlive a fork.

        Args:
            batch_size: rows of a batch; the last of each worker has fewer.

        Raises:
            UnsupportedFeatureError: PyTorch is not installed; while reading: a column of whole numbers or booleans has nulls.
        """
        from anabranch.scan.torch import torch_dataset

        return torch_dataset(self.reader, self.splits, self.limit, batch_size)

    def _total(self) -> int | None:
        """Return how many rows there are, if that is known without reading them."""
        return None

    def _each(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with step("read", "rows", self._total() if is_shown() else None) as advance:
            for batch in batches:
                advance(batch.num_rows)
                yield self._known(batch)

    def _known(self, rows: T) -> T:
        return hand_out(rows, lambda: (self.read_from(),))


@dataclass(frozen=True, repr=False)
class Scan(Rows[Split], Shown):
    """Rows of one snapshot. Nothing is read before a plan or rows are asked for.

    Example:
        >>> scan = table.scan("day = '2026-01-01'", columns="id")
        >>> scan.to_polars()["id"].to_list()
        [1, 2]
        >>> scan.count(), scan.max("id")
        (2, 2)
        >>> table.scan().count_by("day").to_pylist()
        [{'day': '2026-01-01', 'count': 2}, {'day': '2026-01-02', 'count': 2}]
        >>> lazy = table.scan().to_polars(lazy=True)
        >>> lazy.filter(pl.col("price") > 30).select("id").collect().item()
        4
    """

    context: TableContext
    snapshot: Snapshot | None
    schema: TableSchema
    predicate: BoundPredicate | None = None
    columns: tuple[str, ...] | None = None
    """Columns to return, in this order; None for all."""
    limit: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    engine: Engine | None = field(default=None, repr=False, compare=False)
    """Engine that executes distributed work for the table; None if only this process does."""
    only: pl.DataFrame | None = field(default=None, repr=False, compare=False)
    """Files to read, by partition, bucket and file_name; None for all."""
    between: Between | None = None
    """Range of snapshots that ends with `snapshot`, to read only rows added in it; None for all rows."""

    def _glance(self) -> Glance:
        at = "before its first snapshot" if self.snapshot is None else f"at snapshot {self.snapshot.id}"
        facts = [
            *([f"filter   {self.predicate}"] if self.predicate is not None else []),
            *([] if self.between is None else [f"added    after snapshot {self.between.start}"]),
            *([f"limit    {self.limit:,}"] if self.limit is not None else []),
        ]
        types = {f.name: str(f.type) for f in self.schema.fields}
        names = self.columns if self.columns is not None else tuple(types)
        rows = [(name, types.get(name, "tells where a row is")) for name in names]
        return Glance(f"Scan of {self.title} {at}, not read yet", facts, ("column", "type"), rows)

    @property
    def splits(self) -> Sequence[Split]:
        self._note()
        return self.plan().splits

    def _note(self) -> None:
        if self.between is None:
            note_state(self.context, self.snapshot)
        else:
            note_changes(self.context, *self.between.positions)

    def read_from(self) -> TableInput:
        if self.between is not None:
            return range_read(self.context, *self.between.positions)
        return state_read(self.context, self.snapshot)

    def plan(self) -> Plan:
        """Plan the files to read. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        return self._plan

    @lazy
    def _plan(self) -> Plan:
        if self.between is not None:
            return self.between.plan(
                self.context,
                self.snapshot,
                self.schema,
                self.predicate,
                {**self.schema.options, **self.options},
            )
        if self.only is None:
            return self._request.plan()
        # Which files hold so many rows is seen afterwards.
        return replace(self._request, limit=None).plan().restricted_to(self.only)

    @property
    def _request(self) -> ScanRequest:
        return ScanRequest(self.context, self.snapshot, self.schema, self.predicate, self.limit, self.options)

    def live_files(self) -> pl.DataFrame:
        """Return the files in the partitions that the filter asks for, with ``partition`` and ``row_count`` at least.

        That takes half as long as a plan, which divides them into splits.
        """
        if self.between is not None or self.only is not None or "_plan" in vars(self):
            return self.plan().files
        return self._request.live_files(statistics=False)

    def answer(self, asked: Sequence[Aggregate], by: Sequence[Field] = ()) -> pa.Table | None:
        """Return aggregates of the rows, in groups, if they follow from metadata; else None.

        See `anabranch.kernel.scan.answers.answered`.
        """
        if self.between is not None or self.only is not None:
            return None
        return answered(self._request, asked, by)

    @property
    def reader(self) -> Reader | MetadataReader:
        """Reader of a split of the plan; without metadata columns also usable in another process."""
        reader = Reader(self.context, self.schema.fields, self.columns, self.predicate, verify=self.verify)
        if self.columns is None or not self.metadata_columns:
            return reader
        own = tuple(name for name in self.columns if name not in self.metadata_columns)
        return MetadataReader(replace(reader, columns=own), self.columns, self.schema, self.snapshot)

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """Metadata columns among the requested ones; see `anabranch.scan.metadata`."""
        return metadata_columns(self.columns, self.schema)

    @property
    def verify(self) -> bool:
        """Whether reading checks the checksums of pages. Raises `OptionError`."""
        return FILE_CHECKSUM.of({**self.schema.options, **self.options})

    @property
    def title(self) -> str:
        """Name of what is read, for people."""
        return self.context.title

    def where(self, predicate: Predicate) -> Scan | None:
        """Restrict the rows by a further condition; None if it does not fit the columns, or comes after a limit."""
        if self.limit is not None:
            return None
        try:
            bound = bind(predicate, self.schema.fields)
        except PredicateError:
            return None
        return replace(
            self, predicate=conjunction([bound] if self.predicate is None else [self.predicate, bound])
        )

    def only_columns(self, names: Sequence[str]) -> Scan:
        """Return the same scan with these columns, in this order. Raises `SchemaError`."""
        return replace(self, columns=check_columns(names, self.schema, metadata=True))

    def first(self, count: int) -> Scan:
        """Limit the scan to so many rows. Raises `InvalidInputError` for a number below 0."""
        check_limit(count)
        return replace(self, limit=count if self.limit is None else min(count, self.limit))

    def head(self, count: int = 5) -> pa.Table:
        """Return the first rows as an Arrow table, reading no more than needed."""
        return self.first(count).to_arrow()

    def _total(self) -> int | None:
        return (
            sum(split.row_count for split in self.splits)
            if self.predicate is None and self.limit is None
            else None
        )

    def count(self) -> int:
        """Return the number of rows.

        Without a filter, or with one on partition columns alone, that follows exactly from metadata, and no data file is
        opened. With another filter the columns of the filter are read, of the files that it leaves over.
        """
        self._note()
        return count(self)

    def count_by(self, columns: str | Sequence[str]) -> pa.Table:
        """Return the number of rows for each combination of values: these columns, and ``count``.

        Of partition columns it follows from metadata, as `count` does; otherwise only these columns are read. Groups come
        in no particular order. Raises `SchemaError` for an unknown column, one of no plain type, or one named ``count``.
        """
        self._note()
        return count_by(self, columns)

    def min(self, column: str) -> Any:
        """Return the smallest non-null value of a column; None if there is none. NaN is the largest number.

        Of partition columns, numbers but floating point ones, dates, times and booleans it follows from metadata, as
        `count` does, if all files have statistics of the column; otherwise this column is read.
        """
        self._note()
        return extreme(self, column, "min")

    def max(self, column: str) -> Any:
        """Return the largest value of a column; see `min`."""
        self._note()
        return extreme(self, column, "max")

    def sample(self, count: int, *, seed: int = 0) -> pa.Table:
        """Return a uniform random sample of rows, in the order of the table; the same for the same seed.

        Without a filter only the files are read in which they are.
        """
        most = check_limit(count)
        assert most is not None, "a number was given"
        return self._known(sample(self, most, seed))

    def to_dataset(self) -> ScanDataset:
        """Return the rows as a `pyarrow.dataset.Dataset`, which reads only the columns and files that are needed.

        DuckDB and Polars (``pl.scan_pyarrow_dataset``) take it, and hand it their filters.
        """
        from anabranch.frames.dataset import ScanDataset

        return ScanDataset(self)

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...
    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...
    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows as a Polars frame, or with `lazy` as one whose queries read only what they need.

        Filters, columns and limits of a lazy query reach the planner, so partitions and files are left out before anything
        is read. What has no counterpart in our filters is filtered by Polars.
        """
        if not lazy:
            return self._known(self._frame())
        from anabranch.frames.lazy_polars import lazy_frame

        return lazy_frame(self)

    def _frame(self) -> pl.DataFrame:
        from anabranch.frames.polars_frame import read_frame

        reader = self.reader
        if isinstance(reader, Reader) and self.limit is None and not is_shown():
            return read_frame(reader, self.splits)
        frame = super().to_polars()
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _for_duckdb(self) -> ScanDataset:
        from anabranch.frames.dataset import for_duckdb

        return for_duckdb(self)

    def to_spark(self) -> DataFrame:
        """Return the rows as a DataFrame of the session that the lake was connected with; nothing is read yet.

        Spark's own Parquet reader reads them where it can, and Spark's filters then leave out partitions and files;
        otherwise they come through the data source ``anabranch``, and the log says why. The frame is of this snapshot
        however often it is used.

        Raises:
            InvalidInputError: the lake knows no session, or its warehouse is in the memory of this process.
        """
        self._note()
        engine: object = self.engine
        if not isinstance(engine, ReadsFrames):
            raise InvalidInputError(
                f"a DataFrame of '{self.context.title}' was asked for, but the lake knows no SparkSession",
                hint="open it with anabranch.connect(warehouse, spark=session).",
            )
        frame: DataFrame = engine.frame(self)
        return frame

    def explain(self) -> str:
        """Explain the plan as text: files before and after each pruning step."""
        return explain(self.plan(), self)


@dataclass(frozen=True, repr=False)
class Changes(Rows[FeedSplit], Shown):
    """Rows that were appended between two snapshots, with the current columns.

    With ``scan.on-overwrite=changes`` also those that were taken away, told apart by the column ``_change``.

    Example:
        >>> table.changes("good").to_arrow()["id"].to_pylist()
        [3, 4]
    """

    feed: Feed
    start: Position
    end: Position
    columns: tuple[str, ...] | None = None
    limit: int | None = None

    def _glance(self) -> Glance:
        since, until = self.start.snapshot, self.end.snapshot
        title = f"Changes of {self.feed.context.title} after snapshot {since} up to {until}, not read yet"
        rows = [(f.name, str(f.type)) for f in self.arrow_schema]
        return Glance(title, (), ("column", "type"), rows)

    @property
    def reader(self) -> FeedReader:
        return FeedReader.of(self.feed, self.columns)

    @property
    def splits(self) -> Sequence[FeedSplit]:
        """Splits to read. Raises `NotFoundError` if snapshots have expired, `OptionError` at an overwrite."""
        note_changes(self.feed.context, self.start, self.end)
        return self.feed.splits(self.start, self.end)

    def read_from(self) -> TableInput:
        return range_read(self.feed.context, self.start, self.end)

    def count(self) -> int:
        """Return the number of rows, reading only what counting needs. Raises as `splits`."""
        found = self.reader.count(self.splits)
        return found if self.limit is None else min(found, self.limit)


def explain(plan: Plan, scan: Scan) -> str:
    """Return a text for people: what is read, and what each step pruned."""
    snapshot = "no snapshot" if plan.snapshot is None else f"snapshot {plan.snapshot.id}"
    lines = [f"scan of {scan.context.title} at {snapshot}"]
    if scan.predicate is not None:
        lines.append(f"  filter   {scan.predicate}")
    lines.append(f"  columns  {', '.join(scan.columns or [f.name for f in scan.schema.fields])}")
    lines.append(f"  {'step':<12}{'manifests':>12}{'files':>12}")
    for done in plan.report.steps:
        files = "" if done.files is None else f"{done.files:,}"
        lines.append(f"  {done.name:<12}{done.manifests:>12,}{files:>12}")
    report = plan.report
    lines.append(f"  reads {plan.files.height:,} files in {report.splits:,} splits: "
                 f"{report.rows:,} rows, {report.bytes:,} bytes")  # fmt: skip
    return "\n".join(lines)


def check_columns(
    columns: str | Sequence[str] | None, schema: TableSchema, *, metadata: bool = False
) -> tuple[str, ...] | None:
    """Return the columns by their exact names; with `metadata`, metadata columns are allowed.

    Raises `SchemaError` for unknown ones, and for one that is asked for twice.
    """
    if columns is None:
        return None
    names = name_list(columns, "columns")
    told = metadata_columns(names, schema) if metadata else ()
    if len(set(told)) < len(told):
        raise SchemaError(f"a column is asked for twice: {', '.join(names)}")
    return tuple(name if name in told else schema.field(name).name for name in names)


def check_limit(limit: int | None) -> int | None:
    """Return the row limit: None for all, 0 for none, as in SQL. Raises `InvalidInputError` for less."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidInputError(
            f"limit is {limit!r}, which is no number of rows",
            hint="write a whole number from 0 on; None means all rows.",
        )
    return limit


__all__ = ["Scan", "check_columns", "check_limit", "explain"]
