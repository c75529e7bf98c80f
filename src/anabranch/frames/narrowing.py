"""Interface of rows to which filters, projections and limits can be pushed down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import pyarrow as pa

from anabranch.expr.nodes import Predicate


class Narrowing(Protocol):
    """Rows that accept a filter, fewer columns, or a limit. A value: restricting it reads nothing."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the rows, in Arrow's types."""
        ...

    @property
    def title(self) -> str:
        """Name of the source of the rows, for people."""
        ...

    def where(self, predicate: Predicate) -> Self | None:
        """Restrict the rows to those for which it is TRUE; None if it does not fit, or would follow a limit."""
        ...

    def only_columns(self, names: Sequence[str]) -> Self:
        """Return the rows with these columns, in this order."""
        ...

    def first(self, count: int) -> Self:
        """Limit the rows to so many."""
        ...

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        ...
