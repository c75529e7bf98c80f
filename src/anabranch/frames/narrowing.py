"""What rows must be able to do so that others may ask for less of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import pyarrow as pa

from anabranch.expr.nodes import Predicate


class Narrowing(Protocol):
    """Rows that can be had with a filter, fewer columns, or only the first of them. A value: asking reads nothing."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the rows, in Arrow's types."""
        ...

    @property
    def title(self) -> str:
        """What the rows are of, for people."""
        ...

    def where(self, predicate: Predicate) -> Self | None:
        """Those for which it is TRUE as well; None if it does not fit, or must not be asked before a limit."""
        ...

    def only_columns(self, names: Sequence[str]) -> Self:
        """These columns of the rows, in this order."""
        ...

    def first(self, count: int) -> Self:
        """No more than so many of the rows."""
        ...

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        ...
