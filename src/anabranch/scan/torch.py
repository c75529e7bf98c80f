"""Rows for PyTorch: an iterable dataset of batches of tensors, whose workers share the files of a read.

Files are planned once, where the dataset is made. Each worker of a ``DataLoader`` reads some of them, none reads what another
does, and no process holds more than a few batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidInputError, UnsupportedFeatureError
from anabranch.format.types.values import validity
from anabranch.frames.forms import needed
from anabranch.kernel.scan.split import Split
from anabranch.scan.metadata import LocatedSplit, MetadataReader


class _Reader(Protocol):
    @property
    def schema(self) -> pa.Schema: ...

    def read_batches(
        self, splits: Iterable[Any], *, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class SharedRows:
    """Rows of a read that several workers share. Picklable where the table's storage is."""

    reader: _Reader
    splits: tuple[Any, ...]
    limit: int | None
    batch_size: int
    """Rows of each batch; the last of a worker has fewer."""

    @classmethod
    def of(cls, reader: _Reader, splits: Sequence[Any], limit: int | None, batch_size: int) -> SharedRows:
        """Plan everything here: Polars, which does it, hangs in a process that is forked from one that has used it."""
        if isinstance(reader, MetadataReader):
            splits = reader.located(splits)
        return cls(reader, tuple(_planned(split) for split in splits), limit, batch_size)

    def batches(self, worker: int = 0, workers: int = 1) -> Iterator[pa.Table]:
        """Yield the batches of one of several workers; together these read each row once.

        Args:
            worker: its number, from 0.
            workers: how many there are.
        """
        return _of_size(
            self.reader.read_batches(self._part(worker, workers), limit=self.limit), self.batch_size
        )

    def _part(self, worker: int, workers: int) -> Sequence[Any]:
        if self.limit is not None:  # which rows are the first only one can know
            return self.splits if worker == 0 else ()
        return self.splits[worker::workers]


def torch_dataset(reader: _Reader, splits: Sequence[Any], limit: int | None, batch_size: int) -> Any:
    """Return a ``torch.utils.data.IterableDataset`` of rows; see `Rows.to_torch`.

    Args:
        reader: of the splits.
        splits: the work to share.
        limit: the most rows.
        batch_size: rows of a batch.

    Raises:
        UnsupportedFeatureError: PyTorch is not installed.
        InvalidInputError: `batch_size` is not at least 1.
    """
    if batch_size < 1:
        raise InvalidInputError(
            f"batch_size is {batch_size}, and a batch has at least one row",
            hint="leave it out, or give 1 or more.",
        )
    return _made(SharedRows.of(reader, splits, limit, batch_size))


def _planned(split: Any) -> Any:
    """Return the split with its files, which a plan computes when they are first asked for."""
    match split:
        case Split():
            return Split(split.partition, split.bucket, split.files)
        case LocatedSplit():
            return LocatedSplit(_planned(split.split), split.added)
    return split


def _made(rows: SharedRows) -> Any:
    return _dataset_class()(rows)


@cache
def _dataset_class() -> Any:
    """Return the class of the datasets: PyTorch asks for a subclass of its own, and is not always installed."""
    torch = needed("torch", "a dataset of PyTorch", install="pip install torch")

    base: Any = torch.utils.data.IterableDataset

    class Rows(base):  # type: ignore[misc]
        """Batches of rows, as a dictionary of columns."""

        def __init__(self, rows: SharedRows) -> None:
            super().__init__()
            self.rows = rows

        def __iter__(self) -> Iterator[dict[str, Any]]:
            worker = torch.utils.data.get_worker_info()
            found = (
                self.rows.batches() if worker is None else self.rows.batches(worker.id, worker.num_workers)
            )
            for batch in found:
                yield {
                    name: values_of(column.combine_chunks(), name, torch.from_numpy)
                    for name, column in zip(batch.column_names, batch.columns, strict=True)
                }

        # Workers that are spawned get it by pickle, which finds no class that was made in a function.
        def __reduce__(self) -> tuple[Any, ...]:
            return _made, (self.rows,)

    return Rows


def values_of(column: Any, name: str, tensor: Callable[[Any], Any]) -> Any:
    """Return the values of an Arrow array for PyTorch.

    Numbers and booleans become a tensor, lists of numbers of one length a tensor of two dimensions, of several lengths a list
    of tensors, and everything else a list of Python values.

    Args:
        column: the array.
        name: of the column, for the message.
        tensor: makes a tensor of a NumPy array.

    Raises `UnsupportedFeatureError` for nulls among whole numbers, booleans and lists; of other numbers they are NaN.
    """
    kind = column.type
    if _is_number(kind):
        return tensor(_numbers(column, name))
    if pa.types.is_list(kind) and _is_number(kind.value_type):
        _refuse_nulls(column, name)
        flat, lengths = _numbers(column.flatten(), name), column.value_lengths().to_numpy()
        if len(lengths) and (lengths == lengths[0]).all():
            return tensor(flat.reshape(len(lengths), lengths[0]))
        ends = lengths.cumsum()
        return [tensor(flat[end - size : end]) for end, size in zip(ends, lengths, strict=True)]
    return column.to_pylist()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _numbers(column: Any, name: str) -> Any:
    """Return the values as a NumPy array of its own, which may be written to as a tensor may."""
    if not pa.types.is_floating(column.type):
        _refuse_nulls(column, name)
    return column.to_numpy(zero_copy_only=False).copy()


def _refuse_nulls(column: Any, name: str) -> None:
    if not validity(column).all():
        raise UnsupportedFeatureError(
            f"column '{name}' has nulls, which tensors of type {column.type} do not hold",
            feature="nulls-in-tensors",
            hint=f"leave them out with scan('{name} IS NOT NULL'), or choose other columns with columns=[...].",
        )


def _of_size(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of `size` rows; the last has fewer."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows < size:
            continue
        table = pa.Table.from_batches(waiting)
        whole = rows - rows % size
        for start in range(0, whole, size):
            yield table.slice(start, size)
        waiting, rows = table.slice(whole).to_batches(), rows - whole
    if rows:
        yield pa.Table.from_batches(waiting)
