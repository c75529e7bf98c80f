"""Sequence numbers for files that merges, rollbacks or replacements add to queues, keeping each bucket's row order.

Added files get numbers after the last of their bucket, as appended ones do. Where a partition is replaced,
files may be live on both sides and keep their numbers; then a file added before one of them must not get
a number after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from anabranch.format.records.data_file import ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.commit.sequence import continue_sequences
from anabranch.kernel.scan.partitions import (
    PartitionKey,
    key_of_row,
    keys_of_rows,
    of_partitions,
    partition_text,
)

Place = tuple[PartitionKey, int]


def in_order(base: Base, added: Sequence[ManifestEntry], keeping: Iterable[Place]) -> list[ManifestEntry]:
    """Renumber ADD entries of a queue on the base, bucket by bucket in the branch's order.

    Args:
        base: the base they are added to.
        added: with the branch's numbers.
        keeping: buckets whose entries keep their numbers.
    """
    kept = set(keeping)
    ordered = sorted(added, key=lambda entry: entry.file.min_sequence_number)
    moved: list[ManifestEntry] = []
    still: list[ManifestEntry] = []
    for entry in ordered:
        place = key_of_row(entry.partition, base.schema), entry.bucket
        (still if place in kept else moved).append(entry)
    return [*continue_sequences(base, moved), *still]


def ordered_as(
    base: Base, added: Sequence[ManifestEntry], wanted: pl.DataFrame
) -> list[ManifestEntry] | Conflict:
    """Number ADD entries so that each bucket of a queue, with its remaining files, has the order of a wanted state.

    Nearly always they keep their numbers from there. But remaining files may have got others, when they were removed
    and came back with a merge, or when they are a branch's.

    Args:
        base: the base they are added to.
        added: the files of the wanted state that the base lacks.
        wanted: all live files of that state.
    """
    queued = wanted.filter(pl.col("total_buckets") > 0)
    live = base.live.df.select(*IDENTITY, "min_sequence_number")
    stays = queued.join(live, on=IDENTITY, suffix="_now")
    moved = stays.filter(pl.col("min_sequence_number_now") != pl.col("min_sequence_number"))
    if moved.is_empty():
        return [*added]
    at_tail: set[Place] = set()
    keys = {*keys_of_rows(moved["partition"], base.schema)}
    for key, files in of_partitions(EntryFrame(queued), keys, base.schema).items():
        numbered = numbering(files, live)
        if None in numbered.values():
            return Conflict(
                "ORDER_CHANGED",
                f"the rows in {partition_text(files.item(0, 'partition'), base.schema)} cannot be brought into that order: "
                "files that stay have got other places since",
                "compact the table fully, which rewrites them, and do it again.",
            )
        at_tail |= {(key, bucket) for bucket, is_at_tail in numbered.items() if is_at_tail}
    places = {(key_of_row(entry.partition, base.schema), entry.bucket) for entry in added}
    return in_order(base, added, places - at_tail)


def numbering(branch: pl.DataFrame, main: pl.DataFrame) -> Mapping[int, bool | None]:
    """Decide per bucket how to number files added to a replaced partition of a queue; empty for other tables.

    Args:
        branch: the live files the partition will have, with their numbers on the branch.
        main: its live files on main, and perhaps others.

    Returns:
        True to number after the last, False to keep the branch's numbers; None if neither keeps the order.
    """
    ours = dict(main.select("file_name", "min_sequence_number").iter_rows())
    found: dict[int, bool | None] = {}
    branch = branch.filter(pl.col("total_buckets") > 0)
    for bucket in branch["bucket"].unique().to_list():
        files = branch.filter(pl.col("bucket") == bucket).sort("min_sequence_number", maintain_order=True)
        numbered = [*files.select("file_name", "min_sequence_number").iter_rows()]
        stays = [name in ours for name, _ in numbered]
        there = [ours[name] for name, _ in numbered if name in ours]
        if stays == sorted(stays, reverse=True) and there == sorted(there):
            found[bucket] = True
        else:
            alike = all(ours[name] == number for name, number in numbered if name in ours)
            found[bucket] = False if alike else None
    return found
