"""Anabranch in the words of the interop tests: canonical rows in, canonical rows out, public surface only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch
from interop import canonical
from interop.canonical import sorted_rows

NAME = "db.t"
Rows = list[list[Any]]


class Ours:
    """One table of a fresh warehouse, written and read by Anabranch."""

    def __init__(
        self,
        warehouse: Path,
        columns: str,
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.table = anabranch.connect(str(warehouse)).create_table(
            NAME, columns, partition_by=partition_by, options=options
        )

    @classmethod
    def open(cls, warehouse: Path, name: str = NAME) -> Ours:
        """A table that somebody else created."""
        ours = object.__new__(cls)
        ours.warehouse = warehouse
        ours.table = anabranch.connect(str(warehouse)).table(name)
        return ours

    def arrow(self, rows: Rows) -> pa.Table:
        """Canonical rows as Arrow, in the present schema of the table."""
        return canonical.table_of(rows, self._latest().scan().to_arrow().schema)

    def append(self, rows: Rows) -> None:
        """Commit rows."""
        self._latest().append(self.arrow(rows))

    def overwrite(self, rows: Rows, partition: Mapping[str, Any] | None = None) -> None:
        """Replace rows."""
        self._latest().overwrite(self.arrow(rows), partition)

    def read(self, filter: str | None = None, columns: Sequence[str] | None = None) -> Rows:
        """Canonical rows."""
        return canonical.rows_of(self._latest().scan(filter, columns).to_arrow())

    def read_in_order(self, columns: Sequence[str]) -> Rows:
        """Rows of the columns, one after the other as they are read."""
        return [list(row.values()) for row in self._latest().scan(columns=columns).to_arrow().to_pylist()]

    def files(self, filter: str | None = None) -> int:
        """How many data files a read opens."""
        return sum(len(split.files) for split in self._latest().scan(filter).plan().splits)

    def _latest(self) -> Any:
        # A new handle: what others committed since the last call must be seen.
        return anabranch.connect(str(self.warehouse)).table(NAME)


def same(found: Rows, expected: Rows) -> None:
    """Fail with the difference when two sets of rows are not the same."""
    found, expected = sorted_rows(found), sorted_rows(expected)
    if found != expected:
        missing = [row for row in expected if row not in found]
        extra = [row for row in found if row not in expected]
        raise AssertionError(
            f"{len(found)} rows, not {len(expected)}; missing {missing[:3]}, not expected {extra[:3]}"
        )
