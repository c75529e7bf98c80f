"""The batch without rows that follows one which has moved the watermark, and emits what that closed.

Spark plans it right after the other one, and not when a query starts. So a query that begins with the state after the first
would emit what it closed with its next rows only, and until then its table would lack what the point's table got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from anabranch.errors import NotFoundError
from anabranch.jobs.state.held import HeldState
from anabranch.jobs.state.point import Point
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_by_uuid
from anabranch.lineage.model import LineageEntry, TableInput, entry_or_none
from anabranch.lineage.spark_offsets import inputs_between, parse_batch_offsets
from anabranch.storage.protocol import Storage


def closing_watermark(checkpoint: Storage, held: HeldState, point: Point, branch: TableContext) -> int | None:
    """Return the watermark of the batch after a point, if that one read nothing; None if there was none such.

    Args:
        checkpoint: of the query that made the point.
        point: the batch.
        branch: the branch that begins with it.
    """
    text = held.offsets(held.batch)
    assert text is not None, "its state was found with it"
    with suppress(NotFoundError):
        after = parse_batch_offsets(checkpoint.get(f"offsets/{held.batch + 1}").decode())
        read = inputs_between(parse_batch_offsets(text), after, {})
        return None if any(one.start != one.end for one in read) else after.batch_watermark
    # Spark has forgotten that batch, where the state was kept for a tag; what it brought is in the table's history.
    following = next(_later_commits(branch, point.query), None)
    if following is None or following.engine.batch != held.batch + 1:
        return None
    is_lookup = [isinstance(read, TableInput) and read.is_state for read in following.consumed]
    return following.watermark if all(is_lookup) else None


def without_rows(before: str, watermark: int) -> str:
    """Return the offset log file of a batch that reads nothing after the one before, under another watermark."""
    version, metadata, *lines = before.split("\n")
    return "\n".join([version, json.dumps({**json.loads(metadata), "batchWatermarkMs": watermark}), *lines])


def _later_commits(branch: TableContext, query: str) -> Iterator[LineageEntry]:
    """Yield what commits of a query say that came after what a branch begins with, as far as they are there."""
    fork = branch.fork
    origin = None if fork is None else main_by_uuid(branch, fork.snapshot.branch_uuid)
    if fork is None or origin is None:
        return
    for number in count(fork.snapshot.id + 1):
        snapshot = origin.snapshots.find(number)
        if snapshot is None:
            return
        entry = entry_or_none(snapshot)
        if entry is not None and entry.engine.query == query:
            yield entry
