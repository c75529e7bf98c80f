"""Manifest entries by column.

Planning looks at hundreds of thousands of entries and keeps few; they stay columns until the last step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import DataFileMeta, FileKind, FileSource, ManifestEntry, SimpleStats

COLUMNS: dict[str, pl.DataType] = {
    "kind": pl.Int8(),
    "partition": pl.Binary(),
    "bucket": pl.Int32(),
    "total_buckets": pl.Int32(),
    "file_name": pl.String(),
    "file_size": pl.Int64(),
    "row_count": pl.Int64(),
    "min_key": pl.Binary(),
    "max_key": pl.Binary(),
    "key_min": pl.Binary(),
    "key_max": pl.Binary(),
    "key_null_counts": pl.List(pl.Int64()),
    "value_min": pl.Binary(),
    "value_max": pl.Binary(),
    "value_null_counts": pl.List(pl.Int64()),
    "min_sequence_number": pl.Int64(),
    "max_sequence_number": pl.Int64(),
    "schema_id": pl.Int64(),
    "level": pl.Int32(),
    "extra_files": pl.List(pl.String()),
    "creation_time": pl.Int64(),
    "delete_row_count": pl.Int64(),
    "embedded_index": pl.Binary(),
    "file_source": pl.Int8(),
    "value_stats_cols": pl.List(pl.String()),
    "external_path": pl.String(),
    "first_row_id": pl.Int64(),
    "write_cols": pl.List(pl.String()),
}
"""Columns of an `EntryFrame`, in order.

`min_key` and `max_key` are the keys of primary-key tables, `key_*` and `value_*` the statistics of
`SimpleStats`. Rows (`partition`, keys, minima, maxima) are BinaryRows with their 4-byte arity. Null can occur
in `creation_time` and everything after it.
"""

IDENTITY = ("partition", "bucket", "level", "file_name")
"""What makes two entries speak of the same file. A DELETE repeats the bytes of its ADD, so bytes decide."""

_ADD, _DELETE = int(FileKind.ADD), int(FileKind.DELETE)
_KINDS: dict[int, FileKind] = {int(kind): kind for kind in FileKind}
_SOURCES: dict[int | None, FileSource | None] = {None: None, **{int(source): source for source in FileSource}}


@dataclass(frozen=True, slots=True, eq=False)
class EntryFrame:
    """Manifest entries in commit order, one row each.

    Attributes:
        df: the columns of `COLUMNS`.
    """

    df: pl.DataFrame

    @classmethod
    def empty(cls) -> EntryFrame:
        return cls(pl.DataFrame(schema=COLUMNS))

    @classmethod
    def from_entries(cls, entries: Iterable[ManifestEntry]) -> EntryFrame:
        return cls(pl.DataFrame([_to_row(entry) for entry in entries], schema=COLUMNS, orient="row"))

    @classmethod
    def concat(cls, frames: Sequence[EntryFrame]) -> EntryFrame:
        """The entries of all frames, in that order."""
        parts = [frame.df for frame in frames if len(frame)]
        return cls(pl.concat(parts, rechunk=False)) if parts else cls.empty()

    def __len__(self) -> int:
        return self.df.height

    def to_entries(self) -> list[ManifestEntry]:
        """One value per entry."""
        return list(_to_values(self.df))

    def filter(self, mask: pl.Expr | pl.Series) -> EntryFrame:
        """The entries where the mask, an expression over the columns or one value per row, is true."""
        return EntryFrame(self.df.filter(mask))

    def slice(self, offset: int, length: int | None = None) -> EntryFrame:
        return EntryFrame(self.df.slice(offset, length))

    def adds(self) -> EntryFrame:
        return self._of_kind(_ADD)

    def deletes(self) -> EntryFrame:
        return self._of_kind(_DELETE)

    def _of_kind(self, kind: int) -> EntryFrame:
        # Most often all entries are ADDs: then nothing is copied, and a plan shares the memory of the cache.
        is_wanted = self.df.get_column("kind") == kind
        return self if is_wanted.all() else self.filter(is_wanted)

    def with_kind(self, kind: FileKind) -> EntryFrame:
        """The same entries as ADDs or as DELETEs, everything else as it is."""
        return EntryFrame(self.df.with_columns(pl.lit(int(kind), pl.Int8()).alias("kind")))

    def merged(self, *, strict: bool = True) -> EntryFrame:
        """Return what is left after each DELETE cancels the ADD of its file before it.

        Left are the ADDs of files that are live at the end and the DELETEs whose ADD is not in this frame
        because it is in an older manifest. The order is kept.

        Args:
            strict: whether a file added while it is live, or deleted twice, raises `CorruptTableError`;
                otherwise the repetition is ignored.
        """
        repeated = _repeated(self.df.get_column("file_name"))
        if repeated is None:
            return self
        events = (
            self.df.select("kind", *IDENTITY)
            .with_row_index("row")
            .filter(repeated)
            .with_columns(again=pl.col("kind").eq_missing(pl.col("kind").shift(1).over(IDENTITY)))
        )
        if strict:
            _check_alternation(events.filter("again"))
        # Now ADD and DELETE of a file alternate. What is left of them is the first, if it is a DELETE, and
        # the last, if it is an ADD.
        identity = pl.struct(IDENTITY)
        left = events.filter(~pl.col("again")).filter(
            pl.when(pl.col("kind") == _ADD)
            .then(identity.is_last_distinct())
            .otherwise(identity.is_first_distinct())
        )
        return self.filter((~repeated).scatter(left.get_column("row"), True))

    def live(self, *, strict: bool = True) -> EntryFrame:
        """The ADDs of the files that are live after all entries of a whole snapshot, in commit order.

        Args:
            strict: whether contradictions raise `CorruptTableError`: a file added while it is live, deleted
                twice, or deleted and never added.
        """
        left = self.merged(strict=strict)
        adds = left.adds()
        if strict and len(adds) < len(left):
            name = left.deletes().df.item(0, "file_name")
            raise CorruptTableError(
                f"the manifests delete the file {name} and {len(left) - len(adds) - 1} more that they never add",
                hint="A manifest is missing from the snapshot, or two engines committed over each other.",
            )
        return adds


def _repeated(names: pl.Series) -> pl.Series | None:
    """Which names are there more than once; None for none.

    Equal names have equal hashes, and hashes of a million names take a tenth of the time and memory of grouping them.
    """
    hashes = names.hash()
    ordered = np.sort(hashes.to_numpy())
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return None
    suspects = hashes.is_in(pl.Series(twice).unique().implode())
    repeated = pl.repeat(False, len(names), dtype=pl.Boolean, eager=True)
    return repeated.scatter(suspects.arg_true(), names.filter(suspects).is_duplicated())


def _check_alternation(again: pl.DataFrame) -> None:
    if again.is_empty():
        return
    verb = FileKind(again.item(0, "kind")).name.lower()
    raise CorruptTableError(
        f"the manifests {verb} the file {again.item(0, 'file_name')} twice ({again.height} such files)",
        hint="Two engines committed over each other, or a manifest is listed twice.",
    )


def _to_row(entry: ManifestEntry) -> tuple[Any, ...]:
    file = entry.file
    return (
        int(entry.kind),
        entry.partition,
        entry.bucket,
        entry.total_buckets,
        file.file_name,
        file.file_size,
        file.row_count,
        file.min_key,
        file.max_key,
        file.key_stats.min_values,
        file.key_stats.max_values,
        file.key_stats.null_counts,
        file.value_stats.min_values,
        file.value_stats.max_values,
        file.value_stats.null_counts,
        file.min_sequence_number,
        file.max_sequence_number,
        file.schema_id,
        file.level,
        file.extra_files,
        file.creation_time,
        file.delete_row_count,
        file.embedded_index,
        None if file.file_source is None else int(file.file_source),
        file.value_stats_cols,
        file.external_path,
        file.first_row_id,
        file.write_cols,
    )


def _to_values(df: pl.DataFrame) -> Iterator[ManifestEntry]:
    def column(name: str) -> list[Any]:
        return df.get_column(name).to_list()

    def texts(name: str) -> Iterator[tuple[str, ...] | None]:
        return (None if value is None else tuple(value) for value in column(name))

    def stats(name: str) -> Iterator[SimpleStats]:
        counts = map(tuple, column(f"{name}_null_counts"))
        return map(SimpleStats, column(f"{name}_min"), column(f"{name}_max"), counts)

    # In the order of the members of DataFileMeta: by keyword it takes twice as long.
    files = map(
        DataFileMeta,
        column("file_name"),
        column("file_size"),
        column("row_count"),
        stats("value"),
        column("min_sequence_number"),
        column("max_sequence_number"),
        column("schema_id"),
        column("level"),
        map(tuple, column("extra_files")),
        column("creation_time"),
        column("delete_row_count"),
        column("embedded_index"),
        map(_SOURCES.__getitem__, column("file_source")),
        texts("value_stats_cols"),
        column("external_path"),
        column("first_row_id"),
        texts("write_cols"),
        column("min_key"),
        column("max_key"),
        stats("key"),
    )
    kinds = map(_KINDS.__getitem__, column("kind"))
    return map(ManifestEntry, kinds, column("partition"), column("bucket"), column("total_buckets"), files)
