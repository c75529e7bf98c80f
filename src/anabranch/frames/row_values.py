"""Rows for people: the first of many, and their values as Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from anabranch.format.types.python_rows import rows_of, tuples_of

__all__ = ["First", "rows_of", "tuples_of"]


class First:
    """The first rows of batches; whether there are more is known after iterating over them."""

    def __init__(self, batches: Iterable[pa.RecordBatch], most: int | None) -> None:
        self._batches, self._left = batches, most
        self.is_cut = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._left is None:
                yield batch
                continue
            self.is_cut = self.is_cut or batch.num_rows > self._left
            if self._left:
                yield batch.slice(0, self._left)
            self._left -= min(self._left, batch.num_rows)
