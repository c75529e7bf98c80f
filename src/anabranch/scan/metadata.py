"""Metadata columns: the origin of rows, in columns that must be requested by name.

| column            |                                                                                   |
|-------------------|-----------------------------------------------------------------------------------|
| `_file`           | the data file, as `$files` names it                                                |
| `_row_position`   | place of the row in it, from 0                                                     |
| `_partition`      | the partition, ``dt=2026-01-01/hour=5``; empty without partitions                   |
| `_bucket`         | the bucket                                                                        |
| `_snapshot_added` | the snapshot that added the file, by a write or a compaction; null if it has expired |
| `_commit_time`    | when that was                                                                     |

A column of the table that is called so is the table's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from anabranch.arrow.table_read import Reader
from anabranch.expr.bound import columns as tested_columns
from anabranch.expr.evaluate import filter_mask
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_label
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import (
    BigIntType,
    Field,
    IntType,
    LocalZonedTimestampType,
    VarCharType,
)
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.split import Split, SplitFile

METADATA_FIELDS: Final = (
    Field(-1, "_file", VarCharType(nullable=False), "the data file that holds the row"),
    Field(-1, "_row_position", BigIntType(nullable=False), "place of the row in its data file, from 0"),
    Field(-1, "_partition", VarCharType(nullable=False), "partition of the row"),
    Field(-1, "_bucket", IntType(nullable=False), "bucket of the row"),
    Field(-1, "_snapshot_added", BigIntType(), "snapshot that added the data file, null if it has expired"),
    Field(-1, "_commit_time", LocalZonedTimestampType(3), "time of that snapshot"),
)
"""The metadata columns, as columns of a table."""
METADATA: Final[Mapping[str, pa.DataType]] = {f.name: to_arrow_type(f.type) for f in METADATA_FIELDS}
"""Names and Arrow types of the metadata columns."""
_FIELDS: Final = {f.name: f for f in METADATA_FIELDS}
_OF_SNAPSHOT: Final = frozenset({"_snapshot_added", "_commit_time"})


def metadata_columns(columns: Sequence[str] | None, schema: TableSchema) -> tuple[str, ...]:
    """Return the requested metadata columns."""
    if columns is None:
        return ()
    own = {f.name for f in schema.fields}
    return tuple(name for name in columns if name in METADATA and name not in own)


def columns_named(names: Sequence[str], schema: TableSchema) -> tuple[Field, ...]:
    """Return the columns of those names, of the table or of its metadata. Raises `SchemaError` for unknown ones."""
    told = metadata_columns(names, schema)
    return tuple(_FIELDS[name] if name in told else schema.field(name) for name in names)


@dataclass(frozen=True)
class LocatedSplit:
    """A split, and which snapshots added its files: what a process needs that reads it alone."""

    split: Split
    added: Mapping[str, tuple[int, int]]
    """Id and time of the snapshot, by the file's name, as far as they are requested and retained."""


@dataclass(frozen=True)
class MetadataReader:
    """Reader of splits, file by file, that adds metadata columns to the rows."""

    reader: Reader
    """Reader of the requested table columns and rows."""
    columns: tuple[str, ...]
    """All requested columns, in this order."""
    table: TableSchema
    snapshot: Snapshot | None

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the result."""
        own = {f.name: f for f in replace(self.reader, columns=None).schema}
        return pa.schema(
            [
                own[name] if name in own else pa.field(name, METADATA[name], nullable=name in _OF_SNAPSHOT)
                for name in self.columns
            ]
        )

    def read_batches(
        self, splits: Iterable[Split | LocatedSplit], *, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits, in order, in bounded memory."""
        left = limit
        for located in self.located([*splits]):
            if left == 0:
                return
            for rows in self.read(located, limit=left):
                yield rows
                left = None if left is None else left - rows.num_rows

    def read_table(self, splits: Iterable[Split], *, limit: int | None = None) -> pa.Table:
        """All rows of splits, in order."""
        return pa.Table.from_batches(self.read_batches(splits, limit=limit), schema=self.schema)

    def located(self, splits: Sequence[Split | LocatedSplit]) -> list[LocatedSplit]:
        """Return the splits with what history says of their files, which is read once for all of them."""
        added = self._added([split for split in splits if isinstance(split, Split)])
        return [split if isinstance(split, LocatedSplit) else _located(split, added) for split in splits]

    def read(self, located: LocatedSplit, *, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in bounded memory."""
        left = limit
        split = located.split
        for file in split.files:
            facts = self._facts(split, file, located.added.get(_name(file)))
            for rows, positions in self._rows(split, file, left):
                taken = rows if left is None else rows.slice(0, left)
                yield self._told(taken, positions[: taken.num_rows], facts)
                left = None if left is None else left - taken.num_rows
                if left == 0:
                    return

    def _rows(
        self, split: Split, file: SplitFile, limit: int | None
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield the rows of a file, and their positions in it, where these are requested."""
        one = Split(split.partition, split.bucket, (file,))
        own = tuple(name for name in self.columns if name not in METADATA or self._is_own(name))
        predicate = self.reader.predicate
        if "_row_position" not in self.columns or self._is_own("_row_position"):
            names = own or (self.table.fields[0].name,)  # rows of no columns would not say how many they are
            for batch in replace(self.reader, columns=names).read_batches([one], limit=limit):
                yield batch, pa.nulls(batch.num_rows, pa.int64())
            return
        ids = set() if predicate is None else tested_columns(predicate)
        tested = [f.name for f in self.table.fields if f.id in ids and f.name not in own]
        names = (*own, *tested) or (self.table.fields[0].name,)
        begin = 0
        for batch in replace(self.reader, columns=names, predicate=None).read_batches([one]):
            places = pa.array(range(begin, begin + batch.num_rows), pa.int64())
            begin += batch.num_rows
            if predicate is not None:
                mask = filter_mask(predicate, batch)
                batch, places = batch.filter(mask), places.filter(mask)  # noqa: PLW2901
            if batch.num_rows:
                yield batch, places

    def _facts(self, split: Split, file: SplitFile, added: tuple[int, int] | None) -> dict[str, Any]:
        """Return the metadata values that all rows of a file share."""
        snapshot, time = added or (None, None)
        return {
            "_file": f"{self.reader.context.storage.url.rstrip('/')}/{file.path}",
            "_partition": self._partition(split),
            "_bucket": split.bucket,
            "_snapshot_added": snapshot,
            "_commit_time": time,
        }

    def _told(self, rows: pa.RecordBatch, positions: pa.Array, facts: Mapping[str, Any]) -> pa.RecordBatch:
        schema = self.schema
        arrays = [
            rows.column(name)
            if self._is_own(name)
            else positions
            if name == "_row_position"
            else pa.repeat(pa.scalar(facts[name], METADATA[name]), rows.num_rows)
            for name in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _is_own(self, name: str) -> bool:
        return any(f.name == name for f in self.table.fields)

    def _partition(self, split: Split) -> str:
        fields = self.table.partition_fields
        values = decode_row([f.type for f in fields], split.partition, where="the partition of a split")
        return partition_label(fields, values)

    def _added(self, splits: Sequence[Split]) -> dict[str, tuple[int, int]]:
        """Return id and time of the snapshots that added the files, by file name, as far as they are retained."""
        if self.snapshot is None or not _OF_SNAPSHOT.intersection(self.columns):
            return {}
        wanted = {_name(file) for split in splits for file in split.files}
        found: dict[str, tuple[int, int]] = {}
        for snapshot in self.reader.context.snapshots.backwards(self.snapshot):
            if not wanted:
                break
            for name in _names_added(self.reader.context, snapshot) & wanted:
                found[name] = snapshot.id, snapshot.time_millis
            wanted -= found.keys()
        return found


def _located(split: Split, added: Mapping[str, tuple[int, int]]) -> LocatedSplit:
    return LocatedSplit(split, {name: added[name] for file in split.files if (name := _name(file)) in added})


def _name(file: SplitFile) -> str:
    return file.path.rpartition("/")[2]


def _names_added(context: TableContext, snapshot: Snapshot) -> set[str]:
    manifests = context.manifests
    entries = manifests.entries(manifests.read_list(snapshot.delta_manifest_list), only=("kind", "file_name"))
    adds = entries.df.filter(entries.df["kind"] == int(FileKind.ADD))
    return set(adds["file_name"])
