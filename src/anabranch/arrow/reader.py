"""Reading of planned files as rows of the table.

Files are read piece by piece (row groups, stripes), several at a time and some ahead of the caller, and given
back in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa

from anabranch.arrow.avro_file import AvroData
from anabranch.arrow.file_plan import FilePlan
from anabranch.arrow.files import DataFile, Piece, native_path, translated, without_columns
from anabranch.arrow.orc_file import OrcData
from anabranch.arrow.parquet_file import ParquetData
from anabranch.arrow.pipeline import MAX_THREADS, available_cores
from anabranch.errors import SchemaError, UnsupportedFeatureError, did_you_mean
from anabranch.expr.bound import BoundPredicate
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import no_rows, to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.storage.protocol import Storage

T = TypeVar("T")
R = TypeVar("R")

_STREAM_ABOVE: Final = 96 << 20
"""Size of a piece above which a stream decodes it incrementally, instead of whole and ahead."""
_STREAM_ROWS: Final = 1 << 16
_MOST_BYTES: Final = 256 << 20
"""Bytes of pieces that a stream decodes ahead of its caller."""
_FORMATS: Final[dict[str, Callable[[Storage, SplitFile, bool], DataFile]]] = {
    "parquet": lambda storage, file, verify: ParquetData(storage, file, verify=verify),
    "orc": lambda storage, file, _: OrcData(storage, file),
    "avro": lambda storage, file, _: AvroData(storage, file),
}


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Table properties that a reader needs."""

    storage: Storage
    """Storage rooted at the table's folder."""
    fields: tuple[Field, ...]
    """Columns of the table as it is read, whatever the files were written with."""
    schema_of: Callable[[int], TableSchema]
    """Function from a schema id to its schema. Must be thread-safe."""
    threads: int | None = None
    """Number of pieces decoded in parallel; None for what suits the machine and the store."""
    verify: bool = True
    """Whether to check the checksums of pages."""


def read_schema(context: ReadContext, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of the result. Raises `SchemaError` for an unknown column."""
    return to_arrow_schema(_chosen(context.fields, columns))


def read_batches(
    splits: Iterable[Split],
    context: ReadContext,
    *,
    columns: Sequence[str] | None = None,
    predicate: BoundPredicate | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of splits in order, in batches of at most one row group, with bounded memory.

    Args:
        splits: what to read, in order.
        columns: names of the columns to give, in that order; None for all.
        predicate: keep exactly the rows for which it is TRUE; bound to the fields of the context.
        limit: stop after that many rows.

    Raises:
        SchemaError: there is no such column.
        NotFoundError: a file is gone, because its snapshot expired.
        CorruptTableError: a file cannot be decoded, or is not what the table's metadata says.
        UnsupportedFeatureError: a file of another format, or a type change that is not implemented.
    """
    scan = _Scan(context, _chosen(context.fields, columns), predicate, limit, is_stream=True)
    return (batch for table in scan.tables(splits) for batch in table.to_batches())


def read_table(
    splits: Iterable[Split],
    context: ReadContext,
    *,
    columns: Sequence[str] | None = None,
    predicate: BoundPredicate | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Return all rows of splits, in order, in memory. Arguments and errors are those of `read_batches`."""
    output = _chosen(context.fields, columns)
    tables = list(_Scan(context, output, predicate, limit, is_stream=False).tables(splits))
    if not output:
        return without_columns(sum(table.num_rows for table in tables))
    return pa.concat_tables(tables) if tables else no_rows(to_arrow_schema(output))


def _chosen(fields: Sequence[Field], columns: Sequence[str] | None) -> tuple[Field, ...]:
    if columns is None:
        return tuple(fields)
    known = {f.name: f for f in fields}
    for name in columns:
        if name not in known:
            hint = did_you_mean(name, known, f"the columns are {', '.join(known)}.")
            raise SchemaError(f"there is no column '{name}'", hint=hint)
    if len(set(columns)) < len(columns):
        raise SchemaError(f"a column is asked for twice: {', '.join(columns)}")
    return tuple(known[name] for name in columns)


@dataclass(slots=True)
class _Task:
    """A piece to read."""

    plan: FilePlan
    file: DataFile
    piece: Piece
    size: int
    """Approximate bytes that it takes."""
    bit_by_bit: bool

    def run(self) -> Iterable[pa.Table]:
        """Return its rows, or a lazy iterator over them."""
        if self.bit_by_bit:
            return self._streamed()
        with translated(self.file.path):
            return (self.plan.read(self.piece, self.file.path),)

    def _streamed(self) -> Iterator[pa.Table]:
        with translated(self.file.path):
            yield from self.plan.stream(self.piece, self.file.path, _STREAM_ROWS)


class _Scan:
    """Execution of one read."""

    def __init__(
        self,
        context: ReadContext,
        output: tuple[Field, ...],
        predicate: BoundPredicate | None,
        limit: int | None,
        *,
        is_stream: bool,
    ) -> None:
        self._context = context
        self._output = output
        self._predicate = predicate
        self._limit = limit
        self._is_stream = is_stream
        self._plans: dict[int, FilePlan] = {}

    def tables(self, splits: Iterable[Split]) -> Iterator[pa.Table]:
        """Yield rows in order, up to the limit, as non-empty tables."""
        left = self._limit
        if left is not None and left <= 0:
            return
        with closing(self._rows(splits)) as tables:
            for table in tables:
                if left is not None and table.num_rows >= left:
                    yield table.slice(0, left)
                    return
                if table.num_rows:
                    yield table
                    left = None if left is None else left - table.num_rows

    def _rows(self, splits: Iterable[Split]) -> Generator[pa.Table]:
        files = chain.from_iterable(split.files for split in splits)
        if not self._output and self._predicate is None:
            yield without_columns(sum(file.row_count for file in files))
            return
        first = next(files, None)
        if first is None:
            return
        threads = self._context.threads or _default_threads(self._context.storage, first)
        pool = ThreadPoolExecutor(threads, "anabranch-read")
        try:
            opened = _ahead(pool, self._open, chain([first], files), threads, size_of=lambda _: 0)
            pieces = self._tasks(opened)
            for tables in _ahead(pool, _Task.run, pieces, threads + 1, size_of=lambda task: task.size):
                yield from tables
        finally:
            pool.shutdown(cancel_futures=True)

    def _tasks(self, opened: Iterable[tuple[FilePlan, DataFile, Sequence[Piece]]]) -> Iterator[_Task]:
        is_first_rows = self._limit is not None and self._predicate is None
        promised = 0
        for plan, file, pieces in opened:
            for piece in pieces:
                size = plan.size(piece) if self._is_stream else 0
                # Of the first rows, not more of the last piece is decoded than needed.
                yield _Task(plan, file, piece, size, is_first_rows or size > _STREAM_ABOVE)
                promised += piece.rows or 0
                if self._limit is not None and is_first_rows and promised >= self._limit:
                    return

    def _open(self, file: SplitFile) -> tuple[FilePlan, DataFile, Sequence[Piece]]:
        opener = _FORMATS.get(file.format)
        if opener is None:
            raise UnsupportedFeatureError(
                f"the data file is of format '{file.format}'",
                feature="file-format",
                path=file.path,
                hint=f"Formats that are read: {', '.join(_FORMATS)}.",
            )
        plan = self._plans.get(file.schema_id)
        if plan is None:
            schema = self._context.schema_of(file.schema_id)
            plan = FilePlan(schema, self._context.fields, self._output, self._predicate)
            self._plans[file.schema_id] = plan
        with translated(file.path):
            data = opener(self._context.storage, file, self._context.verify)
            return plan, data, plan.pieces(data)


def _default_threads(storage: Storage, file: SplitFile) -> int:
    cores = min(available_cores(), MAX_THREADS)
    # Threads that wait for a distant store do not need a core each.
    return cores if native_path(storage, file.path) else max(cores, MAX_THREADS)


def _ahead(
    pool: ThreadPoolExecutor,
    work: Callable[[T], R],
    items: Iterable[T],
    most: int,
    *,
    size_of: Callable[[T], int],
) -> Iterator[R]:
    """Yield results in the order of the items, computing ahead.

    Up to `most` of them, or as many as have `_MOST_BYTES` together, are worked on before they are asked for.
    """
    waiting: deque[tuple[int, Future[R]]] = deque()
    bytes_waiting = 0
    for item in items:
        size = size_of(item)
        while waiting and (len(waiting) >= most or bytes_waiting + size > _MOST_BYTES):
            done, result = waiting.popleft()
            bytes_waiting -= done
            yield result.result()
        waiting.append((size, pool.submit(work, item)))
        bytes_waiting += size
    while waiting:
        yield waiting.popleft()[1].result()
