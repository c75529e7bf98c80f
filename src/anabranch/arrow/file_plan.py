"""Plan for reading files of one schema: columns, filter and conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch.arrow.evolution import ColumnMapping
from anabranch.arrow.files import DataFile, Piece
from anabranch.arrow.parquet_file import ParquetData
from anabranch.expr.bind import rebind
from anabranch.expr.bound import ALWAYS, NEVER, BoundPredicate, columns
from anabranch.expr.evaluate import filter_mask, to_arrow
from anabranch.expr.prune import for_footers
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import no_rows, to_arrow_schema, to_arrow_type
from anabranch.format.types.data_types import Field


class FilePlan:
    """Plan for reading the requested rows from files written with `schema`.

    Args:
        schema: what the files were written with.
        fields: the columns of the table.
        output: those of them to give.
        predicate: which rows to give; None for all.

    Raises:
        UnsupportedFeatureError: a column's type was changed in a way that is not implemented.
    """

    def __init__(
        self,
        schema: TableSchema,
        fields: Sequence[Field],
        output: Sequence[Field],
        predicate: BoundPredicate | None,
    ) -> None:
        ids = set() if predicate is None else columns(predicate)
        tested = [f for f in fields if f.id in ids]
        self._output = to_arrow_schema(output)
        self._predicate = predicate
        self._fields = schema.fields
        self._tested = ColumnMapping(schema, tested)
        self._untested = ColumnMapping(schema, [f for f in output if f.id not in ids])
        self._everything = ColumnMapping(schema, [*tested, *(f for f in output if f.id not in ids)])

    def pieces(self, file: DataFile) -> Sequence[Piece]:
        """Return the pieces of a file that may contain matching rows."""
        if self._predicate is None or not isinstance(file, ParquetData):
            return file.pieces()
        condition = rebind(self._predicate, self._fields)
        if condition == NEVER:
            return ()
        needed = [f for f in self._fields if f.id in columns(condition)]
        if condition == ALWAYS or not all(file.stores(f.name, to_arrow_type(f.type)) for f in needed):
            return file.pieces()
        return file.pieces_matching(to_arrow(for_footers(condition)))

    def size(self, piece: Piece) -> int:
        """Estimate the bytes that reading a piece takes."""
        return piece.size(self._everything.sources)

    def read(self, piece: Piece, path: str) -> pa.Table:
        """Read the matching rows of a piece. Filter columns are decoded first, the others if it is worth it."""
        if self._predicate is None:
            rows = piece.read(self._everything.sources)
            return self._everything.apply(rows, path)
        tested = self._tested.apply(piece.read(self._tested.sources), path)
        mask = filter_mask(self._predicate, tested)
        kept = mask.true_count
        if kept == 0:
            return no_rows(self._output)
        rows = tested
        if len(self._untested):
            untested = self._untested.apply(piece.read(self._untested.sources), path)
            for name in untested.column_names:
                rows = rows.append_column(untested.schema.field(name), untested.column(name))
        return self._given(rows if kept == len(rows) else rows.filter(mask))

    def stream(self, piece: Piece, path: str, batch_rows: int) -> Iterator[pa.Table]:
        """Yield the matching rows of a piece, some at a time."""
        for part in piece.stream(self._everything.sources, batch_rows):
            rows = self._everything.apply(part, path)
            if self._predicate is not None:
                rows = rows.filter(filter_mask(self._predicate, rows))
            yield self._given(rows)

    def _given(self, rows: pa.Table) -> pa.Table:
        return rows.select(self._output.names)
