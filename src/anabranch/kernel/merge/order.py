"""Where a branch's files stand in the queues of main: the rows of each bucket stay in the branch's order.

Files that are added get the numbers after the last of their bucket, as appended ones do. Where a partition is replaced,
files may be live on both sides and keep the numbers they have on main; then what is added before one of them must
not get numbers after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from anabranch.kernel.commit.base import Base
from anabranch.kernel.commit.sequence import continue_sequences
from anabranch.kernel.partitions import PartitionKey, key_of_row
from anabranch.spec.data_file import ManifestEntry

Place = tuple[PartitionKey, int]


def in_order(base: Base, added: Sequence[ManifestEntry], keeping: Iterable[Place]) -> list[ManifestEntry]:
    """ADD entries of a queue with the numbers they have on main, bucket by bucket in the branch's order.

    Args:
        base: what they are added to.
        added: with the branch's numbers.
        keeping: buckets in which these stay.
    """
    kept = set(keeping)
    ordered = sorted(added, key=lambda entry: entry.file.min_sequence_number)
    moved: list[ManifestEntry] = []
    still: list[ManifestEntry] = []
    for entry in ordered:
        place = key_of_row(entry.partition, base.schema), entry.bucket
        (still if place in kept else moved).append(entry)
    return [*continue_sequences(base, moved), *still]


def numbering(branch: pl.DataFrame, main: pl.DataFrame) -> Mapping[int, bool | None]:
    """How to number what is added to a replaced partition of a queue, by bucket; empty for other tables.

    Args:
        branch: its live files on the branch.
        main: its live files on main.

    Returns:
        True to give the numbers after the last, False to keep the branch's; None if neither keeps the order.
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
