"""Facts about a commit read from its table: its columns, and how much it wrote.

Both are optional parts of an event. What cannot be read, because the snapshot has expired or the branch is gone, is
left out; nothing here raises for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.identifier import Identifier
from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import FileKind
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.commit import Commit, Line


@dataclass(frozen=True, slots=True)
class Written:
    """Rows, bytes and files added by commits."""

    rows: int
    bytes: int | None = None
    """None if not known of all commits."""
    files: int | None = None

    def plus(self, other: Written) -> Written:
        """Return the sum of both."""
        whole = None not in (self.bytes, other.bytes, self.files, other.files)
        return Written(
            self.rows + other.rows,
            (self.bytes or 0) + (other.bytes or 0) if whole else None,
            (self.files or 0) + (other.files or 0) if whole else None,
        )


@dataclass
class Facts:
    """Reads facts from the tables of a warehouse."""

    catalog: FilesystemCatalog
    lines: Mapping[str, Line]
    """Known branches, by identity."""
    _open: dict[str, TableContext | None] = field(default_factory=dict)
    _columns: dict[tuple[str, int], tuple[Field, ...] | None] = field(default_factory=dict)

    def columns(self, commit: Commit) -> tuple[Field, ...] | None:
        """Return the columns of the table as of the commit; None if no longer known."""
        key = (commit.branch_uuid, commit.schema_id)
        if key not in self._columns:
            self._columns[key] = self._read_columns(commit)
        return self._columns[key]

    def written(self, commit: Commit) -> Written | None:
        """Return what the commit added; only rows if its snapshot has expired, None if not even these are known."""
        context = self._context(commit.branch_uuid)
        try:
            snapshot = None if context is None else context.snapshots.find(commit.snapshot)
            if context is not None and snapshot is not None and snapshot.stamp == commit.stamp:
                metas = context.manifests.read_list(snapshot.delta_manifest_list)
                entries = context.manifests.entries(metas, only=("kind", "file_size", "row_count")).df
                added = entries.filter(pl.col("kind") == int(FileKind.ADD))
                return Written(int(added["row_count"].sum()), int(added["file_size"].sum()), added.height)
        except AnabranchError:  # it expires while it is read
            pass
        return Written(commit.added) if commit.kind == "APPEND" and commit.added >= 0 else None

    def _read_columns(self, commit: Commit) -> tuple[Field, ...] | None:
        context = self._context(commit.branch_uuid)
        try:
            schema = None if context is None else context.schemas.find(commit.schema_id)
        except AnabranchError:
            return None
        return None if schema is None else tuple(schema.fields)

    def _context(self, branch_uuid: str) -> TableContext | None:
        """Return the branch, if the one under its name is still the same."""
        if branch_uuid not in self._open:
            line = self.lines.get(branch_uuid)
            try:
                context = None if line is None else self._opened(line)
            except AnabranchError:
                context = None
            found = context is not None and context.branch_uuid == branch_uuid
            self._open[branch_uuid] = context if found else None
        return self._open[branch_uuid]

    def _opened(self, line: Line) -> TableContext:
        table = self.catalog.open(Identifier.parse(line.table))
        return table if table.branch_uuid == line.branch_uuid else table.on_branch(line.branch)
