"""Manifest entries by column.

Planning looks at hundreds of thousands of entries and keeps few; they stay columns until the last step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.spec.data_file import DataFileMeta, FileKind, FileSource, ManifestEntry, SimpleStats

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
        return self.filter(pl.col("kind") == _ADD)

    def deletes(self) -> EntryFrame:
        return self.filter(pl.col("kind") == _DELETE)

    def with_kind(self, kind: FileKind) -> EntryFrame:
        """The same entries as ADDs or as DELETEs, everything else as it is."""
        return EntryFrame(self.df.with_columns(pl.lit(int(kind), pl.Int8()).alias("kind")))

    def merged(self, *, strict: bool = True) -> EntryFrame:
        """What is left after each DELETE took away the ADD of its file before it.

        Left are the ADDs of files that are live at the end and the DELETEs whose ADD is not in this frame
        because it is in an older manifest. The order is kept.

        Args:
            strict: whether a file added while it is live, or deleted twice, raises `CorruptTableError`;
                otherwise the repetition is ignored.
        """
        repeated = self.df.get_column("file_name").is_duplicated()
        if not repeated.any():
            return self
        # Within one identity ADD and DELETE alternate. So what is left of it is its first event, if that
        # is a DELETE, and its last, if that is an ADD.
        identity = pl.struct(IDENTITY)
        events = (
            self.df.lazy()
            .select("kind", *IDENTITY)
            .with_row_index("row")
            .filter(repeated)
            .select(
                "row",
                "kind",
                "file_name",
                left=pl.when(pl.col("kind") == _ADD)
                .then(identity.is_last_distinct())
                .otherwise(identity.is_first_distinct()),
                again=pl.col("kind") == pl.col("kind").shift(1).over(IDENTITY),
            )
            .collect()
        )
        if strict:
            _check_alternation(events.filter("again"))
        gone = events.filter(~pl.col("left")).get_column("row")
        if gone.is_empty():
            return self
        keep = pl.repeat(True, len(self), eager=True).scatter(gone, False)
        return self.filter(keep)

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
    for row in df.iter_rows():
        value = dict(zip(COLUMNS, row, strict=True))
        yield ManifestEntry(
            kind=FileKind(value["kind"]),
            partition=value["partition"],
            bucket=value["bucket"],
            total_buckets=value["total_buckets"],
            file=DataFileMeta(
                file_name=value["file_name"],
                file_size=value["file_size"],
                row_count=value["row_count"],
                min_key=value["min_key"],
                max_key=value["max_key"],
                key_stats=SimpleStats(value["key_min"], value["key_max"], tuple(value["key_null_counts"])),
                value_stats=SimpleStats(
                    value["value_min"], value["value_max"], tuple(value["value_null_counts"])
                ),
                min_sequence_number=value["min_sequence_number"],
                max_sequence_number=value["max_sequence_number"],
                schema_id=value["schema_id"],
                level=value["level"],
                extra_files=tuple(value["extra_files"]),
                creation_time=value["creation_time"],
                delete_row_count=value["delete_row_count"],
                embedded_index=value["embedded_index"],
                file_source=None if value["file_source"] is None else FileSource(value["file_source"]),
                value_stats_cols=_optional_tuple(value["value_stats_cols"]),
                external_path=value["external_path"],
                first_row_id=value["first_row_id"],
                write_cols=_optional_tuple(value["write_cols"]),
            ),
        )


def _optional_tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
