"""System tables through the data source: ``load("db.t$files")``, ``load("db.t$branch_fix$snapshots")``, ``load("sys.tables")``.

They are made from metadata when they are read, in one task. The options of a batch read hold for them as well:
a moment (``scan.snapshot-id`` and the like), ``scan.filter`` and ``scan.columns``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from anabranch.errors import CorruptTableError, InvalidInputError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.lazy import lazy
from anabranch.options import BRANCH, PATH, SCAN_COLUMNS, SCAN_FILTER
from anabranch.spark.context.tables import catalog_of, names_moment, open_table, store_settings, view_of
from anabranch.system_tables import (
    View,
    lake_table,
    lake_table_of,
    read_lake_table,
    read_system_parts,
    select_parts,
    system_table,
)

_BRANCH_SUFFIX = "branch_"


@dataclass(frozen=True)
class SystemRead:
    """A read of a system table."""

    name: str
    of_lake: bool
    """Whether it is a system table of the whole warehouse."""
    options: Mapping[str, str]
    """Options of the read; `path` names the table that it is about."""

    @lazy
    def schema(self) -> TableSchema:
        """All columns of the system table."""
        if self.of_lake:
            return TableSchema.create(lake_table(self.name), time_millis=0)
        return system_table(self.name).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows and columns that the options ask for."""
        filter, columns = SCAN_FILTER.of(self.options), SCAN_COLUMNS.of(self.options)
        fields = self.schema.fields
        if self.of_lake:
            _check_no_moment(self.name, self.options)
            parts = iter([read_lake_table(catalog_of(self.options), self.name, self.options)])
        else:
            parts = read_system_parts(self._view(), self.name, columns if filter is None else None)
        return select_parts(parts, fields, filter=filter, columns=columns)

    def _view(self) -> View:
        is_past = names_moment(self.options)
        try:
            seen = view_of(self.options)
        except CorruptTableError as error:
            if is_past:
                raise
            return View.damaged(open_table(self.options).context, error)
        return View(seen.table.context, seen.snapshot, seen.schema, pinned=is_past)


def system_read(options: Mapping[str, str]) -> SystemRead | None:
    """Return the read of a system table that the options ask for, or None if `path` names something else.

    Raises `NotFoundError` if there is no such system table.
    """
    path = PATH.of(options) or ""
    of_lake = lake_table_of(path) if "/" not in path else None
    if of_lake is not None:
        read = SystemRead(of_lake, True, options)
    else:
        table, dollar, name = path.rpartition("$")
        if not dollar or "/" in name or name.startswith(_BRANCH_SUFFIX):
            return None
        read = SystemRead(name, False, {**options, PATH.key: table})
    assert read.schema, "there is such a system table"
    return read


class SystemReader(DataSourceReader):
    """Reads a system table in one task."""

    def __init__(self, read: SystemRead, target: pa.Schema) -> None:
        # The task may run where neither environment nor files say how to open the store.
        self._read = replace(read, options={**read.options, **store_settings(read.options)})
        self._target = target

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._read.batches():
            rows = pa.Table.from_batches([batch]).select(self._target.names)
            yield from rows.cast(self._target).to_batches()


def _check_no_moment(name: str, options: Mapping[str, str]) -> None:
    if names_moment(options) or BRANCH.of(options) is not None:
        raise InvalidInputError(
            f"'sys.{name}' is of the whole warehouse: it has no branches and no past",
            hint="leave out branch and moment.",
        )
