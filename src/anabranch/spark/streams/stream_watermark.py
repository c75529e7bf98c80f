"""Watermark of a micro-batch.

A table with a definition says itself what its watermark is: the newest event time of the rows, less the delay
(`anabranch.kernel.commit.watermark`). For a batch that reads tables of ours this is not all there is to know. Their rows come
from many sources too, and the slowest of them is behind the newest row: so the watermark is never ahead of theirs,
at the place to which the batch has read them.

The watermark that Spark computes for the query has no say there. It is the one of the batch before, so the last batch
of a query that ends would never come up to it; and it says nothing of the rows that come out: those of closed windows
lie below it anyway, and what a join held back is late by it all the same. A table without a definition records it, unless
it is further ahead of the clock than `watermark.max-ahead`; where the options of the write define a watermark (INSERT from
a topic's table with one), the rows of the batch itself count as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import watermark_definition
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.watermark import Claim, Limit, UnknownLimit, claim
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.spark_offsets import BatchOffsets, topic_partitions
from anabranch.options import WATERMARK_MAX_AHEAD
from anabranch.spark.context.tables import neighbour
from anabranch.streaming.offsets import Offset, Position, is_offset

_LOG = logging.getLogger(__name__)


def batch_watermark(
    schema: TableSchema,
    options: Mapping[str, str],
    files: Sequence[CommitMessage],
    offsets: BatchOffsets | None,
    *,
    producer: str,
    is_first: bool,
    now: int,
    is_of_write: bool = False,
) -> Claim:
    """Return the watermark that a micro-batch claims. Never raises, so that no batch fails because of it.

    Args:
        schema: in which the rows were written.
        options: of the sink, with those of its table.
        files: what was written.
        offsets: how far the batch read its sources; None if that is not known.
        producer: commit user of the query.
        is_first: whether it is the first batch that the query commits.
        now: by the clock of the query, epoch milliseconds.
        is_of_write: whether the table has no definition of its own, and that of the schema is the write's.
    """
    if watermark_definition(schema) is None:
        return _of_spark(options, offsets, now)
    claimed = claim(
        schema,
        options,
        files,
        producer=producer,
        is_first=is_first,
        limit=UnknownLimit() if offsets is None else _lowest(_limits(offsets, options)),
        expected=frozenset() if offsets is None else topic_partitions(offsets),
    )
    if is_of_write and (claimed is None or isinstance(claimed, int)):
        # Rows of closed windows lie below the watermark that closed them.
        return max(
            (mark for mark in (claimed, _of_spark(options, offsets, now)) if mark is not None), default=None
        )
    return claimed


def _of_spark(options: Mapping[str, str], offsets: BatchOffsets | None, now: int) -> int | None:
    """Return the watermark that Spark ran the batch under, unless it is too far ahead of the clock."""
    found = None if offsets is None else offsets.watermark_millis
    is_ahead = found is not None and found > now + WATERMARK_MAX_AHEAD.of(options)
    return None if is_ahead else found


def _limits(offsets: BatchOffsets, options: Mapping[str, str]) -> Iterator[Limit]:
    """Yield the watermark reached in each table that the query reads, also without rows in this batch."""
    for end in offsets.ends.values():
        if end is not None and is_offset(end):
            try:
                yield _limit(Offset.from_dict(end), options)
            except AnabranchError as error:
                _LOG.warning("the watermark stays, that of an input is not known: %s", error)
                yield UnknownLimit()


def _limit(end: Offset, options: Mapping[str, str]) -> Limit:
    if end.position.watermark is not None:
        return end.position.watermark
    try:
        context = neighbour(options, end.name)
    except NotFoundError:
        context = None
    if context is None or context.branch_uuid != end.branch_uuid:
        _LOG.info("the watermark of the input '%s' is not known here: it is in another warehouse", end.name)
        return None
    return _come_so_far(context, end.position)


def _come_so_far(context: TableContext, position: Position) -> Limit:
    """Return the watermark of a table at a position; None if it never had one."""
    snapshot = context.snapshots.find(position.snapshot) if position.snapshot else None
    if snapshot is None or snapshot.watermark is None or snapshot.stamp != position.stamp:
        schema = context.schemas.latest()
        return None if schema is None or watermark_definition(schema) is None else UnknownLimit()
    through = position.delivered_through
    if through == snapshot.id:
        return snapshot.watermark
    before = context.snapshots.find(through) if through else None
    return UnknownLimit() if before is None or before.watermark is None else before.watermark


def _lowest(limits: Iterator[Limit]) -> Limit:
    known: list[int] = []
    for limit in limits:
        if isinstance(limit, UnknownLimit):
            return limit
        if limit is not None:
            known.append(limit)
    return min(known, default=None)
