"""Registry of our tables and scans that Spark holds, by their names in its plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.lazy import lazy
from anabranch.options import BRANCH, SCAN_EXACT, SCAN_PUBLISHED
from anabranch.scan.scan import Scan
from anabranch.spark.context.options import INCREMENTAL, table_options
from anabranch.streaming.between import between_of
from anabranch.table import Table

STATE_OPTIONS = (*(option.key for option in MOMENT_OPTIONS), SCAN_EXACT.key, SCAN_PUBLISHED.key, BRANCH.key)
"""Options of a read that name the moment and the branch."""


@dataclass(frozen=True)
class TableState:
    """A table as a statement sees it."""

    table: Table
    snapshot: Snapshot | None
    schema: TableSchema
    past: bool = False
    """Whether the statement itself asks for the past, which cannot be written."""
    is_named: bool = False
    """Whether the options of the read were looked at already: they name a moment of main, and this is the branch that is main."""

    @classmethod
    def of(cls, table: Table, *, past: bool = False) -> TableState:
        """Return the state of a view: the newest one, or the one it is pinned to."""
        snapshot = table.snapshot  # before the schema: no file of it is of a later one
        return cls(table, snapshot, table.schema, past)

    def by(self, options: Mapping[str, str]) -> TableState:
        """Return the state that a read with these options sees, with the columns that Spark already knows."""
        # A table at a moment was opened by these options, and names of main mean nothing in a main of before.
        is_named = self.is_named or self.table.moment is not None
        keys = INCREMENTAL if is_named else (*STATE_OPTIONS, *INCREMENTAL)
        state = {key: options[key] for key in keys if key in options}
        if not state:
            return self
        view = self.table.with_options({**table_options(options), **state})
        return TableState(view, view.snapshot, self.schema)

    def shows(self, other: TableState) -> bool:
        """Whether both show the same rows: ids alone do not tell, as they are reused and warehouses copied."""
        here, there = self.table.context.storage.url, other.table.context.storage.url
        return self.snapshot == other.snapshot and here == there

    @lazy
    def scan(self) -> Scan:
        """Scan of all rows; its files are planned once, however many statements read them."""
        newest = 0 if self.snapshot is None else self.snapshot.id
        between = between_of(self.table.context, self.table.options, newest)
        return Scan(
            self.table.context, self.snapshot, self.schema, options=self.table.options, between=between
        )


TABLES: WeakValueDictionary[tuple[str, str | None], TableState] = WeakValueDictionary()
"""Tables that Spark holds, by their ``toString`` and their snapshot."""
FILES: WeakValueDictionary[str, Scan] = WeakValueDictionary()
"""Scans whose files Spark holds, by the path that represents their snapshot."""
