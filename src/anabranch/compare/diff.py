"""The difference between two moments of a table: files, columns, counts per partition, and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from anabranch.compare.columns import ComparedColumns
from anabranch.compare.rows import RowDiff
from anabranch.engine import Engine
from anabranch.expr.bind import bind
from anabranch.expr.bound import columns as ids_of
from anabranch.expr.nodes import Predicate
from anabranch.expr.parse import parse
from anabranch.format.types.data_types import DoubleType, Field, FloatType
from anabranch.kernel.branches.diff import (
    DiffSide,
    FileDiff,
    PartitionDiff,
    SchemaDiff,
    TableDiff,
    changed_files,
)
from anabranch.kernel.provenance.coverage import JobOnMain
from anabranch.lazy import lazy
from anabranch.lineage.only_on_main import jobs_only_on_main
from anabranch.options import PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME
from anabranch.scan.scan import Scan, check_limit
from anabranch.tabular import as_html, as_text, one_screen

_MOST_SHOWN = 20
"""Most partitions shown."""
_COLUMNS = (
    "partition",
    "rows left",
    "rows right",
    "rows removed",
    "rows added",
    "files removed",
    "files added",
)


@dataclass(frozen=True, repr=False)
class Diff:
    """The difference from one moment of a table to another. Only metadata is read until rows are requested.

    Example:
        >>> diff = table.diff("main@good", "main")
        >>> diff.rows().to_polars().select("_change", "id").rows()
        [('insert', 3), ('insert', 4)]
        >>> diff.files.added.height, diff.files.removed.height
        (1, 0)
    """

    left: DiffSide
    right: DiffSide
    engine: Engine | None = field(default=None, compare=False)
    """Creates a DataFrame of rows."""

    @property
    def files(self) -> FileDiff:
        """Data files: ``added`` (live on the right only), ``removed`` (on the left only), ``shared``; Polars frames.

        Raises `CorruptTableError`, `UnsupportedFeatureError`.
        """
        return self._metadata.files

    @property
    def schema(self) -> SchemaDiff:
        """Columns by field id: ``added``, ``removed``, ``changed``; and all changes in words. Falsy if there are none."""
        return self._metadata.schema

    @property
    def partitions(self) -> tuple[PartitionDiff, ...]:
        """Rows and files of every partition on both sides, and how many were removed and added. Raises as `files`."""
        return self._metadata.partitions

    @lazy
    def only_on_main(self) -> tuple[JobOnMain, ...]:
        """Commits that main has and the branch is not going to have by itself, by job.

        Replacing main by the branch drops them. Empty unless exactly one side is main.
        """
        left, right = self.left, self.right
        sides = (left, right) if left.is_main else (right, left)
        main, branch = sides
        if left.is_main == right.is_main or branch.context.known_as is not None:
            return ()
        return jobs_only_on_main(main.context, branch.context, main.snapshot, branch.snapshot)

    def rows(
        self,
        filter: str | Predicate | None = None,
        columns: str | Sequence[str] | None = None,
        limit: int | None = None,
    ) -> RowDiff:
        """Compare the rows, as bags: a row counts as often as it occurs.

        Files that are live on both sides are not read. Columns are matched by field id, so that renaming one changes no
        row, and compared in a type that holds the values of both sides. Null equals null, and NaN equals NaN.

        Args:
            filter: compare only rows for which it is TRUE; SQL text or an expression, on the names of the right side.
            columns: what to compare by; if None all columns that both sides have. One that only one side has reads
                null on the other.
            limit: the most rows to return.

        Raises:
            PredicateError, SchemaError: the filter or a column does not fit, or a column has no common
                type.
            CorruptTableError, UnsupportedFeatureError: the metadata cannot be read.
        """
        compared = ComparedColumns(self.left, self.right)
        chosen = compared.chosen(columns)
        predicate = parse(filter) if isinstance(filter, str) else filter
        looked_at = {f.id for f in chosen}
        if predicate is not None:
            looked_at |= ids_of(bind(predicate, compared.fields))
        only_left, only_right = changed_files(self._metadata, sorted(looked_at))

        def scan(side: DiffSide, files: pl.DataFrame) -> Scan:
            schema = compared.schema_for(side)
            bound = None if predicate is None else bind(predicate, schema.fields)
            names = tuple(f.name for f in chosen)
            return Scan(side.context, side.snapshot, schema, bound, names, engine=self.engine, only=files)

        return RowDiff(
            scan(self.left, only_left),
            scan(self.right, only_right),
            self._is_partitioned(chosen),
            check_limit(limit),
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export all rows that differ, by Arrow's PyCapsule interface; see `rows`."""
        return self.rows().__arrow_c_stream__(requested_schema)

    def __bool__(self) -> bool:
        """Whether anything differs, as far as metadata tells."""
        return bool(self.schema) or not (self.files.added.is_empty() and self.files.removed.is_empty())

    def __str__(self) -> str:
        return "\n".join([self._title, *(f"  {line}" for line in self._about()), *self._table()])

    def __repr__(self) -> str:
        """Show the beginning, as much as fits on a screen."""
        return one_screen(str(self))

    def _repr_html_(self) -> str:
        return as_html(self._title, self._about(), _COLUMNS, self._shown())

    @lazy
    def _metadata(self) -> TableDiff:
        return TableDiff(self.left, self.right)

    @property
    def _title(self) -> str:
        return f"{self.left.name}..{self.right.name} of {self.right.context.name}"

    def _about(self) -> list[str]:
        files = self.files
        sides = [
            f"{side.name}: " + ("no snapshot" if side.snapshot is None else f"snapshot {side.snapshot.id}")
            for side in (self.left, self.right)
        ]
        lines = [
            "   ".join(sides),
            f"files: {files.added.height:,} added, {files.removed.height:,} removed, {files.shared.height:,} shared",
            f"rows in them: {files.added['row_count'].sum():,} added, {files.removed['row_count'].sum():,} removed",
            "schema: " + ("; ".join(self.schema.phrases) or "the same"),
        ]
        changed = sum(p.is_changed for p in self.partitions)
        if changed > _MOST_SHOWN:
            lines.append(f"{changed:,} partitions differ, of which {_MOST_SHOWN} are shown")
        lines += [f"only main has {job}" for job in self.only_on_main]
        return lines

    def _table(self) -> Iterator[str]:
        shown = self._shown()
        if shown:
            yield ""
            yield as_text(_COLUMNS, shown)

    def _shown(self) -> list[tuple[str | int, ...]]:
        changed = [p for p in self.partitions if p.is_changed][:_MOST_SHOWN]
        return [
            (
                *(p.partition, p.rows_left, p.rows_right, p.rows_removed, p.rows_added),
                *(p.files_removed, p.files_added),
            )
            for p in changed
        ]

    def _is_partitioned(self, chosen: Sequence[Field]) -> bool:
        """Whether rows of different partitions always differ in the chosen columns, and partition names match."""
        ids = {f.id for f in chosen}
        keys = self.right.schema.partition_fields
        settled = all(
            option.of(self.left.schema.options) == option.of(self.right.schema.options)
            for option in (PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME)
        )
        # 0.0 and -0.0 are two partitions, but equal.
        exact = not any(isinstance(key.type, FloatType | DoubleType) for key in keys)
        return bool(keys) and settled and exact and all(key.id in ids for key in keys)
